"""Numeric kernels: they know float32 vectors, uint32 positions and scalars, and no key or worker.

Every function checks its arguments, then calls a compiled twin that releases the GIL, or numpy
(``aiops.kernels.reference``) when the extension is not built; both give the same bits. Arrays are
one-dimensional and C-contiguous. Outputs are the caller's where given, and nothing is kept.
"""

from __future__ import annotations

from aiops.kernels._backend import COMPILED, simd_level
from aiops.kernels.dense import (
    copy_checked,
    first_nonfinite,
    lerp,
    merge,
    merge_checked,
    swap_update,
    weighted_add,
)
from aiops.kernels.half import add_half, first_nonfinite_half, from_half, to_half
from aiops.kernels.move import copy_bytes
from aiops.kernels.optimizer import momentum, sgd
from aiops.kernels.quantize import INT8_BLOCK, add_int8, first_code, to_int8
from aiops.kernels.sparse import gather, scatter_add
from aiops.kernels.topk import Feedback, feedback_topk, select_topk

__all__ = [
    "COMPILED",
    "INT8_BLOCK",
    "Feedback",
    "add_half",
    "add_int8",
    "copy_bytes",
    "copy_checked",
    "feedback_topk",
    "first_code",
    "first_nonfinite",
    "first_nonfinite_half",
    "from_half",
    "gather",
    "lerp",
    "merge",
    "merge_checked",
    "momentum",
    "scatter_add",
    "select_topk",
    "sgd",
    "simd_level",
    "swap_update",
    "to_half",
    "to_int8",
    "weighted_add",
]
