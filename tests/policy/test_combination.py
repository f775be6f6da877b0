"""Combinations that are refused, each beside the nearest one that is not."""

from __future__ import annotations

import pytest

from aiops.errors import ConfigError
from aiops.policy.combination import check_streaming, check_weights, check_work
from aiops.policy.table import parse_sync, parse_weights, parse_work


@pytest.mark.parametrize(
    ("sync", "good", "bad", "sentence"),
    [
        ("bulk", "by_samples*constant", "constant", "give two equal pushes of a bulk round 2 in"),
        ("bulk", "uniform*by_staleness", "by_staleness:0.5", "2 in all, not 1"),
        ("bulk", "normalized(hinge)", "hinge", "2 in all, not 1"),
        ("bulk", "normalized(uniform*by_samples)", "uniform*by_samples", "0.5 in all, not 1"),
        ("bulk", "by_steps", "by_steps*constant*by_samples", "0.5 in all, not 1"),
        ("asynchronous", "uniform", "by_steps", "by_steps compares the pushes of one round"),
        ("ssp:2", "by_samples", "constant*by_steps:by_samples", "by_steps compares the pushes"),
        ("asynchronous", "by_staleness", "normalized(by_staleness)", "normalized makes the weight"),
        ("ssp:2", "normalized(uniform)*hinge", "normalized(uniform*hinge)", "normalized makes the"),
        ("asynchronous", "hinge", "uniform*normalized(normalized(hinge))", "normalized makes the"),
        ("asynchronous", "normalized(by_samples)", "normalized(by_steps)", "by_steps compares"),
    ],
)
def test_weights_and_sync(sync, good, bad, sentence):
    check_weights(parse_sync(sync), parse_weights(good))
    with pytest.raises(ConfigError, match=sentence):
        check_weights(parse_sync(sync), parse_weights(bad))


OVERLAPPED = {"merge": "reset", "bootstrap": "fixed"}


@pytest.mark.parametrize(
    ("good", "bad", "sentence"),
    [
        (
            ("bulk", "until_model", {"merge": "carry", "bootstrap": "fixed"}),
            ("bulk", "fixed:10", {"merge": "carry", "bootstrap": "fixed"}),
            "merge 'carry' keeps what a worker does while the model travels",
        ),
        (
            ("bulk", "until_model", {"merge": "reset", "bootstrap": "authors"}),
            ("bulk", "fixed:10", {"merge": "reset", "bootstrap": "authors"}),
            "bootstrap 'authors' is about the first overlapped push",
        ),
        (
            ("bulk:0", "fixed:10", OVERLAPPED),
            ("bulk:0", "until_model", OVERLAPPED),
            "merges no push that is 1 round old",
        ),
        (
            ("ssp:2", "until_model:1,5", OVERLAPPED),
            ("ssp:2", "until_model", OVERLAPPED),
            "ssp's bound of 2 steps would not hold",
        ),
        (
            ("ssp:10", "fixed:10", OVERLAPPED),
            ("ssp:9", "fixed:10", OVERLAPPED),
            "ssp's bound is 9 local steps and every push makes 10, so it would act as 0",
        ),
        (
            ("ssp:0", "fixed:10", OVERLAPPED),
            ("ssp:1", "fixed:2", OVERLAPPED),
            "use a bound >= 2, or 0 for lock-step",
        ),
    ],
)
def test_work_and_sync(good, bad, sentence):
    sync, work, options = good
    check_work(parse_sync(sync), parse_work(work), **options)
    sync, work, options = bad
    with pytest.raises(ConfigError, match=sentence):
        check_work(parse_sync(sync), parse_work(work), **options)


class Own:
    """A user's policies are taken at their word."""

    max_staleness = None
    overlap = True

    def __call__(self, pushes):
        return [0.5 for _ in pushes]


def test_a_users_own_policies_are_only_asked_what_their_doors_answer():
    check_weights(Own(), parse_weights("constant"))
    check_weights(parse_sync("bulk"), Own())
    check_work(Own(), Own(), merge="carry", bootstrap="authors")
    check_work(parse_sync("ssp:2"), Own(), merge="reset", bootstrap="fixed")


def test_streaming_needs_a_round_whose_pushes_are_known_beforehand():
    check_streaming(parse_sync("bulk"))
    for text in ("asynchronous", "ssp:2"):
        with pytest.raises(ConfigError, match="stream_bytes sends chunks back before a push is"):
            check_streaming(parse_sync(text))
