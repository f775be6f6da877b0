import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops import kernels
from aiops.kernels import _backend, reference, topk

# Every instruction set of this machine, so that one run covers the slower ones as well.
LEVELS = range(_backend.topk.simd_level() + 1) if kernels.COMPILED else [None]

INF = np.inf
TINY = np.float32(1e-45)  # the smallest denormal

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
few_values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.5, float(TINY), -2.0])
vectors = hnp.arrays("f4", st.integers(0, 200), elements=finite) | hnp.arrays(
    "f4", st.integers(0, 200), elements=few_values
)


def bits(x):
    return x.view(np.uint32).tolist()


def naive_topk(x, k):
    ranked = sorted(range(len(x)), key=lambda i: (-abs(float(x[i])), i))
    return sorted(ranked[:k])


def ranked_topk(x, k):
    order = np.lexsort((np.arange(x.size), -np.abs(x.astype(np.float64))))
    return np.sort(order[:k])


def select(x, k, level=None):
    """One instruction set's selection; the public face when there is none."""
    if level is None:
        return kernels.select_topk(x, k)
    index, value = np.empty(k, np.uint32), np.empty(k, np.float32)
    assert _backend.topk.select_topk(x, k, index, value, level) == -1
    return index, value


@given(vectors, st.data())
def test_selection_is_that_of_a_sort_by_magnitude_then_position(x, data):
    k = data.draw(st.integers(0, x.size))
    for level in LEVELS:
        index, value = select(x, k, level)
        assert index.dtype == np.uint32
        assert index.tolist() == naive_topk(x, k)
        assert bits(value) == bits(x[index])


@given(vectors, st.data())
def test_the_reference_selects_what_a_sort_selects(x, data):
    k = data.draw(st.integers(0, x.size))
    index, value = np.empty(k, np.uint32), np.empty(k, np.float32)
    assert reference.select_topk(x, k, index, value) == -1
    assert index.tolist() == naive_topk(x, k)
    assert bits(value) == bits(x[index])


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 63, 64, 65, 1000])
def test_selecting_nothing_and_selecting_all(n):
    x = np.linspace(-1, 1, n, dtype=np.float32)
    assert kernels.select_topk(x, 0)[0].size == 0
    index, value = kernels.select_topk(x, n)
    assert index.tolist() == list(range(n))
    assert bits(value) == bits(x)


@pytest.mark.parametrize(
    ("x", "k", "index"),
    [
        pytest.param([3, -3, 3, 1], 2, [0, 1], id="a tie goes to the lower position"),
        pytest.param([0.0, -0.0, 0.0], 2, [0, 1], id="zeros of both signs are equal"),
        pytest.param([0, TINY, 0, -TINY], 2, [1, 3], id="denormals exceed zero"),
        pytest.param([1, 5, 1, 5, 1], 3, [0, 1, 3], id="only the ties left over are taken"),
        pytest.param([2, 2, 2, 2], 4, [0, 1, 2, 3], id="a constant"),
        pytest.param([3.4e38, -3.4e38, 1], 1, [0], id="next to overflow"),
    ],
)
def test_which_values_are_selected(x, k, index):
    x = np.array(x, np.float32)
    for level in LEVELS:
        assert select(x, k, level)[0].tolist() == index


def sampled_lines(n, attempt):
    """Where the sample of an attempt begins each of its lines of 16, for which n^(2/3) is due."""
    lines, state = 64, 0x9E3779B97F4A7C15 + attempt
    while lines < 4096 and 1.5 * lines < n ** (2 / 3) / 16:
        lines *= 2
    stride = n // lines
    for line in range(lines):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield line * stride + ((state >> 33) * (stride - 15) >> 31)


def outliers_at_the_sampled_lines(rng, n, attempts=1):
    """Data that deceives the sample: all it sees are outliers, of which there are too few."""
    x = rng.standard_normal(n, dtype=np.float32)
    for attempt in range(attempts):
        for at in sampled_lines(n, attempt):
            x[at : at + 16] = 1e6 * (1 + rng.random(16))
    return x


def calm_at_the_sampled_lines(rng, n):
    """All that the sample sees is small, so that nearly everything becomes a candidate."""
    x = np.arange(n, dtype=np.float32) + 1
    for at in sampled_lines(n, 0):
        x[at : at + 16] = 1e-6 * rng.random(16)
    return x


