"""The index code, beside varints of the gaps in numpy and in C."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from aiops import kernels
from aiops.bench.kernel.base import Array, Contenders, Data, KernelCase

SIZES = (10_000_000,)
DENSITIES = (0.001, 0.01, 0.1)
C_VARINT = "C varint"

# Size against the entropy of random positions.
SIZE_GOALS = {0.001: "<= 1.35", 0.01: "<= 1.2", 0.1: ""}


def cases(data: Data) -> Iterator[KernelCase]:
    """Yield encoding and decoding at three densities."""
    for density in DENSITIES:
        goals = {"numpy": ">= 57", C_VARINT: ">= 4"}
        for name, make in (("encode", encode), ("decode", decode)):
            yield KernelCase(
                f"index code, {name} {density:g}",
                lambda make=make, density=density: make(data, data.positions(density)),  # type: ignore[misc]
                goals,
            )


def sizes(data: Data) -> Iterator[tuple[str, float, str, str]]:
    """Yield name, value, unit and goal of the code's size at each density."""
    for density in DENSITIES:
        index = data.positions(density)
        p = index.size / data.n
        if not 0 < p < 1:
            continue
        entropy = -(p * math.log2(p) + (1 - p) * math.log2(1 - p)) / p / 8
        ours = kernels.index_bytes(index.size, data.n) / index.size
        name = f"index code {density:g}, {ours:.3f} bytes a position"
        yield name, ours / entropy, "times the entropy", SIZE_GOALS[density]
        theirs = varint(index).size / index.size
        yield f"varint {density:g}, {theirs:.3f} bytes", theirs / entropy, "times the entropy", ""


def encode(data: Data, index: Array) -> Contenders:
    """Encode positions."""
    code, n = kernels.encode_index(index, data.n), data.n
    found: Contenders = {
        "ours": lambda: kernels.encode_index(index, n, out=code),
        "numpy": lambda: varint(index),
    }
    if data.native is not None:
        native, room = data.native, np.empty(5 * index.size, np.uint8)
        found[C_VARINT] = lambda: native.varint(index, room)
    return found


def decode(data: Data, index: Array) -> Contenders:
    """Decode positions; ours checks them."""
    code, n, back, plain = (
        kernels.encode_index(index, data.n), data.n, np.empty_like(index), varint(index),
    )  # fmt: skip
    found: Contenders = {
        "ours": lambda: kernels.decode_index(code, index.size, n, out=back),
        "numpy": lambda: from_varint(plain),
    }
    if data.native is not None:
        native, theirs = data.native, np.empty_like(index)
        found[C_VARINT] = lambda: native.from_varint(plain, theirs)
    return found


def varint(index: Array) -> Array:
    """Return the gaps as LEB128, with a pass over all that are left for each byte."""
    gap = np.diff(index, prepend=np.uint32(0))
    length = np.ones(gap.size, np.int64)
    for bits in (7, 14, 21, 28):
        length += gap >= 1 << bits
    start = np.cumsum(length) - length
    out = np.empty(int(length.sum()), np.uint8)
    for byte in range(5):
        here = np.flatnonzero(length > byte)
        more = (length[here] > byte + 1).astype(np.uint8) << 7
        out[start[here] + byte] = (gap[here] >> np.uint32(7 * byte) & 127).astype(np.uint8) | more
    return out


def from_varint(code: Array) -> Array:
    """Return the positions that :func:`varint` has encoded."""
    end = np.flatnonzero(code < 128)
    if not end.size:
        return np.empty(0, np.uint32)
    start = np.concatenate([[0], end[:-1] + 1])
    gap = np.zeros(end.size, np.uint32)
    for byte in range(int((end - start).max()) + 1):
        here = np.flatnonzero(end - start >= byte)
        gap[here] |= (code[start[here] + byte] & 127).astype(np.uint32) << np.uint32(7 * byte)
    return np.cumsum(gap, dtype=np.uint32)
