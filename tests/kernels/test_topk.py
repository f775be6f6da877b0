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


def outliers_at_the_sampled_lines(rng, n):
    """Data that deceives the sample: all it sees are outliers, of which there are too few."""
    x = rng.standard_normal(n, dtype=np.float32)
    lines, state = max(64, min(n // 1024, 4096)), 0x9E3779B97F4A7C15
    for line in range(lines):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        at = line * (n // lines) + (state >> 33) % (n // lines - 16)
        x[at : at + 16] = 1e6
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
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [4096, 5000, 8192, 70_001])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_large_selections_are_exact_whatever_the_distribution(name, n, level):
    x = DISTRIBUTIONS[name](np.random.default_rng(n), n).astype(np.float32)
    for k in (1, 2, n // 1000, n // 100, n // 10, n // 3, n - 1):
        index, value = select(x, k, level)
        np.testing.assert_array_equal(index, ranked_topk(x, k), err_msg=f"{k=}")
        assert bits(value) == bits(x[index])


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
