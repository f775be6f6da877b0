"""Every vector argument of every face, for the tests of what the faces refuse."""

from __future__ import annotations

import numpy as np

from aiops import kernels

N = 4


def f32(n=N):
    return np.zeros(n, np.float32)


def u32(n=N):
    return np.zeros(n, np.uint32)


def u16(n=N):
    return np.zeros(n, np.uint16)


def i8(n=N):
    return np.zeros(n, np.int8)


def step():
    return np.arange(N, dtype=np.uint32)


def code():
    return kernels.encode_index(step(), N)


def packed():
    return kernels.pack_index(2 * step() + 1, 2 * N)


def riced():
    return kernels.rice_index(2 * step() + 1, 2 * N)


# As many values as need N scales.
LONG = (N - 1) * kernels.INT8_BLOCK + 1


def to_int8(**given):
    """Encode four values with one argument from the caller."""
    arguments = {"x": f32(), "scales": f32(1), "codes": i8()} | given
    return kernels.to_int8(arguments.pop("x"), **arguments)


def momentum(**given):
    arguments = {name: f32() for name in ("params", "velocity", "update", "out")} | given
    first = [arguments.pop(name) for name in ("params", "velocity", "update")]
    return kernels.momentum(*first, rate=0.1, beta=0.9, **arguments)


def read_only(array):
    array.flags.writeable = False
    return array


def unaligned(dtype):
    return np.zeros(N * np.dtype(dtype).itemsize + 1, np.uint8)[1:].view(dtype)


