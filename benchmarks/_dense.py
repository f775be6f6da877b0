"""The dense float32 kernels beside what numpy and torch do for the same result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aiops import kernels

try:
    import torch
except ImportError:  # the core does not need it
    torch = None

Contenders = dict[str, Callable[[], object]]
WEIGHT = 0.3
CHUNK = 65536  # values; 256 KiB, as a push is received


def weighted_add(acc: np.ndarray, x: np.ndarray) -> Contenders:
    found: Contenders = {
        "ours": lambda: kernels.weighted_add(acc, x, WEIGHT),
        "numpy": lambda: np.add(acc, np.float32(WEIGHT) * x, out=acc),
    }
    if torch:
        total, tensor = torch.from_numpy(acc), torch.from_numpy(x)
        found["torch"] = lambda: total.add_(tensor, alpha=WEIGHT)
    return found


def lerp(x: np.ndarray, y: np.ndarray) -> Contenders:
    found: Contenders = {
        "ours": lambda: kernels.lerp(x, y, WEIGHT),
        "numpy": lambda: np.add(x, np.float32(WEIGHT) * (y - x), out=x),
    }
    if torch:
        here, there = torch.from_numpy(x), torch.from_numpy(y)
        found["torch"] = lambda: here.lerp_(there, WEIGHT)
    return found


def merge(out: np.ndarray, arrays: list[np.ndarray]) -> Contenders:
    def numpy_loop() -> None:
        out[:] = 0
        for array in arrays:
            np.add(out, np.float32(WEIGHT) * array, out=out)

    def torch_loop() -> None:
        total.zero_()
        for tensor in tensors:
            total.add_(tensor, alpha=WEIGHT)

    weights = [WEIGHT] * len(arrays)
    found: Contenders = {
        "ours": lambda: kernels.merge(arrays, weights, out=out),
        "numpy": numpy_loop,
    }
    if torch:
        total, tensors = torch.from_numpy(out), [torch.from_numpy(array) for array in arrays]
        found["torch"] = torch_loop
    return found


def merge_chunks(base: np.ndarray, x: np.ndarray, out: np.ndarray) -> Contenders:
    """One push that comes in by chunks: `x` stays in the second-level cache, the rest does not.

    The peers check nothing.
    """
    starts = range(0, base.size, CHUNK)
    parts = [(base[i : i + CHUNK], x[: base.size - i], out[i : i + CHUNK]) for i in starts]

    def ours() -> None:
        for old, chunk, new in parts:
            kernels.merge_checked(old, (chunk,), (WEIGHT,), out=new, bypass=True)

    def numpy_passes() -> None:
        for old, chunk, new in parts:
            np.add(old, np.float32(WEIGHT) * chunk, out=new)

    def torch_passes() -> None:
        for old, chunk, new in tensors:
            torch.add(old, chunk, alpha=WEIGHT, out=new)

    found: Contenders = {"ours": ours, "numpy": numpy_passes}
    if torch:
        tensors = [tuple(map(torch.from_numpy, part)) for part in parts]
        found["torch"] = torch_passes
    return found


def momentum(params: np.ndarray, velocity: np.ndarray, update: np.ndarray) -> Contenders:
    rate, beta = 1e-3, 0.9

    def numpy_passes() -> None:
        np.add(np.float32(beta) * velocity, update, out=velocity)
        np.add(params, np.float32(rate) * velocity, out=params)

    found: Contenders = {
        "ours": lambda: kernels.momentum(
            params, velocity, update, rate=rate, beta=beta, out=params
        ),
        "numpy": numpy_passes,
    }
    if torch:
        weights = torch.nn.Parameter(torch.from_numpy(params))
        weights.grad = torch.from_numpy(update)
        found["torch"] = torch.optim.SGD([weights], lr=rate, momentum=beta, fused=True).step
    return found


def swap_update(x: np.ndarray, base: np.ndarray, new: np.ndarray, out: np.ndarray) -> Contenders:
    def numpy_passes() -> None:
        np.subtract(x, base, out=out)
        x[:] = new
        base[:] = new

    def torch_passes() -> None:
        torch.sub(here, start, out=update)
        here.copy_(fresh)
        start.copy_(fresh)

    found: Contenders = {
        "ours": lambda: kernels.swap_update(x, base, new, out=out),
        "numpy": numpy_passes,
    }
    if torch:
        here, start, fresh, update = map(torch.from_numpy, (x, base, new, out))
        found["torch"] = torch_passes
    return found


def copy_checked(x: np.ndarray, out: np.ndarray) -> Contenders:
    def numpy_passes() -> None:
        np.copyto(out, x)
        np.isfinite(out).all()

    return {
        "ours": lambda: kernels.copy_checked(x, out=out),
        "numpy": numpy_passes,
        "read": lambda: np.copyto(out, x),
    }


def first_nonfinite(x: np.ndarray) -> Contenders:
    found: Contenders = {
        "ours": lambda: kernels.first_nonfinite(x),
        "numpy": lambda: np.isfinite(x).all(),
    }
    if torch:
        tensor = torch.from_numpy(x)
        found["torch"] = lambda: torch.isfinite(tensor).all()
    return found
