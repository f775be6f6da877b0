"""What the twins share: array types, and floats as the bits they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
I8 = npt.NDArray[np.int8]
U8 = npt.NDArray[np.uint8]

SIGN = np.uint32(0x8000_0000)
INFINITY = np.uint32(0x7F80_0000)


def first(condition: npt.NDArray[np.bool_]) -> int:
    position = int(condition.argmax()) if condition.size else 0
    return position if condition.size and condition[position] else -1
