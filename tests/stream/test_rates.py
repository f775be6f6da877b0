"""The paper's rates: distributions that have their mean and deviation, and the literal lists."""

import statistics

import pytest

from aiops.errors import ConfigError
from aiops.stream.rates import DISTRIBUTIONS, LISTS, draw_rates


@pytest.mark.parametrize("name", ["S2", "S1'", "S2'"])
def test_drawn_rates_have_the_mean_and_the_deviation_of_the_paper(name):
    _, mean, deviation = DISTRIBUTIONS[name]
    drawn = draw_rates(name, 20_000, seed=1, least=1e-9)
    assert statistics.fmean(drawn) == pytest.approx(mean, rel=0.02)
    assert statistics.pstdev(drawn) == pytest.approx(deviation, rel=0.02)


def test_s1_is_uniform_and_cut_off_below():
    drawn = draw_rates("S1", 20_000, seed=1)
    # 38 +- 24 * sqrt(3) = [-3.57, 79.57]: (8 + 3.57) / 83.14 of it is cut.
    assert min(drawn) == 8.0
    assert max(drawn) == pytest.approx(79.57, abs=0.1)
    assert sum(rate == 8.0 for rate in drawn) / len(drawn) == pytest.approx(0.139, abs=0.01)


def test_s2_stays_within_its_bounds():
    drawn = draw_rates("S2", 20_000, seed=2)
    assert (min(drawn), max(drawn)) == pytest.approx((106, 494), abs=0.2)


def test_a_normal_rate_is_cut_off_too():
    assert min(draw_rates("S1'", 20_000, seed=3, least=20.0)) == 20.0


def test_the_same_seed_draws_the_same_rates():
    assert draw_rates("S1'", 16, seed=7) == draw_rates("S1'", 16, seed=7)
    assert draw_rates("S1'", 16, seed=7) != draw_rates("S1'", 16, seed=8)


def test_the_list_that_the_scripts_call_s2_is_one_of_s2_prime():
    rates = LISTS["S2'"]
    assert (round(statistics.fmean(rates)), round(statistics.pstdev(rates))) == (257, 27)
    assert [len(LISTS[name]) for name in ("S1", "S1'", "S2'", "VGG19")] == [8, 10, 10, 25]


@pytest.mark.parametrize(
    ("name", "n_devices", "least", "sentence"),
    [
        ("S3", 4, 8.0, "no rates are called 'S3', there are S1, S2, S1', S2'"),
        ("S1", 0, 8.0, "n_devices is 0, it must be >= 1"),
        ("S1", 4, 0.0, "least is 0.0, it must be finite and > 0"),
        ("S1", 4, float("nan"), "least is nan"),
    ],
)
def test_what_cannot_be_drawn_is_refused(name, n_devices, least, sentence):
    with pytest.raises(ConfigError, match=sentence):
        draw_rates(name, n_devices, seed=1, least=least)
