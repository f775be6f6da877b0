"""Sparse accumulation, from plain positions and values or from what the wire has, and merging."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from aiops import kernels
from aiops.bench.kernel.base import (
    FACTOR,
    WEIGHT,
    Array,
    Contenders,
    Data,
    KernelCase,
    scipy_sparse,
    torch,
)
from aiops.kernels.sparse import ValueName

SIZES = (10_000_000, 100_000_000)
WIRE_SIZES = (10_000_000,)
DENSITIES = (0.01, 0.1)
KINDS: dict[str, ValueName] = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "int8": "int8",
}


def cases(data: Data) -> Iterator[KernelCase]:
    """Yield plain accumulation and looking up."""
    for density in DENSITIES:
        torch_goal = 1.3 if density > 0.05 else 1.8
        yield KernelCase(
            f"scatter_add {density:g}",
            lambda density=density: scatter_add(data, density),  # type: ignore[misc]
            {"numpy": ">= 1.7", "torch": f">= {torch_goal}"},
        )
        yield KernelCase(
            f"gather {density:g}",
            lambda density=density: gather(data, density),  # type: ignore[misc]
        )


def wire(data: Data) -> Iterator[KernelCase]:
    """Yield accumulation straight from the wire's codings, and merging."""
    for density in DENSITIES:
        for positions in ("listed", "coded"):
            for name, kind in KINDS.items():
                yield KernelCase(
                    f"scatter_add {density:g} from {positions} positions, {name}",
                    lambda density=density, coded=positions == "coded", kind=kind: from_the_wire(  # type: ignore[misc]
                        data, density, kind, coded=coded
                    ),
                    {"numpy": ">= 4", "torch": ">= 2"},
                )
        for count in (2, 8):
            least = 1.7 if count == 2 else 5.5 if density > 0.05 else 2.5
            yield KernelCase(
                f"merge_sparse {density:g}, {count} pushes",
                lambda density=density, count=count: merge_sparse(data, density, count),  # type: ignore[misc]
                {"scipy": f">= {least:g}", "torch": ">= 10"},
            )


def scatter_add(data: Data, density: float) -> Contenders:
    """Add w * value at ascending positions of an accumulator."""
    acc, index = data.zeros(), data.positions(density)
    value = data.normal()[: index.size].copy()
    # What libraries index with: handed anything else they would convert it each time.
    wide = index.astype(np.intp)
    found: Contenders = {
        "ours": lambda: kernels.scatter_add(acc, index, value, WEIGHT),
        "numpy": lambda: np.add.at(acc, wide, FACTOR * value),
    }
    if torch is not None:
        dense, values, at = (torch.from_numpy(array) for array in (acc, value, wide))
        found["torch"] = lambda: dense.index_add_(0, at, values, alpha=WEIGHT)
    return found


def gather(data: Data, density: float) -> Contenders:
    """Take the values at ascending positions."""
    x, index = data.normal(), data.positions(density)
    out, wide = np.empty(index.size, np.float32), index.astype(np.intp)
    found: Contenders = {
        "ours": lambda: kernels.gather(x, index, out=out),
        "numpy": lambda: np.take(x, wide, out=out, mode="clip"),
    }
    if torch is not None:
        dense, values, at = (torch.from_numpy(array) for array in (x, out, wide))
        select = torch.index_select
        found["torch"] = lambda: select(dense, 0, at, out=values)
    return found


def from_the_wire(data: Data, density: float, kind: ValueName, *, coded: bool) -> Contenders:
    """Add values of any kind at coded or listed positions; libraries always get listed ones."""
    acc, index = data.zeros(), data.positions(density)
    value, scale = _packed(data.normal()[: index.size], kind)
    decode = _decoder(value, scale, kind)
    found: Contenders = {
        "ours": lambda: kernels.scatter_add(acc, index, value, WEIGHT, kind=kind, scale=scale),
        "numpy": lambda: np.add.at(acc, index, FACTOR * decode()),
    }
    if coded:
        code = kernels.encode_index(index, data.n)
        found["ours"] = lambda: kernels.scatter_add_coded(
            acc, code, value, WEIGHT, kind=kind, scale=scale
        )
    if torch is not None:
        dense, at = torch.from_numpy(acc), torch.from_numpy(index.view(np.int32))
        values = _torch_decoder(value, scale, kind)
        # It takes 32-bit positions as they are.
        found["torch"] = lambda: dense.index_add_(0, at, values(), alpha=WEIGHT)
    return found


def merge_sparse(data: Data, density: float, count: int) -> Contenders:
    """Add up ascending positions and values to one such list."""
    indices = [data.positions(density, number) for number in range(count)]
    values = [data.normal()[: index.size].copy() for index in indices]
    total, n = sum(index.size for index in indices), data.n
    index, value, weights = np.empty(total, np.uint32), np.empty(total, np.float32), [1.0] * count

    def by_numpy() -> object:
        together, numbers = np.concatenate(indices), np.concatenate(values)
        order = np.argsort(together, kind="stable")
        ordered = together[order]
        first = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] ^ 1))
        return ordered[first], np.add.reduceat(numbers[order], first)

    found: Contenders = {
        "ours": lambda: kernels.merge_sparse(indices, values, weights, n, index=index, value=value),
        "numpy": by_numpy,
    }
    if scipy_sparse is not None:
        rows = [
            scipy_sparse.csr_array((v, i.astype(np.int32), [0, i.size]), shape=(1, n))
            for i, v in zip(indices, values, strict=True)
        ]
        found["scipy"] = lambda: sum(rows[1:], start=rows[0])
    if torch is not None:
        wide = torch.from_numpy(np.concatenate(indices).astype(np.int64))[None]
        numbers, make = torch.from_numpy(np.concatenate(values)), torch.sparse_coo_tensor
        found["torch"] = lambda: make(wide, numbers, (n,), check_invariants=False).coalesce()
    return found


# Values as they are sent, and their scales.
def _packed(value: Array, kind: ValueName) -> tuple[Array, Array | None]:
    if kind == "int8":
        scale = np.empty(-(-value.size // kernels.INT8_BLOCK), np.float32)
        code = np.empty(value.size, np.int8)
        kernels.to_int8(value, scales=scale, codes=code)
        return code, scale
    return (value.copy() if kind == "float32" else kernels.to_half(value, kind)), None


def _decoder(value: Array, scale: Array | None, kind: ValueName) -> Callable[[], Array]:
    if scale is not None:
        of_each = np.repeat(scale, kernels.INT8_BLOCK)[: value.size]
        return lambda: of_each * value
    if kind == "float16":
        return lambda: value.view(np.float16).astype(np.float32)
    if kind == "bfloat16":
        return lambda: (value.astype(np.uint32) << 16).view(np.float32)
    return lambda: value


def _torch_decoder(value: Array, scale: Array | None, kind: ValueName) -> Callable[[], object]:
    assert torch is not None
    tensor, wide = torch.from_numpy(value), torch.float32
    if scale is not None:
        of_each = torch.from_numpy(np.repeat(scale, kernels.INT8_BLOCK)[: value.size])
        return lambda: of_each * tensor
    if kind == "float32":
        return lambda: tensor
    half = tensor.view(getattr(torch, kind))
    return lambda: half.to(wide)
