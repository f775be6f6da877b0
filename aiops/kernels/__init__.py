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
from aiops.kernels.gaps import (
    pack_index,
    packed_bytes_most,
    rice_bytes_most,
    rice_index,
    unpack_index,
    unrice_index,
)
from aiops.kernels.half import add_half, first_nonfinite_half, from_half, to_half
from aiops.kernels.histogram import energy_histogram
from aiops.kernels.index import check_index, decode_index, encode_index, index_bytes
from aiops.kernels.move import copy_bytes
from aiops.kernels.optimizer import momentum, sgd
from aiops.kernels.quantize import INT8_BLOCK, add_int8, first_code, to_int8
from aiops.kernels.sparse import gather, merge_sparse, scatter_add, scatter_add_coded
from aiops.kernels.topk import Feedback, feedback_topk, select_topk

__all__ = [
    "COMPILED",
    "INT8_BLOCK",
    "Feedback",
    "add_half",
    "add_int8",
    "check_index",
    "copy_bytes",
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
    "packed_bytes_most",
    "rice_bytes_most",
    "rice_index",
    "scatter_add",
    "scatter_add_coded",
    "select_topk",
    "sgd",
    "simd_level",
    "swap_update",
    "to_half",
    "to_int8",
    "unpack_index",
    "unrice_index",
    "weighted_add",
]
