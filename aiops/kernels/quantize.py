"""Checked faces of the 8-bit kernels: blocks of 4096 codes that share one float32 scale.

A block's scale is the largest magnitude in it, divided by 127. A value's code is
``rint(value / scale)``: the quotient correctly rounded to float32, then to the nearest integer, half
to even; it lies in -127..127. A code stands for ``scale * code``, rounded to float32. A scale below
the smallest normal float32 (1.2e-38) becomes 0, with codes 0; one so large that 127 times it would
be infinite becomes the next smaller float.
"""

from __future__ import annotations

from aiops.kernels import _backend, _check
from aiops.kernels._check import F32, FLOAT32, I8, INT8

INT8_BLOCK = 4096
"""Values that share a scale; the last block may be shorter."""


def to_int8(
    x: F32, *, scales: F32, codes: I8, residual: F32 | None = None, left: F32 | None = None
) -> int:
    """Encode float32 as 8-bit codes, with or without error feedback, in one pass.

    With ``residual`` it is ``x + residual`` that is encoded, and ``left`` receives what the codes
    lose: the sum minus what they stand for. That difference is exact, so decoded values plus
    ``left`` give ``x + residual`` in float32, bit for bit. The loss is at most half a scale, 1/254
    of the block's largest magnitude. Releases the GIL.

    Args:
        x: float32, shape (n,), C-contiguous. Read only.
        scales: float32, shape (ceil(n / 4096),), writable. Receives the scales, finite and >= 0.
        codes: int8, shape (n,), writable. Receives the codes.
        residual: float32, shape (n,). Read only, unless it is ``left`` itself.
        left: float32, shape (n,), writable. Receives the next residual; there if ``residual`` is.

    Returns:
        -1, or the position of the first value (or sum) that is NaN or infinite. Then the outputs
        hold no encoding.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: Lengths do not fit, an output is read-only or overlaps another array, or only
            one of ``residual`` and ``left`` is there.
    """
    n = _check.vector("x", x, FLOAT32)
    _coded(scales, codes, n, "as in x", written=True)
    inputs = [("x", x)]
    if residual is not None and left is not None:
        _check.vector("residual", residual, FLOAT32, length=n, like="as in x")
        _check.vector("left", left, FLOAT32, length=n, like="as in x", written=True)
        _check.apart("left", left, "x", x)
        if left is not residual:
            _check.apart("left", left, "residual", residual, same=True)
        inputs += [("residual", residual), ("left", left)]
    elif residual is not None or left is not None:
        raise ValueError("residual and left go together, only one of them is there")
    for name, values in inputs:
        _check.apart("scales", scales, name, values)
        _check.apart("codes", codes, name, values)
    return _backend.quantize.to_int8(x, residual, scales, codes, left)


def add_int8(acc: F32, scales: F32, codes: I8, weight: float = 1.0) -> None:
    """Add ``weight`` times the values that the codes stand for to ``acc``, in place.

    Nothing is materialised in between, and the result is that of decoding first. Releases the GIL.

    Args:
        acc: float32, shape (n,), C-contiguous, writable. One shard's accumulator.
        scales: float32, shape (ceil(n / 4096),). Read only.
        codes: int8, shape (n,). Read only.
        weight: Merge weight of this push, dimensionless; rounded to float32.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: Lengths do not fit, ``acc`` overlaps another array, or the weight is not finite.
    """
    n = _check.vector("acc", acc, FLOAT32, written=True)
    _coded(scales, codes, n, "as in acc")
    _check.apart("acc", acc, "scales", scales)
    _check.apart("acc", acc, "codes", codes)
    _backend.quantize.add_int8(acc, scales, codes, _check.weight(weight))


def first_code(codes: I8, code: int) -> int:
    """Return the position of the first value ``code``, or -1 if there is none.

    One pass that stops there. Releases the GIL.

    Args:
        codes: int8, shape (n,), C-contiguous. Read only.
        code: What is looked for, in -128..127.

    Raises:
        TypeError: ``codes`` is no numpy array or not int8.
        ValueError: ``codes`` is not a contiguous vector, or ``code`` is out of range.
    """
    _check.vector("codes", codes, INT8)
    if not -128 <= code <= 127:
        raise ValueError(f"code is {code}, it must be in -128..127")
    return _backend.quantize.first_code(codes, code)


def _coded(scales: F32, codes: I8, n: int, like: str, *, written: bool = False) -> None:
    blocks = -(-n // INT8_BLOCK)
    which = f"which is one for every {INT8_BLOCK} of {n}"
    _check.vector("scales", scales, FLOAT32, length=blocks, like=which, written=written)
    _check.vector("codes", codes, INT8, length=n, like=like, written=written)
    if written:
        _check.apart("scales", scales, "codes", codes)
