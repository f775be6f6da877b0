import numpy as np
import pytest

from aiops import kernels

N = 4


def f32(n=N):
    return np.zeros(n, np.float32)


def u32(n=N):
    return np.zeros(n, np.uint32)


def u16(n=N):
    return np.zeros(n, np.uint16)


def step():
    return np.arange(N, dtype=np.uint32)


def code():
    return kernels.encode_index(step(), N)


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


def arguments(*roles):
    return pytest.mark.parametrize(
        ("call", "dtype", "name"),
        [
            pytest.param(call, dtype, name, id=label)
            for label, (call, dtype, name, role) in ARGUMENTS.items()
            if not roles or role in roles
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


@arguments()
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


@arguments()
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
        ],
        r"weights\[1\]": [
            lambda: kernels.merge([f32(), f32()], [1, weight], out=acc),
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


F, U, H = np.float32, np.uint32, np.uint16


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
