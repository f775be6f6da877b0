"""Kernels against numpy and torch, one thread each: ``python -m benchmarks.kernels [name ...]``.

A ratio above 1 says how many times as long the library takes for the same result.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from aiops import kernels
from benchmarks import _sparse
from benchmarks._harness import Spread, interleave, machine, speedup

try:
    import torch
except ImportError:  # the core does not need it
    torch = None

Contenders = dict[str, Callable[[], object]]
WEIGHT = 0.3
DENSITIES = (0.001, 0.01, 0.1)


def topk(x: np.ndarray, k: int) -> Contenders:
    index, value = np.empty(k, np.uint32), np.empty(k, np.float32)
    cut = x.size - k
    found: Contenders = {
        "ours": lambda: kernels.select_topk(x, k, index=index, value=value),
        "numpy": lambda: np.argpartition(np.abs(x), cut)[cut:],
        # The least that any selection does: look at every value once.
        "read": lambda: kernels.first_nonfinite(x),
    }
    if torch:
        tensor = torch.from_numpy(x)
        found["torch"] = lambda: torch.topk(tensor.abs(), k, sorted=False)
    return found


def scatter_add(acc: np.ndarray, index: np.ndarray, value: np.ndarray) -> Contenders:
    found: Contenders = {
        "ours": lambda: kernels.scatter_add(acc, index, value, WEIGHT),
        "numpy": lambda: np.add.at(acc, index, np.float32(WEIGHT) * value),
    }
    if torch:
        dense, values = torch.from_numpy(acc), torch.from_numpy(value)
        wide = torch.from_numpy(index.astype(np.int64))
        found["torch"] = lambda: dense.index_add_(0, wide, values, alpha=WEIGHT)
    return found


def gather(x: np.ndarray, index: np.ndarray, out: np.ndarray) -> Contenders:
    found: Contenders = {
        "ours": lambda: kernels.gather(x, index, out=out),
        "numpy": lambda: np.take(x, index, out=out, mode="clip"),
    }
    if torch:
        dense, values = torch.from_numpy(x), torch.from_numpy(out)
        wide = torch.from_numpy(index.astype(np.int64))
        found["torch"] = lambda: torch.index_select(dense, 0, wide, out=values)
    return found


def weighted_add(acc: np.ndarray, x: np.ndarray) -> Contenders:
    found: Contenders = {
        "ours": lambda: kernels.weighted_add(acc, x, WEIGHT),
        "numpy": lambda: np.add(acc, np.float32(WEIGHT) * x, out=acc),
    }
    if torch:
        total, tensor = torch.from_numpy(acc), torch.from_numpy(x)
        found["torch"] = lambda: total.add_(tensor, alpha=WEIGHT)
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


def swap_update(x: np.ndarray, base: np.ndarray, new: np.ndarray, out: np.ndarray) -> Contenders:
    def numpy_passes() -> None:
        np.subtract(x, base, out=out)
        x[:] = new
        base[:] = new

    return {"ours": lambda: kernels.swap_update(x, base, new, out=out), "numpy": numpy_passes}


def first_nonfinite(x: np.ndarray) -> Contenders:
    found: Contenders = {
        "ours": lambda: kernels.first_nonfinite(x),
        "numpy": lambda: np.isfinite(x).all(),
    }
    if torch:
        tensor = torch.from_numpy(x)
        found["torch"] = lambda: torch.isfinite(tensor).all()
    return found


def half(x: np.ndarray, acc: np.ndarray, kind: str) -> dict[str, Contenders]:
    bits, back = kernels.to_half(x, kind), np.empty_like(x)
    to: Contenders = {"ours": lambda: kernels.to_half(x, kind, out=bits)}
    back_again: Contenders = {"ours": lambda: kernels.from_half(bits, kind, out=back)}
    add: Contenders = {"ours": lambda: kernels.add_half(acc, bits, WEIGHT, kind)}
    if kind == "float16":
        small, factor = bits.view(np.float16), np.float32(WEIGHT)
        to["numpy"] = lambda: np.copyto(small, x, casting="unsafe")
        back_again["numpy"] = lambda: np.copyto(back, small)
        add["numpy"] = lambda: np.add(acc, factor * small.astype(np.float32), out=acc)
    if torch:
        halves = torch.from_numpy(bits).view(getattr(torch, kind))
        wide, result, total = (torch.from_numpy(array) for array in (x, back, acc))
        to["torch"] = lambda: halves.copy_(wide)
        back_again["torch"] = lambda: result.copy_(halves)
        add["torch"] = lambda: total.add_(halves, alpha=WEIGHT)
    return {f"to_half {kind}": to, f"from_half {kind}": back_again, f"add_half {kind}": add}


def cases(n: int) -> Iterator[tuple[str, Contenders]]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n, dtype=np.float32) for _ in range(8)]
    x, acc = arrays[0], np.zeros(n, np.float32)
    for density in DENSITIES:
        yield f"topk {density:g}", topk(x, int(n * density))
    ties = {
        "99.5 % zeros": x * (rng.random(n) < 0.005),
        "constant": np.full(n, 0.5),
        "two values": np.where(rng.random(n) < 0.3, 1, 2),
    }
    for label, tied in ties.items():
        yield f"topk 0.01 {label}", topk(tied.astype(np.float32), n // 100)
    for density in DENSITIES[1:]:
        index = np.sort(rng.choice(n, int(n * density), replace=False)).astype(np.uint32)
        value = rng.standard_normal(index.size, dtype=np.float32)
        yield f"scatter_add {density:g}", scatter_add(acc, index, value)
        yield f"gather {density:g}", gather(x, index, value)
    yield from _sparse.cases(acc, DENSITIES)
    yield "weighted_add", weighted_add(acc, x)
    for count in (2, 8):
        yield f"merge {count}", merge(acc, arrays[:count])
    yield "swap_update", swap_update(*arrays[:3], acc)
    yield "first_nonfinite", first_nonfinite(x)
    for kind in ("float16", "bfloat16"):
        yield from half(x, acc, kind).items()


def column(spread: Spread | None) -> str:
    text = f"{spread.median:6.2f} ({spread.q25:.2f}-{spread.q75:.2f})" if spread else f"{'-':>6}"
    return f"{text:<21}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="*", help="only cases whose name holds one of these")
    parser.add_argument("--n", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--passes", type=int, default=11)
    options = parser.parse_args()
    if torch:
        torch.set_num_threads(1)
    print(f"{machine()}; kernels on {kernels.simd_level()}; numpy {np.__version__}", end="")
    print(f", torch {torch.__version__}" if torch else ", no torch")
    print("times as long as ours: median (quartiles) of interleaved passes\n")
    print(f"{'':<28}{'n':>9}{'ours ms':>10}   {'numpy':<21} {'torch':<21} read pass")
    for n in options.n:
        for name, contenders in cases(n):
            if options.name and not any(part in name for part in options.name):
                continue
            times = interleave(contenders, passes=options.passes)
            ours = times["ours"]
            ratios = [
                column(speedup(ours, times[peer]) if peer in times else None)
                for peer in ("numpy", "torch", "read")
            ]
            name, _, remark = name.partition(" (")
            print(
                f"{name:<28}{n:>9}{Spread.of(ours).median * 1e3:>10.3f}  ",
                *ratios,
                remark.rstrip(")"),
            )


if __name__ == "__main__":
    main()
