import numpy as np
import pytest

from aiops import kernels
from tests.kernels.faces import (
    ARGUMENTS,
    N,
    code,
    f32,
    i8,
    momentum,
    packed,
    read_only,
    riced,
    step,
    to_int8,
    u16,
    u32,
    unaligned,
)


def arguments(*roles, item_bytes=1):
    return pytest.mark.parametrize(
        ("call", "dtype", "name"),
        [
            pytest.param(call, dtype, name, id=label)
            for label, (call, dtype, name, role) in ARGUMENTS.items()
            if (not roles or role in roles) and np.dtype(dtype).itemsize >= item_bytes
        ],
    )


@arguments()
def test_the_right_argument_passes(call, dtype, name):
    call(np.zeros(N, dtype))


@arguments("read", "match")
def test_an_input_may_be_read_only(call, dtype, name):
    call(read_only(np.zeros(N, dtype)))


@arguments("write", "out")
def test_an_output_may_not_be_read_only(call, dtype, name):
    with pytest.raises(ValueError, match=f"{name} is read-only, it must be writable"):
        call(read_only(np.zeros(N, dtype)))


@arguments()
def test_something_else_than_an_array_is_a_type_error(call, dtype, name):
    with pytest.raises(TypeError, match=f"{name} is of type list, it must be a numpy array"):
        call([0] * N)


@arguments()
def test_another_dtype_is_named(call, dtype, name):
    with pytest.raises(TypeError, match=f"{name} has dtype float64, it must be {dtype.__name__}"):
        call(np.zeros(N))


@arguments(item_bytes=2)
def test_the_other_byte_order_is_another_dtype(call, dtype, name):
    with pytest.raises(TypeError, match=f"{name} has dtype >"):
        call(np.zeros(N, np.dtype(dtype).newbyteorder(">")))


@arguments()
def test_a_matrix_is_no_vector(call, dtype, name):
    with pytest.raises(ValueError, match=f"{name} has 2 dimensions, it must have 1"):
        call(np.zeros((2, 2), dtype))


@arguments()
def test_a_strided_view_is_refused(call, dtype, name):
    with pytest.raises(
        ValueError, match=f"{name} has a stride of {2 * np.dtype(dtype).itemsize} bytes"
    ):
        call(np.zeros(2 * N, dtype)[::2])


@arguments(item_bytes=2)
def test_an_unaligned_view_is_refused(call, dtype, name):
    with pytest.raises(ValueError, match=f"{name} is not aligned"):
        call(unaligned(dtype))


@arguments("match", "out")
def test_another_length_is_named(call, dtype, name):
    with pytest.raises(ValueError, match=rf"{name} has 5 values, it must have 4, (as in|which is)"):
        call(np.zeros(5, dtype))


@pytest.mark.parametrize(
    ("name", "call", "good"),
    [
        ("index", lambda a: kernels.encode_index(a, N), step()),
        ("code", lambda a: kernels.decode_index(a, N, N), code()),
        ("code", lambda a: kernels.check_index(a, N, N), code()),
        ("code", lambda a: kernels.scatter_add_coded(f32(), a, f32()), code()),
        ("index", lambda a: kernels.pack_index(a, N), step()),
        ("index", lambda a: kernels.rice_index(a, N), step()),
        ("code", lambda a: kernels.unpack_index(a, N, 2 * N), packed()),
        ("code", lambda a: kernels.unrice_index(a, N, 2 * N), riced()),
    ],
)
def test_what_zeros_would_not_pass_for_is_checked_alike(name, call, good):
    call(read_only(good.copy()))
    with pytest.raises(TypeError, match=f"{name} is of type list, it must be a numpy array"):
        call(good.tolist())
    with pytest.raises(TypeError, match=f"{name} has dtype float64, it must be {good.dtype}"):
        call(good.astype(np.float64))
    with pytest.raises(ValueError, match=f"{name} has 2 dimensions, it must have 1"):
        call(good.reshape(2, -1))
    with pytest.raises(ValueError, match=f"{name} has a stride of {2 * good.itemsize} bytes"):
        call(np.repeat(good, 2)[::2])


