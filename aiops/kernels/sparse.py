"""Checked faces of the sparse kernels: scatter, gather and merge. Positions are uint32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from aiops.kernels import _backend, _check
from aiops.kernels._check import F32, FLOAT32, INT8, MOST_VALUES, U8, U32, UINT8, UINT16, UINT32
from aiops.kernels.index import require
from aiops.kernels.quantize import INT8_BLOCK

ValueName = Literal["float32", "float16", "bfloat16", "int8"]

# Number of a kind in the compiled twins, and what its values are kept in.
_KINDS: dict[str, tuple[int, np.dtype[Any]]] = {
    "float32": (0, FLOAT32),
    "float16": (1, UINT16),
    "bfloat16": (2, UINT16),
    "int8": (3, INT8),
}
_NO_SCALE = np.empty(0, np.float32)


def scatter_add(
    acc: F32,
    index: U32,
    value: npt.NDArray[Any],
    weight: float = 1.0,
    *,
    kind: ValueName = "float32",
    scale: F32 | None = None,
) -> None:
    """Add ``weight * value[i]`` to ``acc[index[i]]`` for every i, in place.

    Values that are not float32 are decoded on the way. Releases the GIL. Duplicate indices add up,
    in the order in which they stand.

    Args:
        acc: float32, shape (n,), C-contiguous, writable. One shard's accumulator.
        index: uint32, shape (k,). Positions in ``acc``; sorted ones are two to three times faster.
        value: Shape (k,); float32, 16-bit floats as uint16, or int8.
        weight: Merge weight of this push, dimensionless; rounded to float32.
        kind: What the values are.
        scale: float32, shape (ceil(k / 4096),): what 4096 int8 values each are multiplied by. Only
            for int8.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``kind`` is unknown, lengths do not fit, arrays overlap, or the weight is not
            finite.
        IndexError: An index is >= n; the message names its position. ``acc`` is untouched.
    """
    n = _check.vector("acc", acc, FLOAT32, written=True)
    k = _check.vector("index", index, UINT32)
    number, scales = _values(acc, value, kind, scale)
    _check.vector("value", value, value.dtype, length=k, like="as in index")
    _check.apart("acc", acc, "index", index)
    bad = _backend.sparse.scatter_add(
        acc, index, value.view(np.uint8), number, scales, _check.weight(weight)
    )
    if bad >= 0:
        raise IndexError(f"index[{bad}] is {index[bad]}, acc has {n} values")


def scatter_add_coded(
    acc: F32,
    code: U8,
    value: npt.NDArray[Any],
    weight: float = 1.0,
    *,
    kind: ValueName = "float32",
    scale: F32 | None = None,
) -> None:
    """Add ``weight * value[i]`` to ``acc`` at position i of those that ``code`` stands for.

    Neither positions nor values are materialised, but for a block of 512. Releases the GIL. Any
    bytes are safe: what would lead outside ``acc`` is refused first. Positions that do not ascend,
    which :func:`aiops.kernels.check_index` finds, are added as they stand.

    Args:
        acc: float32, shape (n,), C-contiguous, writable. One shard's accumulator.
        code: uint8, shape (index_bytes(k, n),). What ``encode_index`` made of k positions.
        value: Shape (k,); float32, 16-bit floats as uint16, or int8.
        weight: Merge weight of this push, dimensionless; rounded to float32.
        kind: What the values are.
        scale: As for :func:`scatter_add`.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``kind`` is unknown, lengths do not fit, arrays overlap, the weight is not
            finite, or ``code`` is no code of k positions below n. ``acc`` is untouched.
    """
    n = _check.vector("acc", acc, FLOAT32, written=True)
    number, scales = _values(acc, value, kind, scale)
    k = value.size
    if not k <= n <= MOST_VALUES:
        raise ValueError(f"there are {k} values for {n} positions, which may be {k} to 2**32")
    size = _backend.index.index_bytes(k, n)
    _check.vector("code", code, UINT8, length=size, like=f"as {k} positions below {n} need")
    _check.apart("acc", acc, "code", code)
    wrong = _backend.sparse.scatter_add_coded(
        acc, code, k, value.view(np.uint8), number, scales, _check.weight(weight)
    )
    require(wrong, k, n)


def gather(x: F32, index: U32, *, out: F32 | None = None) -> F32:
    """Look up ``x[index[i]]`` for every i.

    Releases the GIL.

    Args:
        x: float32, shape (n,), C-contiguous. Read only.
        index: uint32, shape (k,). Positions in ``x``, in any order.
        out: float32, shape (k,). Receives the values; a fresh array if absent.

    Returns:
        ``out``, or the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``index`` and ``out`` differ in length, or arrays overlap.
        IndexError: An index is >= n; the message names its position. ``out`` is untouched.
    """
    n = _check.vector("x", x, FLOAT32)
    k = _check.vector("index", index, UINT32)
    if out is None:
        out = np.empty(k, np.float32)
    else:
        _check.vector("out", out, FLOAT32, length=k, like="as in index", written=True)
        _check.apart("out", out, "x", x)
        _check.apart("out", out, "index", index)
    bad = _backend.sparse.gather(x, index, out)
    if bad >= 0:
        raise IndexError(f"index[{bad}] is {index[bad]}, x has {n} values")
    return out


def merge_sparse(
    indices: Sequence[U32],
    values: Sequence[F32],
    weights: Sequence[float],
    n: int,
    *,
    index: U32,
    value: F32,
) -> int:
    """Sum sparse vectors: every position that occurs, ascending, with its weighted sum.

    ``value`` at a position is ``0 + weights[0] * values[0][..] + weights[1] * ...``, added in the
    order of the vectors and rounded after each step. Releases the GIL.

    Args:
        indices: uint32 vectors, strictly ascending, below ``n``. Read only.
        values: float32 vectors, each as long as its positions. Read only.
        weights: One finite weight per vector, rounded to float32. Nothing is normalised here.
        n: One more than the largest position may be, at most 2**32.
        index: uint32, at least as long as all ``indices`` together. Receives the positions.
        value: float32, as long as ``index``. Receives the sums.

    Returns:
        How many positions there are: so many first elements of ``index`` and ``value`` are the
        result, the rest has no meaning.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: Numbers or lengths do not fit, an output overlaps another array, a weight is not
            finite, or a position is not above the one before it or not below ``n``. The outputs are
            untouched.
        MemoryError: There are not 660 KB of scratch.
    """
    sources = tuple(zip(indices, values, strict=True))
    factors = [_check.weight(weight, f"weights[{i}]") for i, weight in enumerate(weights)]
    if len(factors) != len(sources):
        raise ValueError(f"there are {len(factors)} weights, the vectors are {len(sources)}")
    if not 0 <= n <= MOST_VALUES:
        raise ValueError(f"n is {n}, it must be between 0 and {MOST_VALUES}")
    room = _check.vector("index", index, UINT32, written=True)
    _check.vector("value", value, FLOAT32, length=room, like="as in index", written=True)
    _check.apart("value", value, "index", index)
    for i, (positions, numbers) in enumerate(sources):
        names = f"indices[{i}]", f"values[{i}]"
        k = _check.vector(names[0], positions, UINT32)
        _check.vector(names[1], numbers, FLOAT32, length=k, like=f"as in {names[0]}")
        for name, array in zip(names, (positions, numbers), strict=True):
            _check.apart("index", index, name, array)
            _check.apart("value", value, name, array)
    total = sum(positions.size for positions, _ in sources)
    if room < total:
        raise ValueError(f"index has {room} values, {total} may be needed")
    at, place = _backend.sparse_merge.merge_sparse(
        tuple(indices), tuple(values), np.array(factors, np.float32), n, index, value
    )
    if at < 0:
        return place
    raise ValueError(
        f"indices[{at}][{place}] is {indices[at][place]}, "
        f"it must be {'above the one before it and ' if place else ''}below {n}"
    )


# The number of a kind, and its scales, of values that fit them.
def _values(acc: F32, value: npt.NDArray[Any], kind: str, scale: F32 | None) -> tuple[int, F32]:
    if kind not in _KINDS:
        raise ValueError(f"kind is {kind!r}, it must be one of {', '.join(_KINDS)}")
    number, dtype = _KINDS[kind]
    k = _check.vector("value", value, dtype)
    _check.apart("acc", acc, "value", value)
    if kind != "int8":
        if scale is not None:
            raise ValueError(f"scale is given, {kind} values have none")
        return number, _NO_SCALE
    if scale is None:
        raise ValueError("scale is missing, int8 values need one for each 4096 of them")
    blocks = -(-k // INT8_BLOCK)
    _check.vector("scale", scale, FLOAT32, length=blocks, like=f"one for each 4096 of {k} values")
    _check.apart("acc", acc, "scale", scale)
    return number, scale
