"""Numeric kernels: they know float32 vectors, uint32 positions and scalars, and no key or worker.

Every function checks its arguments, then calls a compiled twin that releases the GIL, or numpy
(``aiops.kernels.reference``) when the extension is not built; both give the same bits. Arrays are
one-dimensional and C-contiguous. Outputs are the caller's where given, and nothing is kept.
"""

from __future__ import annotations

from aiops.kernels._backend import COMPILED, simd_level
from aiops.kernels.dense import first_nonfinite, merge, swap_update, weighted_add
from aiops.kernels.half import add_half, first_nonfinite_half, from_half, to_half
from aiops.kernels.index import check_index, decode_index, encode_index, index_bytes
from aiops.kernels.sparse import gather, merge_sparse, scatter_add, scatter_add_coded
from aiops.kernels.topk import select_topk

__all__ = [
    "COMPILED",
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
    "simd_level",
    "swap_update",
    "to_half",
    "weighted_add",
]
