"""Kernel cases: a name, and its contenders by name, "ours" first among equals.

A case is a name and a dict of functions without arguments that all compute the same. "read" is the bound: one look at
every value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiops import kernels

torch: ModuleType | None
try:
    import torch
except ImportError:  # the core does not need it
    torch = None

Contenders: TypeAlias = dict[str, Callable[[], object]]
Array: TypeAlias = NDArray[Any]

WEIGHT = 0.3
DENSITIES = (0.001, 0.01, 0.1)


def cases(n: int) -> Iterator[tuple[str, Contenders]]:
    """Yield the cases for vectors of ``n`` values."""
    if torch is not None:
        torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x, acc = rng.standard_normal(n, dtype=np.float32), np.zeros(n, np.float32)
    for density in DENSITIES:
        yield f"topk {density:g}", topk(x, int(n * density))
    index = np.sort(rng.choice(n, n // 100, replace=False)).astype(np.uint32)
    yield "scatter_add 0.01", scatter_add(acc, index, x[: index.size])
    yield "weighted_add", weighted_add(acc, x)


def topk(x: Array, k: int) -> Contenders:
    """Find the k largest magnitudes."""
    index, value = np.empty(k, np.uint32), np.empty(k, np.float32)
    cut = x.size - k
    found: Contenders = {
        "ours": lambda: kernels.select_topk(x, k, index=index, value=value),
        "numpy": lambda: np.argpartition(np.abs(x), cut)[cut:],
        "read": lambda: kernels.first_nonfinite(x),
    }
    if torch is not None:
        tensor, select = torch.from_numpy(x), torch.topk
        found["torch"] = lambda: select(tensor.abs(), k, sorted=False)
    return found


def scatter_add(acc: Array, index: Array, value: Array) -> Contenders:
    """Add w * value at positions of an accumulator."""
    found: Contenders = {
        "ours": lambda: kernels.scatter_add(acc, index, value, WEIGHT),
        "numpy": lambda: np.add.at(acc, index, np.float32(WEIGHT) * value),
    }
    if torch is not None:
        dense, values = torch.from_numpy(acc), torch.from_numpy(value)
        wide = torch.from_numpy(index.astype(np.int64))
        found["torch"] = lambda: dense.index_add_(0, wide, values, alpha=WEIGHT)
    return found


def weighted_add(acc: Array, x: Array) -> Contenders:
    """Add w * x to an accumulator."""
    found: Contenders = {
        "ours": lambda: kernels.weighted_add(acc, x, WEIGHT),
        "numpy": lambda: np.add(acc, np.float32(WEIGHT) * x, out=acc),
    }
    if torch is not None:
        total, tensor = torch.from_numpy(acc), torch.from_numpy(x)
        found["torch"] = lambda: total.add_(tensor, alpha=WEIGHT)
    return found
