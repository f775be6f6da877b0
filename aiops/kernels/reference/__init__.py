"""The kernels in numpy: their specification, the fall-back of an unbuilt tree, the tests' oracle.

Each function is the twin of the compiled one of the same name: it takes arguments that the faces
have checked, writes into what the caller hands in and gives the same bits. Clarity comes before
speed here.
"""

from __future__ import annotations

from aiops.kernels.reference.dense import first_nonfinite, merge, swap_update, weighted_add
from aiops.kernels.reference.half import add_half, first_nonfinite_half, from_half, to_half
from aiops.kernels.reference.index import check_index, decode_index, encode_index, index_bytes
from aiops.kernels.reference.sparse import gather, merge_sparse, scatter_add, scatter_add_coded
from aiops.kernels.reference.topk import select_topk

__all__ = [
    "add_half",
    "check_index",
    "decode_index",
    "encode_index",
    "first_nonfinite",
    "first_nonfinite_half",
    "from_half",
    "gather",
    "index_bytes",
    "merge",
    "merge_sparse",
    "scatter_add",
    "scatter_add_coded",
    "select_topk",
    "swap_update",
    "to_half",
    "weighted_add",
]
