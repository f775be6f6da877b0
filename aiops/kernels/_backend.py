"""Picks the twin that the faces call: the compiled modules, or numpy when they are absent.

``AIOPS_PURE=1`` chooses numpy although the modules are there; it exists for tests.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

# A module that is there and fails to load is a broken build: that raises, it does not fall back.
COMPILED: bool = os.environ.get("AIOPS_PURE") != "1" and all(
    find_spec(f"aiops.kernels._{name}")
    for name in (
        "gaps",
        "half",
        "histogram",
        "index",
        "merge",
        "optimizer",
        "quantize",
        "sparse",
        "sparse_merge",
        "topk",
    )
)

if TYPE_CHECKING or COMPILED:
    from aiops.kernels import _gaps as gaps
    from aiops.kernels import _half as half
    from aiops.kernels import _histogram as histogram
    from aiops.kernels import _index as index
    from aiops.kernels import _merge as merge
    from aiops.kernels import _optimizer as optimizer
    from aiops.kernels import _quantize as quantize
    from aiops.kernels import _sparse as sparse
    from aiops.kernels import _sparse_merge as sparse_merge
    from aiops.kernels import _topk as topk
else:
    from aiops.kernels import reference

    gaps = half = histogram = index = merge = optimizer = reference
    quantize = sparse = sparse_merge = topk = reference

__all__ = [
    "COMPILED",
    "gaps",
    "half",
    "histogram",
    "index",
    "merge",
    "optimizer",
    "quantize",
    "simd_level",
    "sparse",
    "sparse_merge",
    "topk",
]


def simd_level() -> str:
    """Return what the kernels run on: ``avx512``, ``avx2``, ``portable`` or ``numpy``."""
    return ("portable", "avx2", "avx512")[topk.simd_level()] if COMPILED else "numpy"
