"""Named arrays into the flat vector and back, whatever their layout."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops.errors import NotFinite, ShapeMismatch
from aiops.types import TensorSpec
from aiops.wire.table import BucketEntry, Table, TensorEntry
from aiops.worker.bucket import (
    as_array,
    check_finite,
    check_out,
    check_start,
    check_vector,
    pack,
    specs_of,
    unpack,
)


def table_of(tensors):
    entries, at = [], 0
    for spec in specs_of(tensors):
        size = int(np.prod(spec.shape))
        entries.append(TensorEntry(spec.name, spec.shape, spec.dtype, at, size))
        at += size
    return Table(tuple(entries), (BucketEntry(0, at, 0),) if at else ())


def packed(tensors):
    table = table_of(tensors)
    flat = np.full(table.size, np.nan, np.float32)
    pack(table, tensors, flat)
    return table, flat


BASE = np.arange(24, dtype=np.float32).reshape(4, 6)

LAYOUTS = {
    "contiguous": BASE,
    "transposed": BASE.T,
    "fortran order": np.asfortranarray(BASE),
    "strided": BASE[::2, ::3],
    "negative strides": BASE[::-1, ::-2],
    "broadcast": np.broadcast_to(np.float32(7), (3, 4)),
    "0-d": np.array(5, np.float32),
    "a numpy scalar": np.float32(5),
    "a python float": 5.0,
    "empty": np.zeros((0, 7), np.float32),
    "empty within": np.zeros((1, 0, 2), np.float32),
    "float16": BASE.astype(np.float16),
    "float64": BASE.astype(np.float64),
    "big endian": BASE.astype(">f4"),
    "read-only": np.frombuffer(BASE.tobytes(), np.float32),
    "a list": None,
}
del LAYOUTS["a list"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout_goes_in_and_comes_back_out(name):
    value = LAYOUTS[name]
    table, flat = packed({"before": np.ones(3, np.float32), "x": value, "after": np.float32(2)})
    expected = np.asarray(value, np.float32)
    back = unpack(table, flat)
    np.testing.assert_array_equal(back["x"], expected)
    assert back["x"].shape == expected.shape
    assert back["x"].dtype == np.asarray(value).dtype.newbyteorder("=")
    np.testing.assert_array_equal(back["before"], 1)
    assert back["after"] == 2


@given(
    st.lists(
        hnp.arrays(
            hnp.floating_dtypes(sizes=(16, 32)),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
            elements=st.floats(-1e4, 1e4, width=16),
        ),
        max_size=4,
    )
)
def test_what_is_packed_is_unpacked(arrays):
    tensors = {f"t{i}": array for i, array in enumerate(arrays)}
    table, flat = packed(tensors)
    for name, back in unpack(table, flat).items():
        np.testing.assert_array_equal(back, tensors[name])
        assert back.dtype == tensors[name].dtype.newbyteorder("=")


def test_float32_comes_out_as_views_of_the_vector_and_other_types_as_copies():
    table, flat = packed({"a": BASE, "b": BASE.astype(np.float16)})
    back = unpack(table, flat)
    assert np.shares_memory(back["a"], flat)
    assert not np.shares_memory(back["b"], flat)


class Exporter:
    """An array of another library, known by its DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_of_other_libraries_come_in_by_dlpack_without_a_copy():
    array = as_array("x", Exporter(BASE))
    assert np.shares_memory(array, BASE)
    assert specs_of({"x": Exporter(BASE)}) == (TensorSpec("x", (4, 6), "float32"),)


@pytest.mark.parametrize(
    "value",
    [np.arange(3), np.array([True]), np.array(["a"]), np.array([1j]), 3, [1, 2], None, "text"],
)
def test_what_is_no_float_array_is_refused_by_name(value):
    with pytest.raises(ShapeMismatch, match="tensor 'step' is"):
        as_array("step", value)


