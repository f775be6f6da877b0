"""The IDX format of the MNIST family: a big-endian header, then bytes. It knows no file names and no digests."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from aiops.errors import ConfigError

# The third byte of the magic number is the element type; the MNIST family has no other than unsigned bytes.
UNSIGNED_BYTE = 0x08


def parse(content: bytes, *, source: str) -> NDArray[np.uint8]:
    """Return the array that an IDX file holds, as a read-only view of ``content``.

    Args:
        content: The whole file, decompressed.
        source: The file's name, for messages.

    Returns:
        uint8, in the shape the header gives.

    Raises:
        ConfigError: ``content`` is not an IDX file of unsigned bytes, or is shorter or longer than its header says.
    """
    if len(content) < 4 or content[:3] != bytes((0, 0, UNSIGNED_BYTE)):
        raise ConfigError(f"{source} starts with {content[:4].hex()!r}, IDX bytes with '000008'")
    n_axes = content[3]
    header_bytes = 4 + 4 * n_axes
    if len(content) < header_bytes:
        raise ConfigError(f"{source} ends inside its header of {header_bytes} bytes")
    shape = struct.unpack(f">{n_axes}I", content[4:header_bytes])
    # Python's integers: a product of 32-bit lengths from a broken file must not wrap to a small one.
    size_bytes = 1
    for length in shape:
        size_bytes *= length
    if len(content) - header_bytes != size_bytes:
        raise ConfigError(
            f"{source} holds {len(content) - header_bytes} elements, its header says {size_bytes}"
        )
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)