@pytest.mark.parametrize("weight", [np.nan, np.inf, -np.inf, 3.5e38, -3.4028235677973366e38])
def test_a_weight_that_is_not_finite_in_float32_is_refused(weight):
    acc = f32()
    calls = {
        "weight": [
            lambda: kernels.weighted_add(acc, f32(), weight),
            lambda: kernels.scatter_add(acc, u32(), f32(), weight),
            lambda: kernels.scatter_add_coded(acc, code(), f32(), weight),
            lambda: kernels.add_half(acc, u16(), weight, "float16"),
            lambda: kernels.add_int8(acc, f32(1), i8(), weight),
        ],
        "a": [lambda: kernels.lerp(acc, f32(), weight)],
        "gain": [lambda: kernels.merge_checked(f32(), [], [], gain=weight, out=acc)],
        "rate": [lambda: kernels.sgd(f32(), f32(), rate=weight, out=acc)],
        "beta": [lambda: kernels.momentum(f32(), f32(), f32(), rate=1, beta=weight, out=acc)],
        r"weights\[1\]": [
            lambda: kernels.merge([f32(), f32()], [1, weight], out=acc),
            lambda: kernels.merge_checked(f32(), [f32(), f32()], [1, weight], out=acc),
            lambda: kernels.merge_sparse(
                [step(), step()], [f32(), f32()], [1, weight], N, index=u32(2 * N), value=f32(2 * N)
            ),
        ],
    }
    for name, faces in calls.items():
        for face in faces:
            with pytest.raises(ValueError, match=f"{name} is .*, it must be finite and below 3.40"):
                face()
    assert not acc.any()


def test_the_largest_float32_is_a_weight():
    acc = f32()
    kernels.weighted_add(acc, np.ones(N, np.float32), 3.4028235e38)
    assert np.isfinite(acc).all()


def shared(first, second):
    """Two vectors of four, the second starting in the last bytes of the first."""
    memory = np.zeros(64, np.uint8)
    size = np.dtype(first).itemsize * N
    start = size - 4
    return (
        memory[:size].view(first),
        memory[start : start + np.dtype(second).itemsize * N].view(second),
    )


F, U, H, C, B = np.float32, np.uint32, np.uint16, np.int8, np.uint8


def merge_into(index, value):
    kernels.merge_sparse([], [], [], N, index=index, value=value)


