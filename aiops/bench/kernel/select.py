"""Exact selection by magnitude, alone, with error feedback, and as a whole compressed push."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from aiops import kernels
from aiops.bench.kernel.base import Array, Contenders, Data, KernelCase, torch
from aiops.bench.kernel.index import varint
from aiops.codec.topk_coded import topk_fp16

SIZES = (1_000_000, 10_000_000, 100_000_000)
WORST_SIZES = (1_000_000, 10_000_000)
PUSH_SIZES = (25_000_000,)


def cases(data: Data) -> Iterator[KernelCase]:
    """Yield the choice at three densities and the step of error feedback."""
    n = data.n
    for density, numpy_goal, torch_goal, bound in (
        (0.001, data.by_size(12, 18, 20), data.by_size(20, 50, 54), 1.2),
        (0.01, data.by_size(9, 16, 16), data.by_size(37, 70, 80), 1.6 if n <= 1e6 else 1.4),
        (0.1, data.by_size(6, 12, 11), ">= 32", 3 if n <= 1e6 else 2.5),
    ):
        yield KernelCase(
            f"select_topk {density:g}",
            lambda k=int(n * density): topk(data, data.normal(), k),  # type: ignore[misc]
            {"numpy": numpy_goal, "torch": torch_goal, "ours": f"<= {bound:g}"},
        )
    yield KernelCase(
        "feedback_topk 0.01",
        lambda: feedback(data, n // 100, apart=False),
        {"numpy": data.by_size(5, 8, 8), "torch": ">= 22", "ours": "<= 1.3"},
    )
    if n <= SIZES[1]:
        yield KernelCase(
            "feedback_topk 0.01 into another vector", lambda: feedback(data, n // 100, apart=True)
        )


def worst(data: Data) -> Iterator[KernelCase]:
    """Yield the vectors that are hardest to choose from."""
    kinds: dict[str, Callable[[], Array]] = {
        "0.01, constant": lambda: np.full(data.n, 0.5, np.float32),
        "0.001, 99.5 % zeros": lambda: _zeros_but(data, 0.005),
        "0.01, more than are not zero": lambda: _zeros_but(data, 0.005),
        # Half a percent is above.
        "0.01, ties at the threshold": lambda: np.where(
            data.normal() < 2.576, np.float32(1), data.normal()
        ),
        "0.01, sorted": lambda: np.sort(data.normal()),
        "0.01, one outlier": lambda: _outlier(data.own()),
    }
    for name, make in kinds.items():
        k = int(data.n * float(name.partition(",")[0]))
        yield KernelCase(
            f"select_topk {name}",
            lambda make=make, k=k: topk(data, make(), k),  # type: ignore[misc]
            {"numpy": ">= 1", "ours": "<= 4"},
        )


def push(data: Data) -> Iterator[KernelCase]:
    """Yield a whole compressed push."""
    yield KernelCase(
        "compress 0.01 (feedback, select, index code, fp16)",
        lambda: compress(data, 0.01),
        {"numpy": ">= 8", "torch": ">= 30"},
    )


def topk(data: Data, x: Array, k: int) -> Contenders:
    """Find the k largest magnitudes."""
    index, value = np.empty(k, np.uint32), np.empty(k, np.float32)
    cut = x.size - k
    found: Contenders = {
        "ours": lambda: kernels.select_topk(x, k, index=index, value=value),
        "numpy": lambda: np.argpartition(np.abs(x), cut)[cut:],
    }
    if torch is not None:
        tensor, select = torch.from_numpy(x), torch.topk
        found["torch"] = lambda: select(tensor.abs(), k, sorted=False)
    return found | data.read(x)


def feedback(data: Data, k: int, *, apart: bool) -> Contenders:
    """Add an update to what was left behind and move the k largest sums out; the libraries in three passes."""
    update, ours, theirs, plain = data.normal(1), data.own(), data.own(), data.own()
    index, value = np.empty(k, np.uint32), np.empty(k, np.float32)
    out, rest, written = (
        (data.zeros(), data.zeros(), data.zeros()) if apart else (ours, theirs, plain)
    )

    def numpy_passes() -> object:
        np.add(theirs, update, out=rest)
        chosen = np.argpartition(np.abs(rest), -k)[-k:]
        moved = rest[chosen]
        rest[chosen] = 0
        return moved

    found: Contenders = {
        "ours": lambda: kernels.feedback_topk(ours, update, k, out=out, index=index, value=value),
        "numpy": numpy_passes,
    }
    if torch is not None:
        library, tensor, added = torch, torch.from_numpy(data.own()), torch.from_numpy(update)
        result = torch.zeros_like(tensor) if apart else tensor

        def torch_passes() -> object:
            library.add(tensor, added, out=result)
            chosen = library.topk(result.abs(), k, sorted=False).indices
            moved = result[chosen]
            result[chosen] = 0
            return moved

        found["torch"] = torch_passes
    return found | data.stream([written], [plain, update])


def compress(data: Data, density: float) -> Contenders:
    """Make a push of few bytes: ours is the codec, the libraries write a varint of the gaps."""
    update, k, codec = data.normal(1), int(data.n * density), topk_fp16(density)
    residuals = [data.zeros(), data.zeros()]
    theirs = data.zeros()

    def ours() -> object:
        parts, rest = codec.encode(update, residuals[0], spare=residuals[1])
        assert rest is residuals[1]
        residuals.reverse()
        return parts

    def numpy_passes() -> object:
        np.add(theirs, update, out=theirs)
        index = np.sort(np.argpartition(np.abs(theirs), -k)[-k:])
        moved = theirs[index]
        half = moved.astype(np.float16)
        theirs[index] = moved - half
        return varint(index.astype(np.uint32)), half

    found: Contenders = {"ours": ours, "numpy": numpy_passes}
    if torch is not None:
        tensor, added, library = torch.from_numpy(data.zeros()), torch.from_numpy(update), torch

        def torch_passes() -> object:
            tensor.add_(added)
            index = library.topk(tensor.abs(), k, sorted=False).indices.sort().values
            moved = tensor[index]
            half = moved.to(library.float16)
            tensor[index] = moved - half
            return varint(index.numpy().astype(np.uint32)), half

        found["torch"] = torch_passes
    return found


# All but a share is zero.
def _zeros_but(data: Data, share: float) -> Array:
    x = data.zeros()
    index = data.positions(share)
    x[index] = data.normal()[index]
    return x


def _outlier(x: Array) -> Array:
    x[x.size // 3] = 1e30
    return x
