"""What is encoded of a bucket, and where: on the loop or in a thread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import DENSE, Codec, Residual

# Encoding so many values takes well under a millisecond and stays on the loop; more goes to a thread.
INLINE_VALUES = 256 * 1024


def with_rest(
    codec: Codec, part: NDArray[np.float32], rest: Residual | None
) -> tuple[NDArray[np.float32], Residual | None]:
    """Return what ``codec`` is to encode of an update, and the residual that it goes on from.

    The codec before it, which left the rest behind, may have kept nothing, or be the last one to do so.
    """
    if codec.wire_id == DENSE:
        return (part, None) if rest is None else (part + rest, None)
    if rest is None:
        return part, codec.init(part.size)
    if codec.init(part.size) is None:
        return part + rest, None
    return part, rest
