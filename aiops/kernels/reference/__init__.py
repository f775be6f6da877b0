"""The kernels in numpy: their specification, the fall-back of an unbuilt tree, the tests' oracle.

Each function is the twin of the compiled one of the same name: it takes arguments that the faces
have checked, writes into what the caller hands in and gives the same bits. Clarity comes before
speed here.
"""

from __future__ import annotations

from aiops.kernels.reference.dense import (
    copy_checked,
    first_nonfinite,
    lerp,
    merge,
    merge_checked,
    swap_update,
    weighted_add,
)
from aiops.kernels.reference.half import add_half, first_nonfinite_half, from_half, to_half
from aiops.kernels.reference.optimizer import momentum, sgd
from aiops.kernels.reference.quantize import add_int8, first_code, to_int8
from aiops.kernels.reference.sparse import gather, scatter_add
from aiops.kernels.reference.topk import feedback_topk, select_topk

__all__ = [
    "add_half",
    "add_int8",
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
    "swap_update",
    "to_half",
    "to_int8",
    "weighted_add",
]
