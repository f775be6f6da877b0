import numpy as np
import pytest
from hypothesis import given

from aiops import kernels
from aiops.kernels import _backend, reference
from tests.kernels.kit import (
    BAD,
    LEVELS,
    assert_same_bits,
    noise,
    on_level,
    rounded,
    shifted,
    vectors,
    weights,
)

SIZES = [0, 1, 15, 16, 17, 63, 64, 65, 255, 1023, 4096, 4097, 10_000]

each_level = pytest.mark.parametrize("level", LEVELS)

# Every kernel, in words that begin with its name: how many vectors it takes, and its arguments made
# of them.
KERNELS = {
    "weighted_add": (2, lambda v: (v[0], v[1], 0.3)),
    "lerp": (2, lambda v: (v[0], v[1], 0.3)),
    "merge": (4, lambda v: (tuple(v[:3]), (0.3, -0.7, 1e-3), v[3])),
    "merge_checked": (5, lambda v: (v[0], tuple(v[1:4]), (0.3, -0.7, 1e-3), 0.9, v[4], False)),
    "merge_checked past the caches": (
        3, lambda v: (v[0], (v[1],), (0.3,), 0.9, v[2], True),
    ),
    "merge_checked in place": (2, lambda v: (v[0], (v[1],), (0.3,), 1.0, v[0], False)),
    "merge_checked of nothing": (2, lambda v: (v[0], (), (), 1.0, v[1], False)),
    "copy_checked": (2, lambda v: (v[0], v[1], False)),
    "copy_checked past the caches": (2, lambda v: (v[0], v[1], True)),
    "swap_update": (4, lambda v: tuple(v)),
}  # fmt: skip

each_kernel = pytest.mark.parametrize("label", KERNELS)


def assert_twins_agree(label, vectors, level, shifts=(0,)):
    count, arguments = KERNELS[label]
    name = label.partition(" ")[0]
    twins = [vector.copy() for vector in vectors[:count]]
    mine = [shifted(v, shifts[i % len(shifts)]) for i, v in enumerate(vectors[:count])]
    got = on_level(getattr(_backend.merge, name), *arguments(mine), level=level)
    want = getattr(reference, name)(*arguments(twins))
    assert got == want
    for one, other in zip(mine, twins, strict=True):
        assert_same_bits(one, other)


@each_level
@each_kernel
@pytest.mark.parametrize("n", SIZES)
def test_every_instruction_set_equals_the_reference_at_every_size(label, n, level):
    assert_twins_agree(label, [noise(n, seed) for seed in range(5)], level)


@each_level
@each_kernel
@pytest.mark.parametrize("shifts", [(1,), (4,), (15,), (0, 1, 2, 3, 5)])
def test_every_alignment_gives_the_same_bits(label, shifts, level):
    assert_twins_agree(label, [noise(300, seed) for seed in range(5)], level, shifts)


@each_level
@pytest.mark.parametrize("label", ["merge", "swap_update"])
def test_what_exceeds_the_caches_gives_the_same_bits(label, level):
    n = 8 * 2**20 // 16 + 5
    assert_twins_agree(label, [noise(n, seed) for seed in range(4)], level, (4, 5))


@each_kernel
@given(vectors(5))
def test_anything_gives_the_same_bits(label, arrays):
    for level in LEVELS:
        assert_twins_agree(label, arrays, level)


# -- weighted_add --------------------------------------------------------------------------------


@given(vectors(2), weights)
def test_weighted_add_rounds_the_product_and_then_the_sum(pair, weight):
    acc, x = pair
    want = [rounded(a + rounded(weight * b)) for a, b in zip(acc.tolist(), x.tolist(), strict=True)]
    twin = acc.copy()
    kernels.weighted_add(acc, x, weight)
    reference.weighted_add(twin, x, weight)
    assert_same_bits(acc, want)
    assert_same_bits(twin, want)


def test_weighted_add_without_a_weight_adds():
    acc = np.array([1, 2], np.float32)
    kernels.weighted_add(acc, np.array([10, 20], np.float32))
    assert acc.tolist() == [11, 22]


def test_an_accumulator_may_be_added_to_itself():
    acc = noise(1000)
    want = acc + np.float32(0.5) * acc
    kernels.weighted_add(acc, acc, 0.5)
    assert_same_bits(acc, want)


# -- lerp ----------------------------------------------------------------------------------------


@given(vectors(2), weights)
def test_lerp_rounds_difference_product_and_sum(pair, a):
    x, y = pair
    want = [
        rounded(p + rounded(a * rounded(q - p)))
        for p, q in zip(x.tolist(), y.tolist(), strict=True)
    ]
    twin = x.copy()
    kernels.lerp(x, y, a)
    reference.lerp(twin, y, a)
    assert_same_bits(x, want)
    assert_same_bits(twin, want)


def test_lerp_equals_the_numpy_expression():
    x, y = noise(10_000, 1), noise(10_000, 2)
    want = x + np.float32(0.3) * (y - x)
    kernels.lerp(x, y, 0.3)
    assert_same_bits(x, want)


def test_a_vector_may_move_towards_itself():
    x = noise(100)
    want = x.copy()
    kernels.lerp(x, x, 0.5)
    assert_same_bits(x, want)


# -- swap_update ---------------------------------------------------------------------------------


@given(vectors(3))
def test_swap_update_takes_the_update_out_and_the_new_model_in(arrays):
    x, base, new = arrays
    want = [rounded(a - b) for a, b in zip(x.tolist(), base.tolist(), strict=True)]
    twins, kept = [a.copy() for a in arrays], new.copy()
    out, twin = np.empty_like(x), np.empty_like(x)
    kernels.swap_update(x, base, new, out=out)
    reference.swap_update(*twins, twin)
    for update, mine, theirs in ((out, x, base), (twin, twins[0], twins[1])):
        assert_same_bits(update, want)
        assert_same_bits(mine, kept)
        assert_same_bits(theirs, kept)
    assert_same_bits(new, kept)


# -- copy_checked --------------------------------------------------------------------------------


@each_level
@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("at", [0, 5, 64, 299])
def test_copy_checked_copies_all_and_names_the_first(at, bad, bypass, level):
    x = noise(300)
    x[at:] = bad
    out = shifted(noise(300), 7)
    assert on_level(_backend.merge.copy_checked, x, out, bypass, level=level) == at
    assert_same_bits(out, x)


# -- first_nonfinite -----------------------------------------------------------------------------


@given(vectors(1))
def test_first_nonfinite_is_where_a_plain_search_finds_it(arrays):
    (x,) = arrays
    want = next((i for i, v in enumerate(x.tolist()) if v - v != 0), -1)
    assert kernels.first_nonfinite(x) == want
    assert reference.first_nonfinite(x) == want


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1, 511, 512, 1023, 1024, 1029])
def test_the_first_of_several_is_named(at, bad):
    x = np.full(1030, np.finfo(np.float32).max)
    x[at:] = bad
    assert kernels.first_nonfinite(x) == at


def test_the_largest_and_smallest_numbers_are_finite():
    x = np.tile(np.array([3.4028235e38, -3.4028235e38, 1e-45, -0.0], np.float32), 1000)
    assert kernels.first_nonfinite(x) == -1
