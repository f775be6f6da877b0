"""The grammar of policy names, good and bad."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import types

import pytest

from aiops.errors import ConfigError
from aiops.policy.batch import balanced, balanced_freely, by_rate
from aiops.policy.batch import fixed as fixed_batch
from aiops.policy.density import adaptive, adaptive_knee, adaptive_nsga2, adaptive_trials
from aiops.policy.density import fixed as fixed_density
from aiops.policy.esync import ESync
from aiops.policy.gravac import gravac
from aiops.policy.injection import random
from aiops.policy.scadles import scadles
from aiops.policy.sync import asynchronous, bulk, ssp
from aiops.policy.table import (
    SYNC,
    build,
    parse_batch,
    parse_density,
    parse_injection,
    parse_merge,
    parse_sync,
    parse_weights,
    parse_work,
    unknown,
)
from aiops.policy.weight import (
    by_samples,
    by_staleness,
    by_steps,
    constant,
    hinge,
    normalized,
    product,
    uniform,
)
from aiops.policy.work import fixed, fragments, until_model


@pytest.mark.parametrize(
    ("parse", "text", "policy"),
    [
        (parse_sync, "bulk", bulk()),
        (parse_sync, "bulk:0", bulk(max_staleness=0)),
        (parse_sync, " ssp : 2 ", ssp(2)),
        (parse_sync, "asynchronous", asynchronous()),
        (parse_work, "fixed:10", fixed(10)),
        (parse_work, "until_model", until_model()),
        (parse_work, "until_model:2", until_model(2)),
        (parse_work, "until_model:2,50", until_model(2, 50)),
        (parse_work, "esync", ESync(1)),
        (parse_work, "esync:8", ESync(8)),
        (parse_work, "esync_prototype", ESync(1, push_time=False, slack_s=0.5)),
        (parse_work, "esync_prototype:2,0.01", ESync(2, push_time=False, slack_s=0.01)),
        (parse_work, "fragments:4,100", fragments(4, 100, 1)),
        (parse_work, "fragments:4,100,5", fragments(4, 100, 5)),
        (parse_weights, "uniform", uniform()),
        (parse_weights, "by_samples", by_samples()),
        (parse_weights, "by_steps", by_steps()),
        (parse_weights, "by_steps:by_samples", by_steps(by_samples())),
        (parse_weights, "constant", constant()),
        (parse_weights, "constant:0.6*hinge", product(constant(0.6), hinge())),
        (parse_weights, "by_staleness", by_staleness(0.5)),
        (parse_weights, "by_staleness:1e-1", by_staleness(0.1)),
        (parse_weights, "hinge", hinge(10, 4)),
        (parse_weights, "hinge:0.5, 2", hinge(0.5, 2)),
        (parse_weights, "by_samples*by_staleness:0.5", product(by_samples(), by_staleness(0.5))),
        (
            parse_weights,
            " by_samples * hinge:10,4 * constant ",
            product(by_samples(), hinge(10, 4), constant()),
        ),
        (parse_weights, "normalized(by_staleness:1)", normalized(by_staleness(1))),
        (
            parse_weights,
            "normalized(by_samples*by_staleness)",
            normalized(product(by_samples(), by_staleness())),
        ),
        (
            parse_weights,
            "uniform*normalized( normalized(constant)*hinge )",
            product(uniform(), normalized(product(normalized(constant()), hinge()))),
        ),
        (
            parse_weights,
            "by_steps:by_samples*by_staleness:0.5",
            product(by_steps(by_samples()), by_staleness(0.5)),
        ),
        (
            parse_weights,
            "by_steps:normalized(by_samples*by_staleness)",
            by_steps(normalized(product(by_samples(), by_staleness()))),
        ),
        (parse_density, "fixed:0.01", fixed_density(0.01)),
        (parse_density, "fixed:1", fixed_density(1)),
        (parse_density, "adaptive", adaptive()),
        (parse_density, " adaptive : 0.001, 0.1", adaptive()),
        (parse_density, "adaptive:0.01,0.5,0.3", adaptive(0.01, 0.5, exponent=0.3)),
        (parse_density, "adaptive_knee:0.01", adaptive_knee(0.01)),
        (parse_density, "adaptive_trials", adaptive_trials()),
        (parse_density, "adaptive_trials:0.01,0.5", adaptive_trials(0.01, 0.5)),
        (parse_density, "gravac", gravac()),
        (parse_density, "gravac:1e-3,0.1,0.9,25", gravac(eps=0.9, window=25)),
        (parse_density, "scadles", scadles()),
        (parse_density, "scadles:0.01,0.2", scadles(0.01, 0.2)),
        (parse_batch, "fixed:64", fixed_batch(64)),
        (parse_batch, "by_rate", by_rate()),
        (parse_batch, "by_rate:1,50,0", by_rate(1, 50, 0)),
        (parse_batch, "balanced:32,4,256,0.1", balanced(32, 4, 256, 0.1)),
        (parse_batch, "balanced_freely", balanced_freely()),
        (parse_injection, "random:0.25,0.5", random(0.25, 0.5)),
        (parse_injection, "random:0.25,0.5,7", random(0.25, 0.5, 7)),
        (parse_merge, "reset", ("reset", {})),
        (parse_merge, "carry", ("carry", {})),
        (parse_merge, "eager", ("eager", {})),
        (parse_merge, "mix", ("mix", {})),
        (parse_merge, "mix:0.25", ("mix", {"alpha": 0.25})),
        (parse_merge, "partial : 1", ("partial", {"beta": 1})),
    ],
)
def test_good_texts(parse, text, policy):
    assert parse(text) == policy


@pytest.mark.parametrize(
    ("parse", "text", "sentence"),
    [
        (parse_sync, "", "unknown sync '', known are bulk, asynchronous, ssp"),
        (parse_sync, "bluk", "unknown sync 'bluk', .*, did you mean 'bulk'?"),
        (parse_sync, "BSP", "unknown sync 'BSP', .*, did you mean 'bulk'?"),
        (parse_sync, "asp:1", "unknown sync 'asp', .*, did you mean 'asynchronous'?"),
        (parse_sync, "async", "did you mean 'asynchronous'?"),
        (parse_sync, "ssp", "sync 'ssp' .*missing a required argument: 'bound'"),
        (parse_sync, "ssp:", "argument '' of sync 'ssp:' is not a number"),
        (parse_sync, "ssp:two", "argument 'two' of sync 'ssp:two' is not a number"),
        (parse_sync, "ssp:1,2", "sync 'ssp:1,2' does not fit .*too many"),
        (parse_sync, "bulk:1,2", "sync 'bulk:1,2' does not fit .*too many"),
        (parse_sync, "ssp:-1", "ssp's bound is -1, it must be a whole number >= 0"),
        (parse_sync, "ssp:2.5", "ssp's bound is 2.5, it must be a whole number >= 0"),
        (parse_sync, "ssp:nan", "ssp's bound is nan"),
        (parse_work, "fixed", "missing a required argument: 'steps'"),
        (parse_work, "fixed:0", "fixed's steps is 0, it must be a whole number >= 1"),
        (parse_work, "until_model:5,2", "max_steps is 2, it must be .* >= min_steps = 5"),
        (parse_work, "until_model:1,2,3", "too many"),
        (parse_work, "esync:0", "esync's tau is 0, it must be a whole number >= 1"),
        (parse_work, "esync:1.5", "esync's tau is 1.5, it must be a whole number >= 1"),
        (parse_work, "esync:1,2", "work 'esync:1,2' does not fit .*too many"),
        (parse_work, "esync_prototype:1,-1", "esync's eps is -1 s, it must be finite and >= 0"),
        (parse_work, "esync_prototype:1,nan", "esync's eps is nan s"),
        (
            parse_work,
            "nbsync",
            "known are fixed, until_model, fill_the_sync, .*, did you mean 'until_model'?",
        ),
        (parse_weights, "", "unknown weights ''"),
        (parse_weights, "by_sample", "did you mean 'by_samples'?"),
        (parse_weights, "polynomial:0.5", "did you mean 'by_staleness'?"),
        (parse_weights, "fednova", "did you mean 'by_steps'?"),
        (parse_weights, "by_samples*", "unknown weights ''"),
        (parse_weights, "by_samples:3", "weights 'by_samples:3' does not fit .*too many"),
        (parse_weights, "by_steps:3", "unknown weights '3'"),
        (parse_weights, "by_staleness:-1", "by_staleness's a is -1"),
        (parse_weights, "hinge:1,-2", "hinge's b is -2"),
        (parse_weights, "normalized", r"weights 'normalized' must be written normalized\(rule\)"),
        (parse_weights, "normalized:uniform", r"must be written normalized\(rule\)"),
        (parse_weights, "normalized()", "unknown weights ''"),
        (parse_weights, "normalized(uniform", "have unbalanced parentheses"),
        (parse_weights, "uniform)", "have unbalanced parentheses"),
        (parse_weights, "uniform)*(uniform", "have unbalanced parentheses"),
        (parse_weights, "normalized(uniform)2", "unknown weights"),
        (parse_density, "", "unknown density '', known are fixed, adaptive, adaptive_knee, "),
        (parse_density, "adaptiv", "unknown density 'adaptiv', .*, did you mean 'adaptive'?"),
        (parse_density, "gravity", "did you mean 'gravac'?"),
        (parse_density, "moo", "did you mean 'adaptive_nsga2'?"),
        (parse_density, "static:0.1", "did you mean 'fixed'?"),
        (parse_density, "fixed", "missing a required argument: 'density'"),
        (parse_density, "fixed:", "argument '' of density 'fixed:' is not a number"),
        (parse_density, "fixed:0", r"fixed's density is 0, it must be in \(0, 1\]"),
        (parse_density, "fixed:1.5", r"fixed's density is 1.5, it must be in \(0, 1\]"),
        (parse_density, "fixed:nan", "fixed's density is nan"),
        (parse_density, "fixed:0.1,0.2", "density 'fixed:0.1,0.2' does not fit .*too many"),
        (parse_density, "adaptive:0.1,0.01", "adaptive's low is 0.1, it must be < high = 0.01"),
        (parse_density, "adaptive:0.1,2", r"adaptive's high is 2, it must be in \(0, 1\]"),
        (
            parse_density,
            "adaptive:0.1,1,-1",
            "adaptive's exponent is -1, it must be finite and >= 0",
        ),
        (parse_density, "adaptive_trials:0.1,0.01", "adaptive's low is 0.1, it must be < high"),
        (parse_density, "adaptive_trial", "did you mean 'adaptive_trials'?"),
        (parse_density, "gravac:0.1,0.01", "gravac's low is 0.1, it must be < high = 0.01"),
        (parse_density, "gravac:0.1,1,2", r"gravac's eps is 2, it must be in \[0, 1\)"),
        (
            parse_density,
            "gravac:0.1,1,0.5,2.5",
            "gravac's window is 2.5, it must be a whole number",
        ),
        (parse_density, "scadles:1", r"scadles's density is 1, it must be in \[0, 1\)"),
        (parse_density, "scadles:0.1,-1", "scadles's delta is -1"),
        (parse_density, "scadle", "did you mean 'scadles'?"),
        (parse_batch, "by_rates", "unknown batch 'by_rates', .*, did you mean 'by_rate'?"),
        (parse_batch, "by_rate:8,4", "by_rate's high is 4, it must be a whole number >= low = 8"),
        (parse_batch, "fixed:0.5", "fixed's samples is 0.5"),
        (parse_batch, "dynamic", "did you mean 'balanced'?"),
        (parse_injection, "random:0.5", "missing a required argument: 'beta'"),
        (parse_injection, "random:2,0.5", "injection's alpha is 2"),
        (parse_injection, "0.5,0.5", "unknown injection '0.5,0.5', known are random"),
        (parse_merge, "overwrite", "unknown merge 'overwrite', known are reset, carry, eager, mix"),
        (parse_merge, "reset:0.5", "merge 'reset:0.5' has an argument, reset takes none"),
        (parse_merge, "mix:", "argument '' of merge 'mix:' is not a number"),
        (parse_merge, "mix:1,2", "argument '1,2' of merge 'mix:1,2' is not a number"),
    ],
)
def test_bad_texts(parse, text, sentence):
    with pytest.raises(ConfigError, match=sentence.replace("?", r"\?")) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_a_search_by_pymoo_has_a_name():
    assert parse_density("adaptive_nsga2:0.01") == adaptive_nsga2(0.01)


def test_an_unknown_name_without_a_near_one_gets_no_suggestion():
    with pytest.raises(ConfigError) as caught:
        unknown("colour", "xyzzy", {"red": 1, "blue": 2})
    assert str(caught.value) == "unknown colour 'xyzzy', known are red, blue"


class Patient:
    """A user's own sync policy."""

    def __init__(self, rounds: int = 2) -> None:
        if rounds > 9:
            raise ValueError(f"rounds is {rounds}, the limit is 9")
        self.rounds = rounds


