"""When something counts as moved."""

from __future__ import annotations

import math

import pytest

from aiops.policy.drift import Drift, LinkDrift, Smoothed
from aiops.policy.exchange import Network


def test_a_mean_starts_at_the_first_value():
    mean = Smoothed(0.25)
    assert mean.value is None
    assert [mean.add(value) for value in (8.0, 4.0, 4.0, math.nan, math.inf)] == [
        8,
        7,
        6.25,
        6.25,
        6.25,
    ]
    assert Smoothed().add(math.nan) is None


@pytest.mark.parametrize(
    ("values", "moved"),
    [
        pytest.param([1.0] * 9, [False] * 9, id="what stays"),
        # 1.06, 1.102, 1.1314: the second is the first that is a tenth away.
        pytest.param([1.2] * 5, [False, False, False, True, True], id="a step of 20 %"),
        pytest.param([1.09] * 50, [False] * 50, id="a step of less than the share"),
        # 1.3, 1.21, 1.147, 1.1029, 1.072.
        pytest.param([2.0, 1, 1, 1, 1], [False, False, True, True, False], id="a wilder one"),
        pytest.param([1.5, 1.0, 1.0, 1.0, 1.0], [False] * 5, id="a single wild value"),
        pytest.param([0.5] * 3, [False, False, True], id="down as well as up"),
    ],
)
def test_three_values_in_a_row_make_a_move(values, moved):
    drift = Drift(0.1)
    drift.add(1.0)
    drift.settle()
    assert [drift.add(value) for value in values] == moved


def test_nothing_moves_before_it_is_settled():
    drift = Drift(0.1)
    assert not any(drift.add(value) for value in (1.0, 5.0, 9.0, 20.0))
    assert drift.value == pytest.approx(1.0 + 0.3 * 4 + 0.3 * (9 - 2.2) + 0.3 * (20 - 4.24))
    drift.settle()
    assert drift.at == drift.value


def test_an_expectation_that_was_wrong_is_a_move():
    drift = Drift(0.1)
    drift.add(0.9)
    drift.settle(0.5, forget=True)
    assert drift.value is None
    assert [drift.add(0.4) for _ in range(3)] == [False, False, True]
    drift.settle()
    assert drift.at == pytest.approx(0.4)
    assert not drift.moved
    assert not any(drift.add(0.4) for _ in range(5))


def test_what_is_within_two_standard_errors_has_not_moved():
    for error, moved in [(0.2, False), (0.1, True)]:
        drift = Drift(0.1)
        drift.add(1.0)
        drift.settle()
        assert [drift.add(1.3, error) for _ in range(30)][-1] is moved


def test_from_nothing_anything_is_a_move():
    drift = Drift(0.1)
    drift.add(0.0)
    drift.settle()
    assert not any(drift.add(0.0) for _ in range(5))
    assert [drift.add(1e-9) for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    ("network", "moved"),
    [
        (Network(1e-3, 1e-8), False),
        (Network(1.15e-3, 0.85e-8), False),
        (Network(1.5e-3, 1e-8), True),
        (Network(1e-3, 0.5e-8), True),
        (Network(1.5e-3, 1e-8, latency_error_s=3e-4), False),
        (Network(1e-3, 0.5e-8, byte_error_s=3e-9), False),
    ],
)
def test_either_number_of_a_link_moves_it(network, moved):
    links = LinkDrift()
    links.add(Network(1e-3, 1e-8))
    links.settle()
    assert [links.add(network) for _ in range(10)][-1] is moved
    assert links.moved is moved
    links.settle()
    assert not links.moved