@pytest.mark.parametrize(
    ("names", "dtypes", "call"),
    [
        (("index", "x"), (U, F), lambda a, b: kernels.select_topk(b, N, index=a)),
        (("value", "x"), (F, F), lambda a, b: kernels.select_topk(b, N, value=a)),
        (("value", "index"), (F, U), lambda a, b: kernels.select_topk(f32(), N, index=b, value=a)),
        (("acc", "index"), (F, U), lambda a, b: kernels.scatter_add(a, b, f32())),
        (("acc", "value"), (F, F), lambda a, b: kernels.scatter_add(a, u32(), b)),
        (("acc", "value"), (F, F), lambda a, b: kernels.scatter_add_coded(a, code(), b)),
        (("out", "index"), (B, U), lambda a, b: kernels.pack_index(b, N + 1, a)),
        (("out", "index"), (B, U), lambda a, b: kernels.rice_index(b, N + 1, a)),
        (("out", "code"), (U, B), lambda a, b: kernels.unpack_index(b, N, N, a)),
        (("out", "code"), (U, B), lambda a, b: kernels.unrice_index(b, N, N, a)),
        (("value", "index"), (F, U), lambda a, b: merge_into(b, a)),
        (("out", "x"), (F, F), lambda a, b: kernels.gather(b, u32(), out=a)),
        (("out", "index"), (F, U), lambda a, b: kernels.gather(f32(), b, out=a)),
        (("acc", "x"), (F, F), lambda a, b: kernels.weighted_add(a, b)),
        (("out", r"arrays\[1\]"), (F, F), lambda a, b: kernels.merge([f32(), b], [1, 1], out=a)),
        (("x", "base"), (F, F), lambda a, b: kernels.swap_update(a, b, f32(), out=f32())),
        (("x", "new"), (F, F), lambda a, b: kernels.swap_update(a, f32(), b, out=f32())),
        (("base", "new"), (F, F), lambda a, b: kernels.swap_update(f32(), a, b, out=f32())),
        (("out", "x"), (F, F), lambda a, b: kernels.swap_update(b, f32(), f32(), out=a)),
        (("out", "base"), (F, F), lambda a, b: kernels.swap_update(f32(), b, f32(), out=a)),
        (("out", "new"), (F, F), lambda a, b: kernels.swap_update(f32(), f32(), b, out=a)),
        (("out", "x"), (H, F), lambda a, b: kernels.to_half(b, "float16", out=a)),
        (("out", "bits"), (F, H), lambda a, b: kernels.from_half(b, "float16", out=a)),
        (("x", "y"), (F, F), lambda a, b: kernels.lerp(a, b, 1)),
        (("out", "base"), (F, F), lambda a, b: kernels.merge_checked(b, [], [], out=a)),
        (
            ("out", r"arrays\[0\]"),
            (F, F),
            lambda a, b: kernels.merge_checked(f32(), [b], [1], out=a),
        ),
        (("out", "x"), (F, F), lambda a, b: kernels.copy_checked(b, out=a)),
        (("out", "params"), (F, F), lambda a, b: kernels.sgd(b, f32(), rate=1, out=a)),
        (("out", "update"), (F, F), lambda a, b: kernels.sgd(f32(), b, rate=1, out=a)),
        (("out", "params"), (F, F), lambda a, b: momentum(params=b, out=a)),
        (("out", "velocity"), (F, F), lambda a, b: momentum(velocity=b, out=a)),
        (("out", "update"), (F, F), lambda a, b: momentum(update=b, out=a)),
        (("velocity", "params"), (F, F), lambda a, b: momentum(params=b, velocity=a)),
        (("velocity", "update"), (F, F), lambda a, b: momentum(update=b, velocity=a)),
        (("scales", "codes"), (F, C), lambda a, b: to_int8(scales=a[3:], codes=b)),
        (("scales", "x"), (F, F), lambda a, b: to_int8(x=b, scales=a[3:])),
        (("codes", "x"), (F, C), lambda a, b: to_int8(x=a, codes=b)),
        (("left", "x"), (F, F), lambda a, b: to_int8(x=b, residual=f32(), left=a)),
        (("left", "residual"), (F, F), lambda a, b: to_int8(residual=b, left=a)),
        (("scales", "left"), (F, F), lambda a, b: to_int8(scales=a[3:], residual=f32(), left=b)),
        (("codes", "left"), (F, C), lambda a, b: to_int8(codes=b, residual=f32(), left=a)),
        (("acc", "scales"), (F, F), lambda a, b: kernels.add_int8(a, b[:1], i8())),
        (("acc", "codes"), (F, C), lambda a, b: kernels.add_int8(a, f32(1), b)),
        (("acc", "bits"), (F, H), lambda a, b: kernels.add_half(a, b, 1, "float16")),
    ],
)
def test_an_output_that_overlaps_an_input_is_refused(names, dtypes, call):
    message = f"{names[0]} and {names[1]} overlap in memory, they must be apart"
    with pytest.raises(ValueError, match=message):
        call(*shared(*dtypes))


@pytest.mark.parametrize(
    "call",
    [
        lambda a: kernels.select_topk(a, N, value=a),
        lambda a: kernels.scatter_add(a, u32(), a),
        lambda a: kernels.gather(a, u32(), out=a),
        lambda a: kernels.merge([a], [1], out=a),
        lambda a: kernels.merge_checked(f32(), [a], [1], out=a),
        lambda a: kernels.copy_checked(a, out=a),
        lambda a: kernels.sgd(f32(), a, rate=1, out=a),
        lambda a: momentum(velocity=a, update=a),
        lambda a: momentum(velocity=a, out=a),
        lambda a: to_int8(x=a, residual=f32(), left=a),
        lambda a: kernels.swap_update(a, a, f32(), out=f32()),
        lambda a: kernels.swap_update(a, f32(), a, out=f32()),
        lambda a: kernels.swap_update(f32(), a, a, out=f32()),
        lambda a: kernels.swap_update(a, f32(), f32(), out=a),
        lambda a: kernels.swap_update(f32(), f32(), a, out=a),
    ],
)
def test_the_same_array_twice_is_refused_where_the_result_would_be_wrong(call):
    with pytest.raises(ValueError, match="overlap in memory"):
        call(f32())


def test_neighbours_in_one_buffer_do_not_overlap():
    memory = np.ones(2 * N, np.float32)
    kernels.weighted_add(memory[:N], memory[N:], 2.0)
    assert memory.tolist() == [3] * N + [1] * N
