"""Contenders for the sparse kernels: what a library user writes for the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from aiops import kernels

try:
    import torch
except ImportError:  # the core does not need it
    torch = None

Contenders = dict[str, Callable[[], object]]
WEIGHT = 0.3


def positions(rng: np.random.Generator, n: int, density: float) -> np.ndarray:
    return np.flatnonzero(rng.random(n, dtype=np.float32) < density).astype(np.uint32)


def from_the_wire(
    acc: np.ndarray, index: np.ndarray, value: np.ndarray, *, coded: bool
) -> Contenders:
    """Add float16 values at uint32 or coded positions; libraries get the plain uint32."""
    half = kernels.to_half(value, "float16")
    code = kernels.encode_index(index, acc.size)
    small, factor = half.view(np.float16), np.float32(WEIGHT)
    found: Contenders = {
        "ours": (lambda: kernels.scatter_add_coded(acc, code, half, WEIGHT, kind="float16"))
        if coded
        else (lambda: kernels.scatter_add(acc, index, half, WEIGHT, kind="float16")),
        "numpy": lambda: np.add.at(acc, index, factor * small.astype(np.float32)),
    }
    if torch:
        dense, halves = torch.from_numpy(acc), torch.from_numpy(small)
        narrow = torch.from_numpy(index.view(np.int32))
        found["torch"] = lambda: dense.index_add_(
            0, narrow.to(torch.int64), halves.to(torch.float32), alpha=WEIGHT
        )
    return found


def varint(index: np.ndarray) -> np.ndarray:
    """LEB128 of the gaps, a pass over all of them for each byte."""
    gap = np.diff(index, prepend=np.uint32(0))
    length = np.ones(gap.size, np.int64)
    for bits in (7, 14, 21, 28):
        length += gap >= 1 << bits
    start = np.cumsum(length) - length
    out = np.empty(int(length.sum()), np.uint8)
    for byte in range(5):
        here = np.flatnonzero(length > byte)
        more = (length[here] > byte + 1).astype(np.uint8) << 7
        out[start[here] + byte] = (gap[here] >> np.uint32(7 * byte) & 127).astype(np.uint8) | more
    return out


def from_varint(code: np.ndarray) -> np.ndarray:
    end = np.flatnonzero(code < 128)
    start = np.concatenate([[0], end[:-1] + 1])
    gap = np.zeros(end.size, np.uint32)
    for byte in range(int((end - start).max()) + 1):
        here = np.flatnonzero(end - start >= byte)
        gap[here] |= (code[start[here] + byte] & 127).astype(np.uint32) << np.uint32(7 * byte)
    return np.cumsum(gap, dtype=np.uint32)


def index_code(index: np.ndarray, n: int) -> Contenders:
    """Encode and decode; numpy's code is a varint of the gaps."""
    code, back = kernels.encode_index(index, n), np.empty_like(index)

    def ours() -> None:
        kernels.encode_index(index, n, out=code)
        kernels.decode_index(code, index.size, n, out=back)

    return {"ours": ours, "numpy": lambda: from_varint(varint(index))}


def sizes(index: np.ndarray, n: int) -> str:
    p = index.size / n
    entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)) / p / 8
    ours, theirs = (c.size / index.size for c in (kernels.encode_index(index, n), varint(index)))
    return f"bytes per index: {ours:.3f}, entropy {entropy:.3f}, varint {theirs:.3f}"


def merge_sparse(indices: list[np.ndarray], values: list[np.ndarray], n: int) -> Contenders:
    total = sum(index.size for index in indices)
    index, value = np.empty(total, np.uint32), np.empty(total, np.float32)
    weights = [1.0] * len(indices)

    def by_numpy() -> None:
        together, numbers = np.concatenate(indices), np.concatenate(values)
        order = np.argsort(together, kind="stable")
        ordered = together[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        np.add.reduceat(numbers[order], first)

    found: Contenders = {
        "ours": lambda: kernels.merge_sparse(indices, values, weights, n, index=index, value=value),
        "numpy": by_numpy,
    }
    if torch:
        wide = torch.from_numpy(np.concatenate(indices).astype(np.int64))[None]
        numbers = torch.from_numpy(np.concatenate(values))
        found["torch"] = lambda: torch.sparse_coo_tensor(
            wide, numbers, (n,), check_invariants=False
        ).coalesce()
    return found


def cases(acc: np.ndarray, densities: tuple[float, ...]) -> Iterator[tuple[str, Contenders]]:
    rng, n = np.random.default_rng(1), acc.size
    for density in densities:
        pushes = [positions(rng, n, density) for _ in range(8)]
        values = [rng.standard_normal(index.size, dtype=np.float32) for index in pushes]
        for coded, source in ((False, "listed"), (True, "coded")):
            contenders = from_the_wire(acc, pushes[0], values[0], coded=coded)
            yield f"scatter_add {source} fp16 {density:g}", contenders
        yield f"index code {density:g} ({sizes(pushes[0], n)})", index_code(pushes[0], n)
        for count in (2, 8):
            yield (
                f"merge_sparse {count} {density:g}",
                merge_sparse(pushes[:count], values[:count], n),
            )