DISTRIBUTIONS = {
    "normal": lambda rng, n: rng.standard_normal(n, dtype=np.float32),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n).astype(np.float32),
    "constant": lambda rng, n: np.full(n, -0.5, np.float32),
    "zeros": lambda rng, n: np.zeros(n, np.float32),
    "mostly zeros": lambda rng, n: (
        rng.standard_normal(n).astype(np.float32) * (rng.random(n) < 0.005)
    ),
    "two values": lambda rng, n: np.where(rng.random(n) < 0.3, 1, -2).astype(np.float32),
    "rounded": lambda rng, n: np.round(rng.standard_normal(n) * 4).astype(np.float32),
    "ascending": lambda rng, n: np.arange(n, dtype=np.float32),
    "descending": lambda rng, n: np.arange(n, 0, -1, dtype=np.float32),
    "denormal": lambda rng, n: rng.integers(0, 2**20, n, np.uint32).view(np.float32),
    "any finite bits": lambda rng, n: (rng.integers(0, 2**32, n, np.uint32) & 0xBFFFFFFF).view(
        np.float32
    ),
    "one loud block": lambda rng, n: np.where(np.arange(n) // 512 == 7, 100, 1).astype(np.float32),
    "a deceived sample": outliers_at_the_sampled_lines,
    "samples deceived twice": lambda rng, n: outliers_at_the_sampled_lines(rng, n, 2),
    "a sample that sees nothing": calm_at_the_sampled_lines,
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [2047, 2048, 5000, 8192, 70_001])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_large_selections_are_exact_whatever_the_distribution(name, n, level):
    x = DISTRIBUTIONS[name](np.random.default_rng(n), n).astype(np.float32)
    for k in (1, 2, n // 1000, n // 100, n // 10, n // 4, n // 3, n - 1):
        index, value = select(x, k, level)
        np.testing.assert_array_equal(index, ranked_topk(x, k), err_msg=f"{k=}")
        assert bits(value) == bits(x[index])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("offset", range(17))
def test_where_x_begins_in_a_cache_line_does_not_matter(offset, level):
    x = np.random.default_rng(offset).standard_normal(6000, dtype=np.float32)[offset:]
    index, _ = select(x, 60, level)
    np.testing.assert_array_equal(index, ranked_topk(x, 60))


@pytest.mark.parametrize("bad", [np.nan, -np.nan, INF, -INF])
@pytest.mark.parametrize(("n", "at"), [(1, 0), (17, 16), (64, 63), (40_000, 0), (40_000, 39_999)])
def test_a_value_that_is_not_finite_is_refused_with_its_position(n, at, bad):
    x = np.ones(n, np.float32)
    x[at:] = bad
    for k in {0, 1, n // 100, n}:
        index, value = np.full(k, 7, np.uint32), np.full(k, 7, np.float32)
        with pytest.raises(ValueError, match=rf"x\[{at}\] is -?(nan|inf), every value must be"):
            kernels.select_topk(x, k, index=index, value=value)
        assert (index == 7).all()
        assert (value == 7).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("at", [0, 1, 5000, 69_999])
def test_the_first_of_many_values_that_are_not_finite_is_named(at, level):
    # More of them than may be candidates, with payloads in every order.
    x = np.random.default_rng(at).standard_normal(70_000, dtype=np.float32)
    x[at:] = np.arange(0x7F800000, 0x7F800000 + x.size - at, dtype=np.uint32).view(np.float32)
    for k in (0, 1, 70, 700, 30_000, 70_000):
        index, value = np.full(k, 7, np.uint32), np.full(k, 7, np.float32)
        args = (x, k, index, value)
        assert _backend.topk.select_topk(*args, *([] if level is None else [level])) == at
        assert (index == 7).all()
        assert (value == 7).all()


@pytest.mark.parametrize("k", [-1, 4])
def test_k_must_lie_between_nothing_and_all(k):
    with pytest.raises(ValueError, match=rf"k is {k}, it must be between 0 and the 3 values"):
        kernels.select_topk(np.ones(3, np.float32), k)


def test_a_fractional_k_is_a_type_error():
    with pytest.raises(TypeError, match="float"):
        kernels.select_topk(np.ones(3, np.float32), 1.0)


def test_selection_fills_and_returns_the_arrays_it_is_given():
    x = np.array([1, -9, 3], np.float32)
    index, value = np.empty(2, np.uint32), np.empty(2, np.float32)
    got = kernels.select_topk(x, 2, index=index, value=value)
    assert got[0] is index
    assert got[1] is value
    assert (index.tolist(), value.tolist()) == ([1, 2], [-9, 3])


def test_more_values_than_positions_in_32_bits_are_refused(monkeypatch):
    monkeypatch.setattr(topk, "MOST_VALUES", 2)
    with pytest.raises(ValueError, match="x has 3 values, positions in 32 bits reach 2"):
        kernels.select_topk(np.ones(3, np.float32), 1)


def feed(residual, update, out, k, level=None):
    """One instruction set's step, and what the twin calls bad."""
    index, value = np.full(k, 7, np.uint32), np.full(k, 7, np.float32)
    args = [residual, update, out, k, index, value] + ([] if level is None else [level])
    return index, value, *_backend.topk.feedback_topk(*args)


def fed(residual, update, k):
    """What a step gives, by the reference: index, value, the new residual and the energies."""
    index, value = np.empty(k, np.uint32), np.empty(k, np.float32)
    out = np.empty_like(residual)
    bad, *energies = reference.feedback_topk(residual, update, out, k, index, value)
    assert bad == -1
    return index, value, out, energies


def same_bits(one, two):
    np.testing.assert_array_equal(one.view(np.uint32), two.view(np.uint32))


def check_step(residual, update, k, level):
    index, value, rest, energies = fed(residual, update, k)
    for name in ("apart", "residual", "update"):
        left, right = residual.copy(), update.copy()
        out = {"apart": np.empty_like(left), "residual": left, "update": right}[name]
        got_index, got_value, *got = feed(left, right, out, k, level)
        assert got == [-1, *energies], name
        same_bits(got_index, index)
        same_bits(got_value, value)
        same_bits(out, rest)
        if out is not left:
            same_bits(left, residual)
        if out is not right:
            same_bits(right, update)


@given(vectors, st.data())
def test_a_step_adds_selects_and_sets_to_zero(residual, data):
    k = data.draw(st.integers(0, residual.size))
    residual /= 2
    update = residual[::-1].copy()
    for level in LEVELS:
        check_step(residual, update, k, level)


def test_the_reference_step_is_its_three_passes():
    rng = np.random.default_rng(3)
    residual, update = rng.standard_normal((2, 1000), dtype=np.float32)
    total = residual + update
    index, value, rest, (energy, moved_energy) = fed(residual, update, 30)
    assert index.tolist() == naive_topk(total, 30)
    assert bits(value) == bits(total[index])
    total[index] = 0
    assert bits(rest) == bits(total)
    np.testing.assert_allclose(moved_energy, np.square(value.astype(np.float64)).sum())
    wide = (residual + update).astype(np.float64)
    np.testing.assert_allclose(energy, np.square(wide).sum())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [2047, 5001, 70_001])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_steps_are_exact_whatever_the_distribution(name, n, level):
    rng = np.random.default_rng(n)
    residual = DISTRIBUTIONS[name](rng, n).astype(np.float32)
    update = np.zeros_like(residual)
    if name in {"normal", "rounded", "mostly zeros"}:
        update[:] = rng.permutation(residual)
    for k in sorted({0, 1, n // 1000, n // 100, n // 10, n // 3, n}):
        check_step(residual, update, k, level)


def test_a_large_step_past_the_cache_begins_anywhere_in_a_line():
    n, k = (1 << 22) + 100, 500
    memory = np.full(n + 64, 7, np.float32)
    residual, update = np.zeros((2, n), np.float32)
    residual[::1000] = np.arange(residual[::1000].size)
    update[::999] = 0.5
    index, value, rest, energies = fed(residual, update, k)
    for offset in (0, 1, 4, 15):
        out = memory[offset : offset + n]
        got = feed(residual, update, out, k)
        assert got[0].tolist() == index.tolist()
        assert bits(got[1]) == bits(value)
        assert got[2:] == (-1, *energies)
        np.testing.assert_array_equal(out, rest)
        assert (memory[offset + n :] == 7).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [1, 15, 16, 17, 63, 64, 65, 127, 129])
def test_steps_of_few_values_are_exact(n, level):
    residual, update = np.random.default_rng(n).standard_normal((2, n), dtype=np.float32)
    for k in sorted({0, 1, n // 2, n}):
        check_step(residual, update, k, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("n", "at"), [(1, 0), (17, 16), (70_000, 0), (70_000, 69_998)])
@pytest.mark.parametrize(
    "bad", [(np.nan, 0), (0, -INF), (INF, -INF), (3e38, 3e38), (-3e38, -3e38)], ids=str
)
def test_a_sum_that_is_not_finite_is_named_and_nothing_is_moved(n, at, bad, level):
    rng = np.random.default_rng(n)
    residual, update = rng.standard_normal((2, n), dtype=np.float32)
    residual[at:], update[at:] = bad
    with np.errstate(over="ignore", invalid="ignore"):
        total = residual + update
    for k in {0, 1, n // 100, n // 3, n}:
        out = np.empty_like(residual)
        index, value, got, *_ = feed(residual, update, out, k, level)
        assert got == at
        np.testing.assert_array_equal(out, total)
        assert (index == 7).all()
        assert (value == 7).all()
        left = residual.copy()
        assert feed(left, update, left, k, level)[2] == at
        np.testing.assert_array_equal(left, total)


def test_the_face_of_a_step_fills_and_returns_what_it_is_given():
    residual, update = np.array([1, 0, 2], np.float32), np.array([0, -4, 1], np.float32)
    out, index, value = np.empty(3, np.float32), np.empty(2, np.uint32), np.empty(2, np.float32)
    got = kernels.feedback_topk(residual, update, 2, out=out, index=index, value=value)
    assert got.index is index
    assert got.value is value
    assert (index.tolist(), value.tolist()) == ([1, 2], [-4, 3])
    assert out.tolist() == [1, 0, 0]
    assert (got.energy, got.moved_energy) == (26.0, 25.0)
    fresh = kernels.feedback_topk(residual, update, 2)
    assert (fresh.index.tolist(), fresh.value.tolist()) == ([1, 2], [-4, 3])
    assert residual.tolist() == [1, 0, 2]


def test_the_face_of_a_step_refuses_what_does_not_fit():
    x = np.arange(4, dtype=np.float32)
    with pytest.raises(ValueError, match="update has 3 values, it must have 4, as in residual"):
        kernels.feedback_topk(x, x[:3].copy(), 1)
    with pytest.raises(ValueError, match="out has 3 values, it must have 4"):
        kernels.feedback_topk(x, x, 1, out=x[:3].copy())
    with pytest.raises(ValueError, match="k is 5, it must be between 0 and the 4 values of resid"):
        kernels.feedback_topk(x, x, 5)
    wide = np.zeros(8, np.float32)
    for out, other in (("residual", 0), ("update", 1)):
        pair = [np.zeros(4, np.float32), np.zeros(4, np.float32)]
        pair[other] = wide[:4]
        with pytest.raises(ValueError, match=f"out and {out} overlap in memory"):
            kernels.feedback_topk(*pair, 1, out=wide[1:5])
    index, value = np.zeros(4, np.uint32), np.zeros(4, np.float32)
    for name, array in (("residual", x), ("update", wide[:4]), ("out", wide[4:])):
        arrays = {"residual": x, "update": wide[:4], "out": wide[4:]}
        with pytest.raises(ValueError, match=f"value and {name} overlap in memory"):
            kernels.feedback_topk(**arrays, k=4, value=array)
        with pytest.raises(ValueError, match=f"index and {name} overlap in memory"):
            kernels.feedback_topk(**arrays, k=4, index=array.view(np.uint32))
    with pytest.raises(ValueError, match="value and index overlap in memory"):
        kernels.feedback_topk(x, x, 4, index=index, value=index.view(np.float32))
    value.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        kernels.feedback_topk(x, x, 1, out=value)


def test_the_face_of_a_step_names_a_sum_that_overflows():
    huge = np.array([0, 3e38], np.float32)
    with pytest.raises(ValueError, match="residual plus update is inf at position 1, not finite"):
        kernels.feedback_topk(huge, huge, 1)


@pytest.mark.big
@pytest.mark.timeout(600)
@pytest.mark.skipif(not kernels.COMPILED, reason="numpy would need several copies of 8 GiB")
def test_positions_beyond_31_bits():
    n = 2**31 + 8
    # Untouched zeros take no memory.
    x = np.zeros(n, np.float32)
    last = np.arange(n - 3, n, dtype=np.uint32)
    kernels.scatter_add(x, last, np.array([1, -2, 3], np.float32))
    assert kernels.gather(x, last).tolist() == [1, -2, 3]
    assert kernels.select_topk(x, 2)[0].tolist() == [n - 2, n - 1]
    assert kernels.select_topk(x, 4)[0].tolist() == [0, n - 3, n - 2, n - 1]
    x[-1] = np.nan
    assert kernels.first_nonfinite(x) == n - 1
