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
from aiops.kernels.reference.gaps import pack_index, rice_index, unpack_index, unrice_index
from aiops.kernels.reference.half import add_half, first_nonfinite_half, from_half, to_half
from aiops.kernels.reference.histogram import energy_histogram
from aiops.kernels.reference.index import check_index, decode_index, encode_index, index_bytes
from aiops.kernels.reference.optimizer import momentum, sgd
from aiops.kernels.reference.quantize import add_int8, first_code, to_int8
from aiops.kernels.reference.sparse import gather, merge_sparse, scatter_add, scatter_add_coded
from aiops.kernels.reference.topk import feedback_topk, select_topk

__all__ = [
    "add_half",
    "add_int8",
    "check_index",
    "copy_checked",
    "decode_index",
    "encode_index",
    "energy_histogram",
    "feedback_topk",
    "first_code",
    "first_nonfinite",
    "first_nonfinite_half",
    "from_half",
    "gather",
    "index_bytes",
    "lerp",
    "merge",
    "merge_checked",
    "merge_sparse",
    "momentum",
    "pack_index",
    "rice_index",
    "scatter_add",
    "scatter_add_coded",
    "select_topk",
    "sgd",
    "swap_update",
    "to_half",
    "to_int8",
    "unpack_index",
    "unrice_index",
    "weighted_add",
]
