import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops import kernels
from aiops.kernels import _backend, histogram, reference
from aiops.kernels.reference.histogram import looked_at
from aiops.policy.exchange import Spectrum
from tests.kernels.kit import BAD, finite, noise, shifted

DENSITIES = (0.1, 0.033, 0.011, 0.004, 0.001)


def by_all(x, block=1024, every=1, seed=0):
    """What every twin writes, the same bits."""
    results = []
    for twin in (reference.energy_histogram, _backend.histogram.energy_histogram):
        counts, energies = np.full(4096, -1, np.int64), np.full(4096, -1.0)
        assert twin(x, block, every, seed, counts, energies) == -1
        results.append((counts, energies))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1].view(np.uint64), results[1][1].view(np.uint64))
    return results[0]


def naive(x):
    """Squares are added in no special order."""
    counts, energies = np.zeros(4096, np.int64), np.zeros(4096)
    for value in x:
        bucket = int(value.view(np.uint32) & 0x7FFFFFFF) >> 19
        counts[bucket] += 1
        energies[bucket] += float(value) ** 2
    return counts, energies


def heavy(n, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(n) * generator.lognormal(0, 1.5, n)
    return x.astype(np.float32)


samples = {
    "block": st.integers(1, 40),
    "every": st.integers(1, 6),
    "seed": st.integers(0, 2**64 - 1),
}


@given(x=hnp.arrays("f4", st.integers(0, 300), elements=finite), **samples)
def test_every_value_looked_at_is_counted_by_its_magnitude(x, block, every, seed):
    seen = x[looked_at(x.size, block, every, seed)]
    counts, energies = by_all(x, block, every, seed)
    want = naive(seen)
    np.testing.assert_array_equal(counts, want[0])
    np.testing.assert_allclose(energies, want[1], rtol=1e-13)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 1023, 1024, 1025, 100_003])
@pytest.mark.parametrize("by", [0, 1, 3])
def test_the_twins_agree_wherever_the_vector_begins(n, by):
    by_all(shifted(heavy(n), by))
    by_all(shifted(heavy(n), by), block=1001, every=3, seed=7)


def test_the_whole_does_not_depend_on_blocks():
    x = heavy(50_000)
    want = by_all(x)
    for block, every, seed in (
        (1, 1, 0),
        (1001, 1, 5),
        (2**31 - 1, 1, 0),
        (2**31 - 1, 2**31 - 1, 3),
    ):
        for got, wanted in zip(by_all(x, block, every, seed), want, strict=True):
            np.testing.assert_array_equal(got, wanted)


@given(n=st.integers(0, 2000), **samples)
def test_one_block_of_each_stretch_is_looked_at(n, block, every, seed):
    position = looked_at(n, block, every, seed)
    found = [int(p) for p in position]
    want = []
    for start in range(0, n, block * every):
        inside = [p for p in found if start <= p < start + block * every]
        assert inside, "a stretch is left out"
        assert (inside[0] - start) % block == 0
        assert inside == list(range(inside[0], min(inside[0] + block, n)))
        want += inside
    assert found == want


def test_places_are_spread_over_the_stretch_and_differ_by_seed():
    starts = looked_at(8 * 10_000, 1, 8, 0) % 8
    share = np.bincount(starts, minlength=8) / 10_000
    assert abs(share - 1 / 8).max() < 0.015
    other = looked_at(8 * 10_000, 1, 8, 1) % 8
    assert abs((starts == other).mean() - 1 / 8) < 0.015
    assert looked_at(40, 2, 5, 42).tolist() == [6, 7, 10, 11, 22, 23, 32, 33]


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        (0.0, 0),
        (-0.0, 0),
        (1e-45, 0),
        (1.0, 127 << 4),
        (-1.0, 127 << 4),
        (1.0625, 127 << 4 | 1),
        (3.4028235e38, (255 << 4) - 1),
    ],
)
def test_a_bucket_is_the_exponent_and_four_bits(value, bucket):
    counts, energies = kernels.energy_histogram(np.full(7, value, np.float32))
    assert np.flatnonzero(counts).tolist() == [bucket]
    assert counts[bucket] == 7
    assert energies[bucket] == pytest.approx(7 * float(np.float32(value)) ** 2, rel=1e-15)


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("at", [0, 5, 1024, 4999])
def test_the_first_value_that_is_not_finite_is_named(value, at):
    x = noise(5000)
    x[at] = value
    x[-1] = value
    for twin in (reference.energy_histogram, _backend.histogram.energy_histogram):
        out = np.full(4096, -1, np.int64), np.full(4096, -1.0)
        assert twin(x, 100, 1, 0, *out) == at
        assert (out[0] == -1).all()
        assert (out[1] == -1).all()
    with pytest.raises(ValueError, match=rf"x\[{at}\] is .*, every value must be finite"):
        kernels.energy_histogram(x)


def test_a_sample_judges_what_it_looks_at():
    x = noise(5000)
    seen = looked_at(x.size, 10, 7, 3)
    x[np.setdiff1d(np.arange(x.size), seen)] = np.nan
    assert kernels.energy_histogram(x, block=10, every=7, seed=3)[0].sum() == seen.size
    x[seen[100:]] = np.inf
    for twin in (reference.energy_histogram, _backend.histogram.energy_histogram):
        out = np.empty(4096, np.int64), np.empty(4096)
        assert twin(x, 10, 7, 3, *out) == seen[100]


@pytest.mark.parametrize(
    ("name", "value"),
    [("block", 0), ("block", 2**31), ("every", 0), ("every", 2**31), ("seed", -1), ("seed", 2**64)],
)
def test_settings_out_of_range_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}, it must be between"):
        kernels.energy_histogram(noise(4), **{name: value})


def exact_gain(x, density):
    squares = np.sort(np.square(x, dtype=np.float64))[::-1]
    return squares[: int(density * x.size)].sum() / squares.sum()


@pytest.mark.parametrize("data", [noise, heavy])
def test_its_spectrum_is_the_gain_of_top_k(data):
    x = data(400_000)
    whole = Spectrum(*kernels.energy_histogram(x))
    part = Spectrum(*kernels.energy_histogram(x, block=64, every=4, seed=1))
    for density in DENSITIES:
        want = exact_gain(x, density)
        assert whole.gain(density) == pytest.approx(want, rel=5e-3)
        assert part.gain(density) == pytest.approx(want, rel=0.1)
    assert whole.total == pytest.approx(np.square(x, dtype=np.float64).sum(), rel=1e-12)


def test_there_are_as_many_buckets_as_magnitudes_have_values():
    counts, energies = kernels.energy_histogram(noise(10))
    assert (counts.dtype, counts.shape) == (np.int64, (histogram.BUCKETS,))
    assert (energies.dtype, energies.shape) == (np.float64, (histogram.BUCKETS,))