def offer(monkeypatch, value, name="patient", group="aiops.sync"):
    asked = []

    def entry_points(**chosen):
        asked.append(chosen)
        point = importlib.metadata.EntryPoint(name=name, value=value, group=group)
        return [point] if chosen == {"group": group, "name": name} else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return asked


def test_an_installed_package_adds_a_name(monkeypatch):
    package = types.SimpleNamespace(Patient=Patient)
    monkeypatch.setitem(sys.modules, "a_users_package", package)
    offer(monkeypatch, "a_users_package:Patient")
    assert build("sync", "patient", SYNC).rounds == 2
    assert build("sync", "patient:3", SYNC).rounds == 3
    with pytest.raises(ConfigError, match=r"sync 'patient:10' .*rounds is 10, the limit is 9"):
        build("sync", "patient:10", SYNC)
    with pytest.raises(ConfigError, match="unknown work 'patient'"):
        parse_work("patient")


def test_an_installed_weight_rule_multiplies_like_ours(monkeypatch):
    offer(monkeypatch, "aiops.policy.weight:Constant", name="mine", group="aiops.weights")
    assert parse_weights("by_samples*mine") == product(by_samples(), constant())


def test_our_own_names_are_not_looked_up_elsewhere(monkeypatch):
    asked = offer(monkeypatch, "os:abort", name="bulk")
    assert parse_sync("bulk") == bulk()
    assert asked == []


@pytest.mark.parametrize("value", ["aiops.no_such_module:x", "aiops.policy.sync:no_such_name"])
def test_an_entry_point_that_does_not_load_is_named(monkeypatch, value):
    offer(monkeypatch, value)
    with pytest.raises(
        ConfigError, match=f"sync 'patient' is promised by '{re.escape(value)}', which does not"
    ):
        parse_sync("patient")
