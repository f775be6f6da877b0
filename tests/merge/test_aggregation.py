"""Aggregations against numbers worked out by hand, and against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from aiops.errors import ConfigError, Refused
from aiops.merge.aggregation import krum, mean, median, trimmed_mean


def vectors(*rows):
    return [np.array(row, np.float32) for row in rows]


def combined(rule, rows, weights=None):
    updates = vectors(*rows)
    out = np.full(len(rows[0]), 7, np.float32)
    rule.combine(updates, weights or [1 / len(rows)] * len(rows), out)
    return out.tolist()


@pytest.mark.parametrize(
    ("rule", "rows", "expected"),
    [
        pytest.param(mean(), [[1, -4], [3, 0]], [2, -2], id="mean of two"),
        pytest.param(median(), [[1, 5], [9, 2], [2, 8]], [2, 5], id="median of three"),
        pytest.param(median(), [[1], [9], [2], [100]], [5.5], id="median of four"),
        pytest.param(median(), [[4]], [4], id="median of one"),
        pytest.param(median(), [[4], [8]], [6], id="median of two is the mean"),
        pytest.param(
            trimmed_mean(0.25), [[1], [2], [6], [1000]], [4], id="one of four cut at each end"
        ),
        pytest.param(
            trimmed_mean(0.1), [[-900], [3], [5], [7], [9]], [5], id="ceil(0.5) is one of five"
        ),
        pytest.param(
            trimmed_mean(0.2),
            [[v] for v in (0, 1, 2, 3, 4, 5, 6, 7, 8, 90)],
            [4.5],
            id="two of ten, no third",
        ),
        pytest.param(trimmed_mean(0.4), [[1], [5], [90]], [5], id="never more than all but one"),
        pytest.param(trimmed_mean(0.4), [[1], [5]], [3], id="of two nothing is cut"),
    ],
)
def test_what_pushes_come_to(rule, rows, expected):
    assert combined(rule, rows) == expected


def test_the_mean_is_the_weighted_sum():
    assert combined(mean(), [[1], [3]], [0.5, 2.0]) == [6.5]


@pytest.mark.parametrize("share", [0.07, 0.29])
def test_a_share_of_a_hundred_cuts_that_many_and_no_more(share):
    values = np.arange(100, dtype=np.float32) ** 3
    cut = round(100 * share)
    np.testing.assert_allclose(
        combined(trimmed_mean(share), [[v] for v in values]), values[cut : 100 - cut].mean()
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 31])
def test_any_number_of_pushes_is_sorted_in_pieces_like_numpy_does_it(monkeypatch, n):
    monkeypatch.setattr("aiops.merge.aggregation.SORTED_VALUES", 40)
    rows = np.random.default_rng(n).standard_normal((n, 101)).astype(np.float32)
    np.testing.assert_allclose(combined(median(), rows), np.median(rows, axis=0), rtol=1e-6)
    cut = min(-(-n // 4), (n - 1) // 2)
    expected = np.sort(rows, axis=0)[cut : n - cut].mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(combined(trimmed_mean(0.25), rows), expected, rtol=1e-6)


def test_large_values_do_not_overflow_on_the_way():
    assert combined(median(), [[3e38], [3e38]]) == [np.float32(3e38)]
    assert combined(trimmed_mean(0.1), [[3e38]] * 4) == [np.float32(3e38)]


# Squared distances of 0, 1, 2, 6, 100 to their two nearest others sum to 5, 2, 5, 41, 94^2 + 98^2.
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (krum(1), [0, 1, 0, 0, 0]),
        (krum(1, 2), [0.5, 0.5, 0, 0, 0]),
        # With f = 0 three others count: 41, 27, 21, 77, 26000: the third, then the second.
        (krum(0, 2), [0, 0.5, 0.5, 0, 0]),
    ],
)
def test_krum_chooses_the_pushes_that_lie_closest_to_others(rule, expected):
    distances = rule.compare(vectors([0], [1], [2], [6], [100]))
    assert rule.select(distances) == expected


def test_krum_adds_distances_over_pieces_and_counts_squares():
    rule = krum(1)
    pieces = rule.compare(vectors([0, 3], [4, 0])) + rule.compare(vectors([1], [1 - 12]))
    assert pieces.tolist() == [[0, 169], [169, 0]]


def test_a_push_of_huge_values_is_far_from_everybody_and_from_another_one():
    rows = vectors([0], [1], [2], [3e38], [-3e38])
    rule = krum(1)
    assert rule.select(rule.compare(rows)) == [0, 1, 0, 0, 0]


def test_krum_refuses_a_round_with_too_few_pushes_to_outvote_a_wrong_one():
    assert (krum(1).least, krum(0).least, krum(2, 4).least, krum(1, 9).least) == (5, 3, 8, 12)
    with pytest.raises(Refused, match="krum:1,2 takes rounds of at least 5 pushes, this one has 4"):
        krum(1, 2).select(np.zeros((4, 4)))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: trimmed_mean(0.5), r"trimmed_mean's share is 0.5, it must be in \(0, 0.5\)"),
        (lambda: trimmed_mean(0), "share is 0"),
        (lambda: trimmed_mean(float("nan")), "share is nan"),
        (lambda: krum(-1), "krum's f is -1, it must be a whole number >= 0"),
        (lambda: krum(1.5), "krum's f is 1.5"),
        (lambda: krum(1, 0), "krum's m is 0, it must be a whole number >= 1"),
        (lambda: krum(True), "krum's f is True"),
    ],
)
def test_what_cannot_be_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()
