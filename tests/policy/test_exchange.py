"""The values that are decided on: what a spectrum says of a vector, and what an exchange is called."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from aiops.policy.exchange import Exchange, Load, Spectrum


def spectrum_of(x):
    """Count by exponent and three bits of the mantissa, which is monotone in the magnitude."""
    keys = np.abs(x).astype(np.float32).view(np.uint32) >> 20
    squares = x.astype(np.float64) ** 2
    counts = np.bincount(keys, minlength=4096)
    return Spectrum(counts.astype(np.int64), np.bincount(keys, squares, minlength=4096))


def exact_gain(x, k):
    squares = np.sort(x.astype(np.float64) ** 2)[::-1]
    return squares[:k].sum() / squares.sum()


# Ascending magnitudes: 5 values of 1, 4 of 2, 1 of 3; energies 5, 16, 9 of 30.
STAIRS = Spectrum(np.array([0, 5, 0, 4, 1, 0]), np.array([0.0, 5.0, 0.0, 16.0, 9.0, 0.0]))


@pytest.mark.parametrize(
    ("density", "gain"),
    [
        (0.0, 0.0),
        (0.05, 4.5 / 30),
        (0.1, 9 / 30),
        (0.2, 13 / 30),
        (0.3, 17 / 30),
        (0.5, 25 / 30),
        (0.75, 27.5 / 30),
        (1.0, 1.0),
        (1.5, 1.0),
    ],
)
def test_a_gain_is_read_off_the_largest_values_first(density, gain):
    assert STAIRS.total == 30.0
    assert STAIRS.gain(density) == pytest.approx(gain, rel=1e-14)


def test_a_vector_of_zeros_or_of_nothing_loses_nothing():
    for counts in ([0, 0], [7, 0]):
        spectrum = Spectrum(np.array(counts), np.zeros(2))
        assert spectrum.total == 0.0
        assert [spectrum.gain(density) for density in (0.001, 0.5, 1.0)] == [1.0] * 3


def test_a_vector_that_is_not_finite_measures_nothing():
    for energy in (np.inf, np.nan):
        spectrum = Spectrum(np.array([1, 1]), np.array([1.0, energy]))
        assert not spectrum.total < np.inf
        assert [spectrum.gain(density) for density in (0.001, 0.5, 1.0)] == [0.0] * 3


@given(
    arrays.arrays(
        np.float32,
        st.integers(1, 200),
        elements=st.floats(-1e3, 1e3, width=32, allow_subnormal=False),
    )
)
def test_a_gain_is_exact_at_the_edges_of_buckets_and_never_too_large(x):
    if not np.any(x):
        return
    spectrum = spectrum_of(x)
    keys = np.sort(np.abs(x).view(np.uint32) >> 20)[::-1]
    gains = [spectrum.gain(k / x.size) for k in range(1, x.size + 1)]
    for k, gain in enumerate(gains, start=1):
        exact = exact_gain(x, k)
        assert gain <= exact * (1 + 1e-9)
        if k == x.size or keys[k] != keys[k - 1]:
            assert gain == pytest.approx(exact, rel=1e-9)
    assert gains == sorted(gains)


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1, 0.5])
def test_between_edges_a_gain_of_a_gradient_is_close(density):
    rng = np.random.default_rng(7)
    x = (rng.standard_normal(200_000) * np.exp(1.5 * rng.standard_normal(200_000))).astype("f4")
    exact = exact_gain(x, int(density * x.size))
    assert 0.995 * exact < spectrum_of(x).gain(density) <= exact


def test_a_spectrum_keeps_its_own_numbers():
    counts, energies = np.array([2, 2]), np.array([2.0, 8.0])
    spectrum = Spectrum(counts, energies)
    counts[:] = 9
    energies[:] = 0.0
    assert spectrum.gain(0.5) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("n", "density", "k"),
    [
        (1000, 0.01, 10),
        (1000, 0.0001, 1),
        (999, 0.1, 99),
        (10, 1.0, 10),
        (0, 0.5, 0),
        (100, 0.29, 28),
    ],
)
def test_k_is_the_floor_and_at_least_one(n, density, k):
    assert Load(n, 8).kept(density) == k


@pytest.mark.parametrize(
    ("exchange", "operator", "route", "text"),
    [
        (Exchange("dense_ring"), "dense", "ring", "dense_ring"),
        (Exchange("allgather_doubling", 0.01), "allgather", "doubling", "allgather_doubling:0.01"),
        (Exchange("artopk_tree", 0.0012345678), "artopk", "tree", "artopk_tree:0.00123457"),
        (Exchange("topk_server", 0.1), "topk", "server", "topk_server:0.1"),
    ],
)
def test_an_exchange_names_its_operator_and_its_route(exchange, operator, route, text):
    assert (exchange.operator, exchange.route, str(exchange)) == (operator, route, text)
