"""Dense float32: merging, stepping, swapping and checking, beside what the memory allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from aiops import kernels
from aiops.bench.kernel.base import FACTOR, WEIGHT, Array, Contenders, Data, KernelCase, torch

SIZES = (1_000_000, 10_000_000)
LERP_SIZES = (1_000_000, 10_000_000, 100_000_000)

CHUNK = 65_536  # values; 256 KiB, as a push is received
RATE, BETA = 1e-3, 0.9

# No slower than the best library, and hardly slower than the memory.
AS_TORCH = {"torch": ">= 1", "ours": "<= 1.1"}


def cases(data: Data) -> Iterator[KernelCase]:
    """Yield everything but the interpolation."""
    yield KernelCase("weighted_add", lambda: weighted_add(data))
    yield KernelCase("merge, 2 pushes", lambda: merge(data, 2))
    yield KernelCase(
        "merge, 8 pushes",
        lambda: merge(data, 8),
        {"numpy": ">= 5", "torch": ">= 2.1", "torch mv": ">= 1.05", "ours": "<= 1.1"},
    )
    yield KernelCase("merge_checked by chunks", lambda: merge_chunks(data))
    yield KernelCase("swap_update", lambda: swap_update(data), AS_TORCH)
    yield KernelCase("sgd", lambda: sgd(data), AS_TORCH | {"torch fused": ">= 1"})
    yield KernelCase("momentum", lambda: momentum(data), {"torch fused": ">= 1", "ours": "<= 1.1"})
    yield KernelCase("copy_checked", lambda: copy_checked(data))
    yield KernelCase("first_nonfinite", lambda: first_nonfinite(data))


def interpolation(data: Data) -> Iterator[KernelCase]:
    """Yield the interpolation."""
    yield KernelCase("lerp", lambda: lerp(data), AS_TORCH)


def weighted_add(data: Data) -> Contenders:
    """Add w * x to an accumulator."""
    acc, x = data.zeros(), data.normal()
    found: Contenders = {
        "ours": lambda: kernels.weighted_add(acc, x, WEIGHT),
        "numpy": lambda: np.add(acc, FACTOR * x, out=acc),
    }
    if torch is not None:
        total, tensor = torch.from_numpy(acc), torch.from_numpy(x)
        found["torch"] = lambda: total.add_(tensor, alpha=WEIGHT)
    return found | data.stream([acc], [acc, x])


def lerp(data: Data) -> Contenders:
    """Move x towards y."""
    x, y = data.own(0), data.normal(1)
    found: Contenders = {
        "ours": lambda: kernels.lerp(x, y, WEIGHT),
        "numpy": lambda: np.add(x, FACTOR * (y - x), out=x),
    }
    if torch is not None:
        here, there = torch.from_numpy(x), torch.from_numpy(y)
        found["torch"] = lambda: here.lerp_(there, WEIGHT)
    return found | data.stream([x], [x, y])


def merge(data: Data, count: int) -> Contenders:
    """Write a weighted sum of some vectors."""
    stack = np.stack([data.normal(number) for number in range(count)])
    arrays, weights, out = list(stack), [WEIGHT] * count, data.zeros()

    def by_numpy() -> None:
        out[:] = 0
        for array in arrays:
            np.add(out, FACTOR * array, out=out)

    found: Contenders = {
        "ours": lambda: kernels.merge(arrays, weights, out=out),
        "numpy": by_numpy,
    }
    if torch is not None:
        total, tensors = torch.from_numpy(out), [torch.from_numpy(array) for array in arrays]
        columns, factors, multiply = (
            torch.from_numpy(stack).T, torch.full((count,), WEIGHT), torch.mv,
        )  # fmt: skip

        def by_torch() -> None:
            total.zero_()
            for tensor in tensors:
                total.add_(tensor, alpha=WEIGHT)

        found["torch"] = by_torch
        found["torch mv"] = lambda: multiply(columns, factors, out=total)
    return found | data.stream([out], arrays)


def merge_chunks(data: Data) -> Contenders:
    """Merge one push that comes in by chunks: it stays in the second-level cache, the rest does not.

    The peers check nothing.
    """
    base, x, out = data.normal(1), data.normal(0)[:CHUNK], data.zeros()
    parts = [
        (base[at : at + CHUNK], x[: base.size - at], out[at : at + CHUNK])
        for at in range(0, base.size, CHUNK)
    ]

    def ours() -> None:
        for old, chunk, new in parts:
            kernels.merge_checked(old, (chunk,), (WEIGHT,), out=new, bypass=True)

    def by_numpy() -> None:
        for old, chunk, new in parts:
            np.add(old, FACTOR * chunk, out=new)

    found: Contenders = {"ours": ours, "numpy": by_numpy}
    if torch is not None:
        tensors, add = [tuple(map(torch.from_numpy, part)) for part in parts], torch.add

        def by_torch() -> None:
            for old, chunk, new in tensors:
                add(old, chunk, alpha=WEIGHT, out=new)

        found["torch"] = by_torch
    return found | data.stream([out], [base])


def swap_update(data: Data) -> Contenders:
    """Write x - base, then put a new model in the place of both."""
    x, base, new, out = data.own(0), data.own(1), data.normal(2), data.zeros()

    def by_numpy() -> None:
        np.subtract(x, base, out=out)
        x[:] = new
        base[:] = new

    found: Contenders = {
        "ours": lambda: kernels.swap_update(x, base, new, out=out),
        "numpy": by_numpy,
    }
    if torch is not None:
        here, start, fresh, update = map(torch.from_numpy, (x, base, new, out))
        subtract = torch.sub

        def by_torch() -> None:
            subtract(here, start, out=update)
            here.copy_(fresh)
            start.copy_(fresh)

        found["torch"] = by_torch
    return found | data.stream([out, x, base], [x, base, new])


def sgd(data: Data) -> Contenders:
    """Take a step."""
    params, update = data.own(0), data.normal(1)
    rate = np.float32(RATE)
    found: Contenders = {
        "ours": lambda: kernels.sgd(params, update, rate=RATE, out=params),
        "numpy": lambda: np.add(params, rate * update, out=params),
    }
    if torch is not None:
        tensor, gradient = torch.from_numpy(params), torch.from_numpy(update)
        found["torch"] = lambda: tensor.add_(gradient, alpha=RATE)
        found["torch fused"] = _torch_step(params, update, momentum=0)
    return found | data.stream([params], [params, update])


def momentum(data: Data) -> Contenders:
    """Take a step with momentum."""
    params, velocity, update = data.own(0), data.zeros(), data.normal(1)
    rate, beta = np.float32(RATE), np.float32(BETA)

    def by_numpy() -> None:
        np.add(beta * velocity, update, out=velocity)
        np.add(params, rate * velocity, out=params)

    found: Contenders = {
        "ours": lambda: kernels.momentum(
            params, velocity, update, rate=RATE, beta=BETA, out=params
        ),
        "numpy": by_numpy,
    }
    if torch is not None:
        found["torch fused"] = _torch_step(params, update, momentum=BETA)
    return found | data.stream([params, velocity], [params, velocity, update])


def copy_checked(data: Data) -> Contenders:
    """Copy, and tell whether all is finite."""
    x, out = data.normal(), data.zeros()

    def by_numpy() -> object:
        np.copyto(out, x)
        return np.isfinite(out).all()

    found: Contenders = {"ours": lambda: kernels.copy_checked(x, out=out), "numpy": by_numpy}
    return found | data.stream([out], [x])


def first_nonfinite(data: Data) -> Contenders:
    """Tell whether all is finite."""
    x = data.normal()
    found: Contenders = {
        "ours": lambda: kernels.first_nonfinite(x),
        "numpy": lambda: np.isfinite(x).all(),
    }
    if torch is not None:
        tensor, finite = torch.from_numpy(x), torch.isfinite
        found["torch"] = lambda: finite(tensor).all()
    return found | data.read(x)


def _torch_step(params: Array, update: Array, *, momentum: float) -> Callable[[], object]:
    assert torch is not None
    weights = torch.nn.Parameter(torch.from_numpy(params))
    weights.grad = torch.from_numpy(update)
    # Ours adds updates, which point downhill.
    options = {"lr": RATE, "momentum": momentum, "fused": True, "maximize": True}
    optimizer = torch.optim.SGD([weights], **options)
    return lambda: optimizer.step()