# Every vector argument of every face, as a function of that argument, with its dtype and role.
ARGUMENTS = {
    "select_topk x": (lambda a: kernels.select_topk(a, 1), np.float32, "x", "read"),
    "select_topk index": (lambda a: kernels.select_topk(f32(), N, index=a), np.uint32, "index", "out"),
    "select_topk value": (lambda a: kernels.select_topk(f32(), N, value=a), np.float32, "value", "out"),
    "feedback_topk residual": (
        lambda a: kernels.feedback_topk(a, f32(), 1), np.float32, "residual", "read"
    ),
    "feedback_topk update": (
        lambda a: kernels.feedback_topk(f32(), a, 1), np.float32, "update", "match"
    ),
    "feedback_topk out": (
        lambda a: kernels.feedback_topk(f32(), f32(), 1, out=a), np.float32, "out", "out"
    ),
    "feedback_topk index": (
        lambda a: kernels.feedback_topk(f32(), f32(), N, index=a), np.uint32, "index", "out"
    ),
    "feedback_topk value": (
        lambda a: kernels.feedback_topk(f32(), f32(), N, value=a), np.float32, "value", "out"
    ),
    "scatter_add acc": (lambda a: kernels.scatter_add(a, u32(), f32()), np.float32, "acc", "write"),
    "scatter_add index": (lambda a: kernels.scatter_add(f32(), a, f32()), np.uint32, "index", "read"),
    "scatter_add value": (lambda a: kernels.scatter_add(f32(), u32(), a), np.float32, "value", "match"),
    "scatter_add half": (
        lambda a: kernels.scatter_add(f32(), u32(), a, kind="float16"), np.uint16, "value", "match"
    ),
    "scatter_add_coded acc": (
        lambda a: kernels.scatter_add_coded(a, code(), f32()), np.float32, "acc", "write"
    ),
    "scatter_add_coded value": (
        lambda a: kernels.scatter_add_coded(f32(), code(), a), np.float32, "value", "read"
    ),
    "decode_index out": (
        lambda a: kernels.decode_index(code(), N, N, out=a), np.uint32, "out", "out"
    ),
    "pack_index out": (lambda a: kernels.pack_index(step(), N, a), np.uint8, "out", "write"),
    "rice_index out": (lambda a: kernels.rice_index(step(), N, a), np.uint8, "out", "write"),
    "unpack_index out": (
        lambda a: kernels.unpack_index(packed(), N, 2 * N, a), np.uint32, "out", "out"
    ),
    "unrice_index out": (lambda a: kernels.unrice_index(riced(), N, 2 * N, a), np.uint32, "out", "out"),
    "energy_histogram x": (kernels.energy_histogram, np.float32, "x", "read"),
    "merge_sparse index": (
        lambda a: kernels.merge_sparse([], [], [], N, index=a, value=f32()),
        np.uint32, "index", "write",
    ),
    "merge_sparse value": (
        lambda a: kernels.merge_sparse([], [], [], N, index=u32(), value=a),
        np.float32, "value", "out",
    ),
    "merge_sparse values": (
        lambda a: kernels.merge_sparse([step()], [a], [1], N, index=u32(), value=f32()),
        np.float32, r"values\[0\]", "match",
    ),
    "gather x": (lambda a: kernels.gather(a, u32()), np.float32, "x", "read"),
    "gather index": (lambda a: kernels.gather(f32(), a), np.uint32, "index", "read"),
    "gather out": (lambda a: kernels.gather(f32(), u32(), out=a), np.float32, "out", "out"),
    "weighted_add acc": (lambda a: kernels.weighted_add(a, f32()), np.float32, "acc", "write"),
    "weighted_add x": (lambda a: kernels.weighted_add(f32(), a), np.float32, "x", "match"),
    "merge arrays": (lambda a: kernels.merge([f32(), a], [1, 1]), np.float32, r"arrays\[1\]", "match"),
    "merge out": (lambda a: kernels.merge([f32()], [1], out=a), np.float32, "out", "write"),
    "lerp x": (lambda a: kernels.lerp(a, f32(), 1), np.float32, "x", "write"),
    "lerp y": (lambda a: kernels.lerp(f32(), a, 1), np.float32, "y", "match"),
    "merge_checked base": (
        lambda a: kernels.merge_checked(a, [f32()], [1], out=f32()), np.float32, "base", "match"
    ),
    "merge_checked arrays": (
        lambda a: kernels.merge_checked(f32(), [f32(), a], [1, 1], out=f32()),
        np.float32, r"arrays\[1\]", "match",
    ),
    "merge_checked out": (
        lambda a: kernels.merge_checked(f32(), [f32()], [1], out=a), np.float32, "out", "write"
    ),
    "copy_checked x": (lambda a: kernels.copy_checked(a, out=f32()), np.float32, "x", "read"),
    "copy_checked out": (lambda a: kernels.copy_checked(f32(), out=a), np.float32, "out", "out"),
    "sgd params": (
        lambda a: kernels.sgd(a, f32(), rate=1, out=f32()), np.float32, "params", "read"
    ),
    "sgd update": (
        lambda a: kernels.sgd(f32(), a, rate=1, out=f32()), np.float32, "update", "match"
    ),
    "sgd out": (lambda a: kernels.sgd(f32(), f32(), rate=1, out=a), np.float32, "out", "out"),
    "momentum params": (lambda a: momentum(params=a), np.float32, "params", "read"),
    "momentum velocity": (lambda a: momentum(velocity=a), np.float32, "velocity", "out"),
    "momentum update": (lambda a: momentum(update=a), np.float32, "update", "match"),
    "momentum out": (lambda a: momentum(out=a), np.float32, "out", "out"),
    "to_int8 x": (lambda a: to_int8(x=a), np.float32, "x", "read"),
    "to_int8 residual": (
        lambda a: to_int8(residual=a, left=f32()), np.float32, "residual", "match"
    ),
    "to_int8 left": (lambda a: to_int8(residual=f32(), left=a), np.float32, "left", "out"),
    "to_int8 codes": (lambda a: to_int8(codes=a), np.int8, "codes", "out"),
    "to_int8 scales": (
        lambda a: to_int8(x=f32(LONG), scales=a, codes=i8(LONG)), np.float32, "scales", "out"
    ),
    "add_int8 acc": (lambda a: kernels.add_int8(a, f32(1), i8()), np.float32, "acc", "write"),
    "add_int8 scales": (
        lambda a: kernels.add_int8(f32(LONG), a, i8(LONG)), np.float32, "scales", "match"
    ),
    "add_int8 codes": (lambda a: kernels.add_int8(f32(), f32(1), a), np.int8, "codes", "match"),
    "first_code codes": (lambda a: kernels.first_code(a, 1), np.int8, "codes", "read"),
    "swap_update x": (
        lambda a: kernels.swap_update(a, f32(), f32(), out=f32()), np.float32, "x", "write"
    ),
    "swap_update base": (
        lambda a: kernels.swap_update(f32(), a, f32(), out=f32()), np.float32, "base", "out"
    ),
    "swap_update new": (
        lambda a: kernels.swap_update(f32(), f32(), a, out=f32()), np.float32, "new", "match"
    ),
    "swap_update out": (
        lambda a: kernels.swap_update(f32(), f32(), f32(), out=a), np.float32, "out", "out"
    ),
    "first_nonfinite x": (kernels.first_nonfinite, np.float32, "x", "read"),
    "to_half x": (lambda a: kernels.to_half(a, "float16"), np.float32, "x", "read"),
    "to_half out": (lambda a: kernels.to_half(f32(), "float16", out=a), np.uint16, "out", "out"),
    "from_half bits": (lambda a: kernels.from_half(a, "float16"), np.uint16, "bits", "read"),
    "from_half out": (lambda a: kernels.from_half(u16(), "float16", out=a), np.float32, "out", "out"),
    "add_half acc": (lambda a: kernels.add_half(a, u16(), 1, "float16"), np.float32, "acc", "write"),
    "add_half bits": (lambda a: kernels.add_half(f32(), a, 1, "float16"), np.uint16, "bits", "match"),
    "first_nonfinite_half bits": (
        lambda a: kernels.first_nonfinite_half(a, "bfloat16"), np.uint16, "bits", "read"
    ),
}  # fmt: skip
