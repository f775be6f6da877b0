"""Steps of an optimizer, in numpy."""

from __future__ import annotations

import numpy as np

from aiops.kernels.reference._bits import F32
from aiops.kernels.reference.dense import first_nonfinite


def sgd(params: F32, update: F32, rate: float, out: F32, bypass: bool) -> int:
    """Write ``params + rate * update`` to ``out``.

    Args:
        params: float32, shape (n,). May be ``out`` itself.
        update: float32, shape (n,).
        rate: Factor of the update, rounded to float32.
        out: float32, shape (n,). Written.
        bypass: Has no effect here.

    Returns:
        The position of the first result that is NaN or infinite, or -1.
    """
    with np.errstate(all="ignore"):
        np.add(params, np.float32(rate) * update, out=out)
    return first_nonfinite(out)


def momentum(
    params: F32,
    velocity: F32,
    update: F32,
    rate: float,
    beta: float,
    nesterov: bool,
    out: F32,
    bypass: bool,
) -> int:
    """Write ``velocity = beta * velocity + update``, then ``out = params + rate * step``.

    Args:
        params: float32, shape (n,). May be ``out`` itself.
        velocity: float32, shape (n,). Read, then written.
        update: float32, shape (n,).
        rate: Factor of the step, rounded to float32.
        beta: Share of the velocity that stays, rounded to float32.
        nesterov: Whether the step is ``update + beta * velocity``, else ``velocity``.
        out: float32, shape (n,). Written.
        bypass: Has no effect here.

    Returns:
        The position of the first value of ``out`` that is NaN or infinite, or -1.
    """
    with np.errstate(all="ignore"):
        np.add(np.float32(beta) * velocity, update, out=velocity)
        step = update + np.float32(beta) * velocity if nesterov else velocity
    return sgd(params, step, rate, out, bypass)
