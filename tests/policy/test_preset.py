"""Presets: known algorithms in the words of our policies."""

from __future__ import annotations

import pytest

from aiops.config import ServerConfig
from aiops.errors import ConfigError
from aiops.merge.compensation import dcasgd, dcasgd_adaptive, mixing
from aiops.merge.optimizer import adagrad, adam, momentum, nesterov, sgd, yogi
from aiops.policy.dssp import dssp
from aiops.policy.esync import esync
from aiops.policy.preset import PRESETS, preset
from aiops.policy.sync import asynchronous, buffered, bulk, ssp
from aiops.policy.table import parse_merge, parse_sync, parse_weights, parse_work
from aiops.policy.weight import (
    by_samples,
    by_staleness,
    by_steps,
    constant,
    hinge,
    product,
    uniform,
)
from aiops.policy.work import fill_the_sync, fixed, fragments, until_model


@pytest.mark.parametrize(
    ("name", "sync", "weights", "work"),
    [
        ("nbsync", bulk(), by_samples(), until_model()),
        ("nbsync-async", asynchronous(), by_staleness(1), until_model()),
        ("fedavg", bulk(max_staleness=0), by_samples(), fixed(10)),
        ("ssgd", bulk(max_staleness=0), by_samples(), fixed(1)),
        ("asp", asynchronous(), uniform(), fixed(1)),
        ("ssp", ssp(3), uniform(), fixed(1)),
        ("dssp", dssp(3, 15), uniform(), fixed(1)),
        ("fedbuff", buffered(3), product(uniform(), by_staleness(0.5)), fixed(10)),
        ("fedprox", bulk(max_staleness=0), by_samples(), fixed(10)),
        ("scaffold", bulk(max_staleness=0), by_steps(), fixed(10)),
        ("esync", bulk(max_staleness=0), by_samples(), esync(1)),
        ("localsgd", bulk(max_staleness=0), uniform(), fixed(10)),
        ("fednova", bulk(max_staleness=0), by_steps(by_samples()), fixed(10)),
        ("fedavgm", bulk(max_staleness=0), by_samples(), fixed(10)),
        ("fedadam", bulk(max_staleness=0), by_samples(), fixed(10)),
        ("fedyogi", bulk(max_staleness=0), by_samples(), fixed(10)),
        ("fedadagrad", bulk(max_staleness=0), by_samples(), fixed(10)),
        ("diloco", bulk(max_staleness=0), uniform(), fixed(500)),
        ("fedasync", asynchronous(), product(constant(0.6), by_staleness(0.5)), fixed(10)),
        ("fedasync-constant", asynchronous(), constant(0.6), fixed(10)),
        ("fedasync-hinge", asynchronous(), product(constant(0.6), hinge(10, 4)), fixed(10)),
        ("dcasgd", asynchronous(), uniform(), fixed(1)),
        ("dcasgd-adaptive", asynchronous(), uniform(), fixed(1)),
    ],
)
def test_presets(name, sync, weights, work):
    spec = preset(name)
    assert parse_sync(spec["sync"]) == sync
    assert parse_weights(spec["weights"]) == weights
    assert parse_work(spec["work"]) == work
    assert parse_merge(spec["merge"]) == ("reset", {})


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("scaffold", {"drift": "infer"}),
        ("fedprox", {"proximal": 0.01}),
        ("streaming-diloco", {"work": fragments(4, 100, 5), "merge": "mix", "alpha": 0.5}),
        (
            "nbsync-auto",
            {"work": fill_the_sync(8), "merge": "partial", "beta": 0.5, "auto": True},
        ),
        (
            "nbsync-nesterov",
            {"sync": bulk(), "work": fill_the_sync(8), "merge": "partial", "beta": 0.5},
        ),
        ("eager", {"sync": bulk(), "weights": uniform(), "work": until_model(), "merge": "eager"}),
    ],
)
def test_what_a_preset_has_beside_rounds(name, settings):
    config = ServerConfig.parse(**preset(name))
    assert {name: getattr(config, name) for name in settings} == settings


@pytest.mark.parametrize(
    ("name", "optimizer", "compensation"),
    [
        ("fedavg", sgd(), None),
        ("localsgd", sgd(), None),
        ("fednova", sgd(), None),
        ("fedavgm", momentum(1, 0.9), None),
        ("fedadam", adam(0.01, 0.9, 0.99, 0.001), None),
        ("fedyogi", yogi(0.01, 0.9, 0.99, 0.001), None),
        ("fedadagrad", adagrad(0.01, 0, 0.001), None),
        ("diloco", nesterov(0.7, 0.9), None),
        ("nbsync-nesterov", nesterov(0.5, 0.8), None),
        ("fedasync", sgd(), mixing()),
        ("fedasync-constant", sgd(), mixing()),
        ("fedasync-hinge", sgd(), mixing()),
        ("dcasgd", sgd(), dcasgd(0.04, 0.1)),
        ("dcasgd-adaptive", sgd(), dcasgd_adaptive(2, 0.95, 0.1)),
    ],
)
def test_the_numeric_rules_of_presets(name, optimizer, compensation):
    config = ServerConfig.parse(**preset(name))
    assert (config.optimizer, config.compensation) == (optimizer, compensation)
    assert (config.rules is None) == (optimizer == sgd() and compensation is None)


def test_a_preset_is_a_copy():
    preset("nbsync")["sync"] = "ssp:1"
    assert PRESETS["nbsync"]["sync"] == "bulk:1"


def test_an_unknown_preset_is_refused():
    with pytest.raises(
        ConfigError, match=r"unknown preset 'fedavgs', known are nbsync, .* 'fedavg'"
    ):
        preset("fedavgs")
