"""Checked faces of optimizer steps on a flat model: an update goes in, new parameters come out.

An update points downhill already (params - base after local steps), so ``rate`` has no minus sign.
Hand in a negative one for a gradient.
"""

from __future__ import annotations

from aiops.kernels import _backend, _check
from aiops.kernels._check import F32, FLOAT32


def sgd(params: F32, update: F32, *, rate: float, out: F32, bypass: bool = False) -> int:
    """Write ``params + rate * update`` to ``out`` and say where it is not finite, in one pass.

    Product and sum are rounded one after the other (no FMA), as numpy does it. All values are
    written even if one is not finite. Releases the GIL.

    Args:
        params: float32, shape (n,), C-contiguous. Read only, unless it is ``out`` itself.
        update: float32, shape (n,). Read only.
        rate: Learning rate, dimensionless; rounded to float32.
        out: float32, shape (n,), writable. Receives the new parameters.
        bypass: Whether to write past the caches: right for a piece of a vector that is larger than
            they are. A call that exceeds them by itself does so anyway.

    Returns:
        The position of the first result that is NaN or infinite, or -1.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: Lengths differ, ``out`` overlaps ``update`` or part of ``params``, or ``rate``
            is not finite.
    """
    n = _check.vector("params", params, FLOAT32)
    _check.vector("update", update, FLOAT32, length=n, like="as in params")
    _check.vector("out", out, FLOAT32, length=n, like="as in params", written=True)
    if params is not out:
        _check.apart("out", out, "params", params, same=True)
    _check.apart("out", out, "update", update)
    return _backend.optimizer.sgd(params, update, _check.weight(rate, "rate"), out, bypass)


def momentum(
    params: F32,
    velocity: F32,
    update: F32,
    *,
    rate: float,
    beta: float,
    nesterov: bool = False,
    out: F32,
    bypass: bool = False,
) -> int:
    """Step along a velocity: ``velocity = beta * velocity + update; out = params + rate * step``.

    The step is the velocity (Polyak, 1964) or, with ``nesterov``, ``update + beta * velocity``
    (Nesterov, 1983, in the form of Sutskever et al., 2013). One pass; every operation is rounded by
    itself (no FMA), as numpy does it. All values are written even if one is not finite. Releases
    the GIL.

    Args:
        params: float32, shape (n,), C-contiguous. Read only, unless it is ``out`` itself.
        velocity: float32, shape (n,), writable. Read, then written.
        update: float32, shape (n,). Read only.
        rate: Learning rate, dimensionless; rounded to float32.
        beta: Share of the velocity that stays, usually 0.9; rounded to float32.
        nesterov: Whether to look ahead.
        out: float32, shape (n,), writable. Receives the new parameters.
        bypass: Whether to write ``out`` past the caches: right for a piece of a vector that is
            larger than they are. A call that exceeds them by itself does so anyway.

    Returns:
        The position of the first value of ``out`` that is NaN or infinite, or -1.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: Lengths differ, an output overlaps another array (only ``params`` may be
            ``out`` itself), or ``rate`` or ``beta`` is not finite.
    """
    n = _check.vector("params", params, FLOAT32)
    _check.vector("velocity", velocity, FLOAT32, length=n, like="as in params", written=True)
    _check.vector("update", update, FLOAT32, length=n, like="as in params")
    _check.vector("out", out, FLOAT32, length=n, like="as in params", written=True)
    if params is not out:
        _check.apart("out", out, "params", params, same=True)
    _check.apart("out", out, "velocity", velocity)
    _check.apart("out", out, "update", update)
    _check.apart("velocity", velocity, "params", params)
    _check.apart("velocity", velocity, "update", update)
    step, share = _check.weight(rate, "rate"), _check.weight(beta, "beta")
    return _backend.optimizer.momentum(params, velocity, update, step, share, nesterov, out, bypass)
