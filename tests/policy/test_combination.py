"""Combinations that are refused, each beside the nearest one that is not."""

from __future__ import annotations

import pytest

from aiops.errors import ConfigError
from aiops.policy.combination import (
    check_drift,
    check_fold,
    check_members,
    check_streaming,
    check_weights,
    check_work,
)
from aiops.policy.table import parse_sync, parse_weights, parse_work
from aiops.policy.weight import by_steps, normalized, product


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
        ("dssp:2,5", "by_samples", "by_steps", "by_steps compares the pushes"),
        ("dssp:2,5", "by_staleness", "normalized(by_staleness)", "normalized makes the weight"),
        ("asynchronous", "by_staleness", "normalized(by_staleness)", "normalized makes the weight"),
        ("ssp:2", "normalized(uniform)*hinge", "normalized(uniform*hinge)", "normalized makes the"),
        ("asynchronous", "hinge", "uniform*normalized(normalized(hinge))", "normalized makes the"),
        ("asynchronous", "normalized(by_samples)", "normalized(by_steps)", "by_steps compares"),
        (
            "buffered:3",
            "uniform*by_staleness",
            "by_staleness",
            "pushes of a buffer 2 in all, not 1",
        ),
        ("buffered:3", "by_samples*hinge", "normalized(hinge)", "normalized divides by the sum"),
        ("buffered:3", "by_steps", "by_samples*by_steps", "0.5 in all, not 1: multiply one share"),
        (
            "bulk",
            "by_samples*linear_scaling:640",
            "linear_scaling:640",
            "2 in all, not 1: multiply",
        ),
        (
            "bulk",
            "normalized(hinge)*linear_scaling:7",
            "normalized(hinge*linear_scaling:7)",
            "so that it does nothing: multiply by it outside",
        ),
        (
            "asynchronous",
            "constant*linear_scaling:7,inf",
            "linear_scaling:7*linear_scaling:9",
            "scale the learning rate twice: use one linear_scaling",
        ),
        (
            "bulk",
            "by_steps*linear_scaling:7",
            "by_steps:linear_scaling:7",
            "divide by a sum that linear_scaling is a factor of",
        ),
        (
            "ssp:2",
            "constant*linear_scaling:64",
            "normalized(linear_scaling:64)",
            "so that it does nothing",
        ),
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
            ("dssp:2,5", "until_model:1,5", OVERLAPPED),
            ("dssp:2,5", "until_model", OVERLAPPED),
            "dssp's low of 2 steps would not hold",
        ),
        (
            ("dssp:5,10", "fixed:5", OVERLAPPED),
            ("dssp:4,10", "fixed:5", OVERLAPPED),
            "dssp's low is 4 local steps and every push makes 5, so it would act as 0",
        ),
        (
            ("dssp:0,5", "fixed:5", OVERLAPPED),
            ("dssp:5,9", "fixed:5", OVERLAPPED),
            "nobody ever gets a further one: use a high >= 10",
        ),
        (
            ("buffered:2", "until_model", {"merge": "carry", "bootstrap": "fixed"}),
            ("buffered:2", "until_model", {"merge": "eager", "bootstrap": "fixed"}),
            "a buffered push is answered before it is known which",
        ),
        (
            ("ssp:2", "fill_the_sync:1,5", OVERLAPPED),
            ("ssp:2", "fill_the_sync", OVERLAPPED),
            "because fill_the_sync without a cap goes on while it waits",
        ),
        (
            ("bulk:1", "fill_the_sync", {"merge": "partial", "bootstrap": "fixed"}),
            ("bulk:0", "fill_the_sync", OVERLAPPED),
            "merges no push that is 1 round old",
        ),
        (
            ("bulk:0", "esync:4", OVERLAPPED),
            ("asynchronous", "esync:4", OVERLAPPED),
            "lets all workers end a round at the same time, and sync Asynchronous.* has no rounds",
        ),
        (
            ("bulk:1", "esync_prototype", OVERLAPPED),
            ("ssp:3", "esync_prototype", OVERLAPPED),
            "has no rounds: use sync bulk:0, or fixed work",
        ),
        (
            ("bulk:0", "esync", OVERLAPPED),
            ("bulk:0", "esync", {"merge": "carry", "bootstrap": "fixed"}),
            "merge 'carry' keeps what a worker does while the model travels",
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


class Halves:
    """A user's rule that only knows whole updates."""

    def __call__(self, pushes):
        return [0.5 for _ in pushes]


class Ones(Halves):
    """One that knows each push by itself as well."""

    def raw(self, push):
        return 1.0

    def scale(self, pushes):
        return 0.5


@pytest.mark.parametrize("sync", ["asynchronous", "ssp:2", "dssp:2,5", "buffered:2"])
def test_only_bulk_rounds_are_added_up_as_they_come(sync):
    check_fold(parse_sync("bulk"), parse_weights("by_samples*by_staleness"))
    with pytest.raises(ConfigError, match="fold 'arrival' adds the pushes of a bulk round as they"):
        check_fold(parse_sync(sync), parse_weights("by_samples"))


@pytest.mark.parametrize(
    "wrap",
    [lambda rule: rule, by_steps, normalized, product],
    ids=["alone", "by_steps", "normalized", "product"],
)
def test_only_weights_of_each_push_are_added_up_as_they_come(wrap):
    check_fold(parse_sync("bulk"), wrap(Ones()))
    with pytest.raises(ConfigError, match=r"Halves object .* has no 'raw' and 'scale'"):
        check_fold(parse_sync("bulk"), wrap(Halves()))


def test_a_buffer_is_no_larger_than_all_workers_fill():
    check_members(parse_sync("buffered:4"), max_members=4)
    check_members(parse_sync("bulk"), max_members=1)
    with pytest.raises(ConfigError, match="waits for 5 pushes and there are at most 4 workers"):
        check_members(parse_sync("buffered:5"), max_members=4)


MIXED = {"merge": "mix", "bootstrap": "fixed"}


@pytest.mark.parametrize(
    ("sync", "options", "sentence"),
    [
        ("asynchronous", MIXED, "takes one fragment in a round, from all workers the same"),
        ("ssp:2", MIXED, "does not wait for them all: use sync bulk"),
        ("bulk", MIXED | {"merge": "carry"}, "merge 'carry' is for models that come whole"),
        ("bulk", MIXED | {"bootstrap": "authors"}, "bootstrap 'authors' is about NBSync's first"),
    ],
)
def test_fragments(sync, options, sentence):
    check_work(parse_sync("bulk:0"), parse_work("fragments:4,100,5"), **MIXED)
    check_work(parse_sync("bulk"), parse_work("fragments:4,100,5"), **MIXED)
    with pytest.raises(ConfigError, match=sentence):
        check_work(parse_sync(sync), parse_work("fragments:4,100,5"), **options)


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


DRIFT = {"merge": "partial", "beta": 0.5, "bootstrap": "fixed"}


@pytest.mark.parametrize(
    ("bad", "options", "sentence"),
    [
        (
            ("asynchronous", "by_staleness", "until_model"),
            {},
            "does not wait for them all: use sync bulk",
        ),
        (
            ("bulk", "by_samples", "until_model"),
            {},
            "count fast workers' steps for more: use by_steps",
        ),
        (
            ("bulk", "by_steps", "until_model"),
            {"merge": "carry"},
            "needs merge partial .* not 'carry'",
        ),
        (
            ("bulk", "by_steps", "until_model"),
            {"merge": "reset"},
            "needs merge partial .* not 'reset'",
        ),
        (("bulk", "by_steps", "until_model"), {"beta": 1.0}, "not 'partial:1': use partial:0.5"),
        (("bulk", "by_steps", "until_model"), {"beta": 0.0}, "not 'partial:0': use partial:0.5"),
        (("bulk", "by_steps", "until_model"), {"bootstrap": "authors"}, "pushes steps twice"),
        (("bulk", "by_steps", "fragments:4,100"), {}, "needs the whole model's change"),
        (
            ("bulk", "by_steps*linear_scaling:64", "until_model"),
            {},
            "scale it: leave linear_scaling out, or use drift 'off'",
        ),
    ],
)
def test_drift_correction(bad, options, sentence):
    def check(sync, weights, work, **options):
        check_drift(parse_sync(sync), parse_weights(weights), parse_work(work), **options)

    check("bulk", "by_steps:by_samples*by_staleness:0.5", "until_model", **DRIFT)
    check("bulk:0", "normalized(by_steps)", "fixed:10", **DRIFT | {"merge": "reset"})
    with pytest.raises(ConfigError, match=sentence):
        check(*bad, **DRIFT | options)
