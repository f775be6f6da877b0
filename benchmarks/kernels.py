"""Kernels against numpy and torch, one thread each: ``python -m benchmarks.kernels [name ...]``.

A ratio above 1 says how many times as long the library takes for the same result.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from aiops import kernels
from benchmarks._dense import (
    CHUNK,
    WEIGHT,
    Contenders,
    copy_checked,
    first_nonfinite,
    lerp,
    merge,
    merge_chunks,
    momentum,
    swap_update,
    weighted_add,
)
from benchmarks._harness import Spread, interleave, machine, speedup

try:
    import torch
except ImportError:  # the core does not need it
    torch = None

DENSITIES = (0.001, 0.01, 0.1)


def topk(x: np.ndarray, k: int) -> Contenders:
    index, value = np.empty(k, np.uint32), np.empty(k, np.float32)
    cut = x.size - k
    found: Contenders = {
        "ours": lambda: kernels.select_topk(x, k, index=index, value=value),
        "numpy": lambda: np.argpartition(np.abs(x), cut)[cut:],
        # The least that any selection does: look at every value once.
        "bound": lambda: kernels.first_nonfinite(x),
    }
    if torch:
        tensor = torch.from_numpy(x)
        found["torch"] = lambda: torch.topk(tensor.abs(), k, sorted=False)
    return found


def feedback(residual: np.ndarray, update: np.ndarray, k: int, *, apart: bool) -> Contenders:
    def numpy_passes() -> None:
        own = residual + update if apart else np.add(theirs, update, out=theirs)
        index = np.argpartition(np.abs(own), -k)[-k:]
        own[index], _ = 0, own[index]

    def torch_passes() -> None:
        own = tensor + added if apart else tensor.add_(added)
        index = torch.topk(own.abs(), k, sorted=False).indices
        _ = own[index]
        own[index] = 0

    index, value = np.empty(k, np.uint32), np.empty(k, np.float32)
    ours, theirs, axpy = residual.copy(), residual.copy(), residual.copy()
    out = np.empty_like(residual) if apart else ours
    found: Contenders = {
        "ours": lambda: kernels.feedback_topk(ours, update, k, out=out, index=index, value=value),
        "numpy": numpy_passes,
        # The least that any step does: read both, write one.
        "bound": lambda: kernels.weighted_add(axpy, update, WEIGHT),
    }
    if torch:
        tensor, added = torch.from_numpy(residual.copy()), torch.from_numpy(update)
        found["torch"] = torch_passes
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


def int8(x: np.ndarray, acc: np.ndarray) -> dict[str, Contenders]:
    n = x.size // kernels.INT8_BLOCK * kernels.INT8_BLOCK
    x, acc = x[:n], acc[:n]
    scales, codes = np.empty(n // kernels.INT8_BLOCK, np.float32), np.empty(n, np.int8)
    left = np.zeros(n, np.float32)
    to: Contenders = {"ours": lambda: kernels.to_int8(x, scales=scales, codes=codes)}
    feedback: Contenders = {
        "ours": lambda: kernels.to_int8(x, scales=scales, codes=codes, residual=left, left=left)
    }
    add: Contenders = {"ours": lambda: kernels.add_int8(acc, scales, codes, WEIGHT)}
    if torch:
        blocks, total = (torch.from_numpy(a).view(-1, kernels.INT8_BLOCK) for a in (x, acc))
        bytes_, factors = torch.from_numpy(codes).view_as(blocks), torch.from_numpy(scales)
        rest = torch.zeros_like(blocks)

        def encode(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            scale = values.abs().amax(1, keepdim=True) / 127
            return scale, (values / scale).round().to(torch.int8)

        def encode_feedback() -> None:
            whole = blocks + rest
            scale, code = encode(whole)
            torch.sub(whole, scale * code, out=rest)

        to["torch"] = lambda: encode(blocks)
        feedback["torch"] = encode_feedback
        add["torch"] = lambda: total.add_(bytes_ * factors[:, None], alpha=WEIGHT)
    kernels.to_int8(x, scales=scales, codes=codes)
    return {"to_int8": to, "to_int8 with residual": feedback, "add_int8": add}


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
    for apart in (False, True):
        step = feedback(x, arrays[1], n // 100, apart=apart)
        yield f"feedback 0.01 {'apart' if apart else 'in place'}", step
    for density in DENSITIES[1:]:
        index = np.sort(rng.choice(n, int(n * density), replace=False)).astype(np.uint32)
        value = rng.standard_normal(index.size, dtype=np.float32)
        yield f"scatter_add {density:g}", scatter_add(acc, index, value)
        yield f"gather {density:g}", gather(x, index, value)
    yield "weighted_add", weighted_add(acc, x)
    yield "lerp", lerp(acc, x)
    for count in (2, 8):
        yield f"merge {count}", merge(acc, arrays[:count])
    yield "merge_checked by chunks", merge_chunks(arrays[1], x[:CHUNK], acc)
    yield "momentum", momentum(arrays[1], np.zeros(n, np.float32), arrays[2])
    yield "copy_checked", copy_checked(x, acc)
    yield "swap_update", swap_update(*arrays[3:6], acc)
    yield "first_nonfinite", first_nonfinite(x)
    for kind in ("float16", "bfloat16"):
        yield from half(x, acc, kind).items()
    yield from int8(x, acc).items()


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
    print(f"{'':<24}{'n':>9}{'ours ms':>10}   {'numpy':<21} {'torch':<21} bound")
    for n in options.n:
        for name, contenders in cases(n):
            if options.name and not any(part in name for part in options.name):
                continue
            times = interleave(contenders, passes=options.passes)
            ours = times["ours"]
            ratios = [
                column(speedup(ours, times[peer]) if peer in times else None)
                for peer in ("numpy", "torch", "bound")
            ]
            print(f"{name:<24}{n:>9}{Spread.of(ours).median * 1e3:>10.3f}  ", *ratios)


if __name__ == "__main__":
    main()