class Broken:
    """An array in memory that numpy cannot reach."""

    def __init__(self, error):
        self.error = error

    def __dlpack__(self, **options):
        raise self.error

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize(
    "value",
    [
        *map(
            Broken, [BufferError("why"), RuntimeError("why"), TypeError("why"), ValueError("why")]
        ),
        [[1.0], [2.0, 3.0]],
    ],
)
def test_what_numpy_cannot_read_is_refused_by_name(value):
    with pytest.raises(
        ShapeMismatch, match=r"tensor 'step' cannot be read by numpy \(.+\): give it"
    ):
        as_array("step", value)


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        pytest.param({"a": BASE}, "tensor 'b' of the agreed table is missing", id="missing"),
        pytest.param(
            {"a": BASE, "b": BASE, "c": BASE}, "tensor 'c' is not in the agreed table", id="unknown"
        ),
        pytest.param(
            {"a": BASE.T, "b": BASE}, r"tensor 'a' has shape \(6, 4\), \(4, 6\)", id="transposed"
        ),
        pytest.param({"a": BASE, "b": np.float32(1)}, r"tensor 'b' has shape \(\)", id="a scalar"),
    ],
)
def test_other_tensors_are_refused_and_the_vector_is_untouched(tensors, told):
    table, flat = packed({"a": BASE, "b": BASE})
    before = flat.copy()
    with pytest.raises(ShapeMismatch, match=told):
        pack(table, tensors, flat)
    np.testing.assert_array_equal(flat, before)


def test_what_float32_cannot_hold_is_found_after_packing_and_warns_of_nothing():
    table, flat = packed({"a": BASE, "b": np.array([1.0, -1e300])})
    with pytest.raises(NotFinite, match=r"update holds -inf in tensor 'b' \(value 1 of 2\)"):
        check_finite(table, flat, "update")


@pytest.mark.parametrize(
    "value",
    [
        np.array([0x7D00], np.uint16).view(np.float16),
        np.array([0x7FA00000], np.uint32).view(np.float32),
        np.array([0x7FF4 << 48], np.uint64).view(np.float64),
    ],
    ids=lambda value: value.dtype.name,
)
def test_a_signalling_nan_is_found_and_warns_of_nothing(value):
    with pytest.raises(NotFinite, match="'a'"):
        check_start({"a": value})
    with pytest.raises(NotFinite, match="'a'"):
        check_finite(*packed({"a": value}), "update")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_tensor_of_a_value_that_is_not_finite_is_named(value):
    table, flat = packed({"a": BASE, "nothing": np.zeros(0, np.float32), "b": BASE})
    flat[30] = value
    with pytest.raises(NotFinite, match=r"tensor 'b' \(value 6 of 24\)"):
        check_finite(table, flat, "update")


def test_parameters_that_are_not_finite_are_named_whatever_their_type():
    check_start({"a": BASE, "b": np.float16(1), "c": 2.5, "d": np.zeros(0)})
    for bad in (np.array([1, np.nan]), np.float16("inf"), float("nan")):
        with pytest.raises(NotFinite, match="parameter 'b'"):
            check_start({"a": BASE, "b": bad})


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros(47, np.float32),
        np.zeros((2, 24), np.float32),
        np.zeros(48, np.float64),
        np.zeros(96, np.float32)[::2],
    ],
)
def test_a_vector_that_is_not_laid_out_like_the_table_is_refused(vector):
    table, flat = packed({"a": BASE, "b": BASE})
    check_vector(table, flat, "update")
    with pytest.raises(ShapeMismatch, match=r"update is .* float32 of shape \(48,\) is due"):
        check_vector(table, vector, "update")
    with pytest.raises(ShapeMismatch):
        check_out(table, vector)


def test_the_model_cannot_land_in_memory_that_is_read_only():
    table, flat = packed({"a": BASE})
    check_out(table, flat)
    check_out(table, None)
    flat.setflags(write=False)
    with pytest.raises(ShapeMismatch, match="read-only"):
        check_out(table, flat)
