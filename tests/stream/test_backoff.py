"""Waits between tries: they double, are capped and spread, and end."""

import random

import pytest

from aiops.stream.backoff import Backoff


class Fixed(random.Random):
    def uniform(self, a, b):
        return b


def test_waits_double_up_to_five_seconds():
    backoff = Backoff(give_up_s=1000.0, rng=Fixed())
    waits = [backoff.failed(0.0) for _ in range(8)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_waits_of_two_workers_differ_and_are_at_least_half():
    one, other = (Backoff(give_up_s=1000.0, rng=random.Random(seed)) for seed in (1, 2))
    ours, theirs = ([each.failed(0.0) for _ in range(5)] for each in (one, other))
    assert ours != theirs
    for wait, whole in zip(ours, [0.1, 0.2, 0.4, 0.8, 1.6], strict=True):
        assert whole / 2 <= wait <= whole


def test_it_gives_up_when_the_time_is_over_and_not_before():
    backoff = Backoff(give_up_s=2.0, rng=Fixed())
    assert backoff.failed(10.0) == 0.1
    assert backoff.failed(11.95) == pytest.approx(0.05)
    assert backoff.failed(12.0) is None


def test_an_answer_starts_it_anew():
    backoff = Backoff(give_up_s=2.0, rng=Fixed())
    backoff.failed(0.0)
    backoff.failed(1.0)
    assert backoff.failing
    backoff.reached()
    assert not backoff.failing
    assert backoff.failed(100.0) == 0.1
