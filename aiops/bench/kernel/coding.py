"""16-bit floats and 8-bit blocks: encoding, decoding, and adding without decoding first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aiops import kernels
from aiops.bench.kernel.base import FACTOR, WEIGHT, Contenders, Data, KernelCase, torch
from aiops.types import HalfName

SIZES = (1_000_000, 16_000_000)


def cases(data: Data) -> Iterator[KernelCase]:
    """Yield both 16-bit kinds and int8."""
    kinds: tuple[HalfName, ...] = ("float16", "bfloat16")
    for kind in kinds:
        # numpy has no bfloat16.
        numpy_goal = {"numpy": ">= 6"} if kind == "float16" else {}
        for name, make, goals in (
            ("to_half", to_half, {**numpy_goal, "torch": ">= 0.97"}),
            ("from_half", from_half, {}),
            ("add_half", add_half, {"torch": data.by_size(2.2, 6, 6)}),
        ):
            yield KernelCase(
                f"{name} {kind}",
                lambda make=make, kind=kind: make(data, kind),  # type: ignore[misc]
                goals,
            )
    encoded = {"torch": data.by_size(4.7, 9, 9)}
    yield KernelCase("to_int8", lambda: to_int8(data), encoded)
    yield KernelCase("to_int8 with residual", lambda: to_int8_feedback(data))
    yield KernelCase("add_int8", lambda: add_int8(data), {"torch": data.by_size(3.3, 8, 8)})


def to_half(data: Data, kind: HalfName) -> Contenders:
    """Encode float32 as 16-bit floats."""
    x = data.normal()
    bits = kernels.to_half(x, kind)
    found: Contenders = {"ours": lambda: kernels.to_half(x, kind, out=bits)}
    if kind == "float16":
        small = bits.view(np.float16)
        found["numpy"] = lambda: np.copyto(small, x, casting="unsafe")
    if torch is not None:
        halves, wide = torch.from_numpy(bits).view(getattr(torch, kind)), torch.from_numpy(x)
        found["torch"] = lambda: halves.copy_(wide)
    return found


def from_half(data: Data, kind: HalfName) -> Contenders:
    """Decode 16-bit floats."""
    bits, back = kernels.to_half(data.normal(), kind), data.zeros()
    found: Contenders = {"ours": lambda: kernels.from_half(bits, kind, out=back)}
    if kind == "float16":
        small = bits.view(np.float16)
        found["numpy"] = lambda: np.copyto(back, small)
    if torch is not None:
        halves, result = torch.from_numpy(bits).view(getattr(torch, kind)), torch.from_numpy(back)
        found["torch"] = lambda: result.copy_(halves)
    return found


def add_half(data: Data, kind: HalfName) -> Contenders:
    """Add w times 16-bit floats to an accumulator."""
    bits, acc = kernels.to_half(data.normal(), kind), data.zeros()
    found: Contenders = {"ours": lambda: kernels.add_half(acc, bits, WEIGHT, kind)}
    if kind == "float16":
        small = bits.view(np.float16)
        found["numpy"] = lambda: np.add(acc, FACTOR * small.astype(np.float32), out=acc)
    if torch is not None:
        halves, total = torch.from_numpy(bits).view(getattr(torch, kind)), torch.from_numpy(acc)
        wide = torch.float32
        found["torch"] = lambda: total.add_(halves.to(wide), alpha=WEIGHT)
        found["torch mixed"] = lambda: total.add_(halves, alpha=WEIGHT)
    return found


def to_int8(data: Data) -> Contenders:
    """Encode float32 as int8 with a scale a block."""
    n = _whole(data)
    x, scales, codes = data.normal()[:n], np.empty(n // kernels.INT8_BLOCK, np.float32), _bytes(n)

    def by_numpy() -> object:
        blocks = x.reshape(-1, kernels.INT8_BLOCK)
        scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
        return scale, np.rint(blocks / scale).astype(np.int8)

    found: Contenders = {
        "ours": lambda: kernels.to_int8(x, scales=scales, codes=codes),
        "numpy": by_numpy,
    }
    if torch is not None:
        blocks, byte = torch.from_numpy(x).view(-1, kernels.INT8_BLOCK), torch.int8

        def by_torch() -> object:
            scale = blocks.abs().amax(1, keepdim=True) / 127
            return scale, (blocks / scale).round().to(byte)

        found["torch"] = by_torch
    return found


def to_int8_feedback(data: Data) -> Contenders:
    """Encode float32 plus what was left behind as int8, and keep what that loses."""
    n = _whole(data)
    x, scales, codes = data.normal()[:n], np.empty(n // kernels.INT8_BLOCK, np.float32), _bytes(n)
    left = data.zeros()[:n]
    found: Contenders = {
        "ours": lambda: kernels.to_int8(x, scales=scales, codes=codes, residual=left, left=left)
    }
    if torch is not None:
        blocks, library = torch.from_numpy(x).view(-1, kernels.INT8_BLOCK), torch
        rest = torch.zeros_like(blocks)

        def by_torch() -> object:
            whole = blocks + rest
            scale = whole.abs().amax(1, keepdim=True) / 127
            code = (whole / scale).round().to(library.int8)
            library.sub(whole, scale * code, out=rest)
            return scale, code

        found["torch"] = by_torch
    return found


def add_int8(data: Data) -> Contenders:
    """Add w times what int8 blocks stand for to an accumulator."""
    n = _whole(data)
    acc, scales, codes = data.zeros()[:n], np.empty(n // kernels.INT8_BLOCK, np.float32), _bytes(n)
    kernels.to_int8(data.normal()[:n], scales=scales, codes=codes)

    def by_numpy() -> None:
        decoded = codes.reshape(-1, kernels.INT8_BLOCK) * (FACTOR * scales[:, None])
        np.add(acc, decoded.reshape(-1), out=acc)

    found: Contenders = {
        "ours": lambda: kernels.add_int8(acc, scales, codes, WEIGHT),
        "numpy": by_numpy,
    }
    if torch is not None:
        total = torch.from_numpy(acc).view(-1, kernels.INT8_BLOCK)
        bytes_, factors = torch.from_numpy(codes).view_as(total), torch.from_numpy(scales)[:, None]
        found["torch"] = lambda: total.add_(bytes_ * factors, alpha=WEIGHT)
    return found


# Libraries handle whole blocks only.
def _whole(data: Data) -> int:
    return data.n // kernels.INT8_BLOCK * kernels.INT8_BLOCK


def _bytes(n: int) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    return np.empty(n, np.int8)
