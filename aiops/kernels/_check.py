"""What the faces ask of their arguments, before any work: a wrong one gives one clear error.

The compiled twins index without bounds checks, so nothing reaches them that did not pass here.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy import may_share_memory, ndarray

F32 = npt.NDArray[np.float32]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
I8 = npt.NDArray[np.int8]

FLOAT32 = np.dtype(np.float32)
UINT32 = np.dtype(np.uint32)
UINT16 = np.dtype(np.uint16)
UINT8 = np.dtype(np.uint8)
INT8 = np.dtype(np.int8)

# Positions are uint32, on the wire too.
MOST_VALUES = 2**32

# Half a unit above the largest float32, from where on a double rounds to infinity.
WEIGHT_LIMIT = float(np.finfo(np.float32).max) * (1 + 2**-25)


def vector(
    name: str,
    array: npt.NDArray[Any],
    dtype: np.dtype[Any],
    *,
    length: int = -1,
    like: str = "",
    written: bool = False,
) -> int:
    """Check that ``array`` is a vector that a kernel can use, and return its length.

    Args:
        name: What the face calls it.
        array: Anything a caller may have passed.
        dtype: The dtype it must have.
        length: The length it must have; -1 allows any.
        like: What sets ``length``, for the message.
        written: Whether the kernel writes to it.

    Raises:
        TypeError: It is no numpy array or has another dtype.
        ValueError: It is not one-dimensional, C-contiguous, aligned, of the right length, or
            writable where it must be.
    """
    # Nearly every array passes in one look; a chunk of 256 KiB is merged in 15 us, so looks count.
    if type(array) is ndarray and array.dtype is dtype and array.ndim == 1 and array.flags.carray:
        size = array.size
        if length in (-1, size):
            return size
    if not isinstance(array, ndarray):
        raise TypeError(f"{name} is of type {type(array).__name__}, it must be a numpy array")
    if array.dtype != dtype:
        raise TypeError(f"{name} has dtype {array.dtype}, it must be {dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name} has {array.ndim} dimensions, it must have 1")
    size = array.size
    flags = array.flags
    # carray: contiguous, aligned and writable.
    if not flags.carray:
        if not flags.c_contiguous:
            raise ValueError(
                f"{name} has a stride of {array.strides[0]} bytes, it must be contiguous:"
                f" {array.itemsize} bytes"
            )
        if not flags.aligned:
            raise ValueError(f"{name} is not aligned to the {array.itemsize} bytes of a value")
        if written:
            raise ValueError(f"{name} is read-only, it must be writable")
    if 0 <= length != size:
        raise ValueError(f"{name} has {size} values, it must have {length}, {like}")
    return size


def vectors(
    name: str,
    arrays: Sequence[npt.NDArray[Any]],
    dtype: np.dtype[Any],
    *,
    length: int,
    like: str,
    apart_from: npt.NDArray[Any] | None = None,
) -> None:
    """Check several inputs like :func:`vector`, and that none shares memory with the output.

    Args:
        name: What the face calls their sequence.
        arrays: Anything a caller may have passed.
        dtype: The dtype each must have.
        length: The length each must have.
        like: What sets ``length``, for the message.
        apart_from: The vector ``out``, if there is one already.

    Raises:
        TypeError: As of :func:`vector`.
        ValueError: As of :func:`vector`, or one overlaps ``out``.
    """
    # Names are put together where they are needed: they took as long as the looks.
    for i, array in enumerate(arrays):
        if not (
            type(array) is ndarray
            and array.dtype is dtype
            and array.ndim == 1
            and array.size == length
            and array.flags.carray
        ):
            vector(f"{name}[{i}]", array, dtype, length=length, like=like)
        if apart_from is not None and may_share_memory(apart_from, array):
            apart("out", apart_from, f"{name}[{i}]", array)


def apart(
    name: str,
    array: npt.NDArray[Any],
    other_name: str,
    other: npt.NDArray[Any],
    *,
    same: bool = False,
) -> None:
    """Check that two vectors share no memory.

    Args:
        name: What the face calls the first one.
        array: A vector that the kernel writes.
        other_name: What the face calls the second one.
        other: A vector that the kernel reads or writes.
        same: Whether both may be the very same values.

    Raises:
        ValueError: They overlap.
    """
    # Who owns its memory shares it with its views only; the look takes a third of numpy's time. Both
    # are contiguous, so the bounds that numpy compares are all there is to know.
    if array.base is None and other.base is None and array is not other:
        return
    if not may_share_memory(array, other):
        return
    if not (same and _address(array) == _address(other)):
        raise ValueError(f"{name} and {other_name} overlap in memory, they must be apart")


def sizes(k: int, n: int) -> tuple[int, int]:
    """Return both as ints, if ``k`` ascending positions below ``n`` can be.

    Args:
        k: How many positions.
        n: One more than the largest position may be.

    Raises:
        ValueError: ``k`` or ``n`` is out of range.
    """
    k, n = operator.index(k), operator.index(n)
    if not 0 <= n <= MOST_VALUES:
        raise ValueError(f"n is {n}, it must be between 0 and {MOST_VALUES}")
    if not 0 <= k <= n:
        raise ValueError(f"k is {k}, it must be between 0 and n, which is {n}")
    return k, n


def ascending(place: int, n: int) -> str:
    """Return what position number ``place`` of ascending ones below ``n`` must be, for a message."""
    above = "above the one before it and " if place else ""
    return f"it must be {above}below {n}"


def weight(value: float, name: str = "weight") -> float:
    """Return ``value`` as a float that is finite in float32 as well.

    Args:
        value: A merge weight, dimensionless.
        name: What the face calls it.

    Raises:
        ValueError: It is NaN or too large.
    """
    number = float(value)
    if not abs(number) < WEIGHT_LIMIT:
        raise ValueError(f"{name} is {number}, it must be finite and below {WEIGHT_LIMIT:.8g}")
    return number


def weights(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """Return ``values`` as floats that are finite in float32 as well.

    Args:
        name: What the face calls them.
        values: Merge weights, dimensionless.

    Raises:
        ValueError: One is NaN or too large.
    """
    numbers = tuple(map(float, values))
    for i, number in enumerate(numbers):
        if not abs(number) < WEIGHT_LIMIT:
            weight(number, f"{name}[{i}]")
    return numbers


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
