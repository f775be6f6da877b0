"""Sparse accumulation, look-up and merging, in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aiops.kernels.reference._bits import F32, U8, U32, first
from aiops.kernels.reference.half import from_half
from aiops.kernels.reference.index import read
from aiops.kernels.reference.quantize import INT8_BLOCK


def scatter_add(acc: F32, index: U32, value: U8, kind: int, scale: F32, weight: float) -> int:
    """Add ``weight * value[i]`` to ``acc[index[i]]`` for every i, in place and in order.

    Args:
        acc: float32, shape (n,). Written.
        index: uint32, shape (k,).
        value: The bytes of k values, aligned to one.
        kind: What they are: 0 float32, 1 float16, 2 bfloat16, 3 int8.
        scale: float32, shape (ceil(k / 4096),) for int8 values, else empty.
        weight: Factor of every value, rounded to float32.

    Returns:
        -1, or the position of the first index >= n; ``acc`` is untouched then.
    """
    bad = first(index >= acc.size)
    if bad < 0:
        _add(acc, index, _decoded(value, kind, scale), weight)
    return bad


def scatter_add_coded(
    acc: F32, code: U8, k: int, value: U8, kind: int, scale: F32, weight: float
) -> int:
    """Add ``weight * value[i]`` to ``acc`` at position i of those that ``code`` stands for.

    Args:
        acc: float32, shape (n,). Written.
        code: uint8, shape (index_bytes(k, n),).
        k: How many values there are.
        value: The bytes of k values, aligned to one.
        kind: What they are, as for :func:`scatter_add`.
        scale: float32, shape (ceil(k / 4096),) for int8 values, else empty.
        weight: Factor of every value, rounded to float32.

    Returns:
        -1, or what ``decode_index`` would of a code that leads outside; ``acc`` is untouched then.
    """
    wrong, index = read(code, k, acc.size)
    if wrong == -1:
        _add(acc, index, _decoded(value, kind, scale), weight)
    return wrong


def gather(x: F32, index: U32, out: F32) -> int:
    """Write ``x[index[i]]`` to ``out[i]`` for every i.

    Args:
        x: float32, shape (n,).
        index: uint32, shape (k,).
        out: float32, shape (k,). Written.

    Returns:
        -1, or the position of the first index >= n; ``out`` is untouched then.
    """
    bad = first(index >= x.size)
    if bad < 0:
        out[:] = x[index]
    return bad


def merge_sparse(
    indices: tuple[U32, ...],
    values: tuple[F32, ...],
    weights: F32,
    n: int,
    index: U32,
    value: F32,
) -> tuple[int, int]:
    """Sum sparse vectors: positions that occur in any of them, ascending, and weighted sums.

    Args:
        indices: uint32 vectors, ascending, below n.
        values: float32 vectors, each as long as its positions.
        weights: float32, shape (len(indices),).
        n: One more than the largest position may be.
        index: uint32, shape (at least the number of all values,). Written.
        value: float32, as long as ``index``. Written.

    Returns:
        -1 and the number of positions written; or a vector's number and the place of its first
        position that is not above the one before it or not below n, and nothing is written.
    """
    for number, positions in enumerate(indices):
        wrong = first(
            (np.diff(positions.astype(np.int64), prepend=-1) <= 0) | (positions >= np.uint64(n))
        )
        if wrong >= 0:
            return number, wrong
    union = np.unique(np.concatenate([np.empty(0, np.uint32), *indices]))
    index[: union.size] = union
    total = value[: union.size]
    total[:] = 0
    with np.errstate(all="ignore"):
        for positions, numbers, weight in zip(indices, values, weights, strict=True):
            total[np.searchsorted(union, positions)] += weight * numbers
    return -1, union.size


def _add(acc: F32, index: npt.NDArray[np.integer], value: F32, weight: float) -> None:
    with np.errstate(all="ignore"):
        np.add.at(acc, index, np.float32(weight) * value)


# The values as float32.
def _decoded(value: U8, kind: int, scale: F32) -> F32:
    if kind == 0:
        return value.view(np.float32)
    if kind == 3:
        with np.errstate(all="ignore"):
            return np.repeat(scale, INT8_BLOCK)[: value.size] * value.view(np.int8)
    bits = value.view(np.uint16)
    decoded = np.empty(bits.size, np.float32)
    from_half(bits, kind == 2, decoded)
    return decoded
