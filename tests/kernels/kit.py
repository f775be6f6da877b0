"""What the kernels' tests share: instruction sets, vectors, and equality of bits."""

from __future__ import annotations

import ctypes

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops import kernels
from aiops.kernels import _backend

# None stands for the numpy twins, where nothing is compiled.
LEVELS = range(_backend.topk.simd_level() + 1) if kernels.COMPILED else [None]
BAD = [np.nan, np.inf, -np.inf]

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
anything = st.floats(width=32)
weights = st.floats(-2, 2, width=32)


def on_level(function, *arguments, level):
    """Call a function of a compiled module on one instruction set; its twin has no levels."""
    return function(*arguments) if level is None else function(*arguments, level)


def rounded(number):
    """A double rounded to float32: with it, plain Python arithmetic is float32 arithmetic."""
    return ctypes.c_float(number).value


def assert_same_bits(got, want):
    """Equal bit for bit, but for the payload of NaN."""
    got, want = np.asarray(got, np.float32), np.asarray(want, np.float32)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), ~number)
    np.testing.assert_array_equal(got.view(np.uint32)[number], want.view(np.uint32)[number])


def vectors(count, elements=anything):
    shape = st.integers(0, 70)
    return shape.flatmap(
        lambda n: st.tuples(*[hnp.arrays("f4", n, elements=elements) for _ in range(count)])
    )


@st.composite
def position_sets(draw, most=80):
    """Ascending positions, up to so many, and what they are below."""
    n = draw(st.sampled_from([1, 2, 15, 16, 17, 64, 65, 300, 10_000, 2**24, 2**31 + 8, 2**32]))
    index = draw(st.sets(st.integers(0, n - 1), max_size=min(n, most)))
    return sorted(index), n


def noise(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n, dtype=np.float32)


def shifted(array, by):
    """A copy that starts ``by`` values behind an address that is aligned to a cache line."""
    line = 64 // array.itemsize
    memory = np.empty(array.size + line + by, array.dtype)
    start = -memory.__array_interface__["data"][0] // array.itemsize % line + by
    memory[start : start + array.size] = array
    return memory[start : start + array.size]
