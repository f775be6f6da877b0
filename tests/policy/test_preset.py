"""Presets: known algorithms in the words of our policies."""

from __future__ import annotations

import pytest

from aiops.config import ServerConfig
from aiops.errors import ConfigError
from aiops.policy.dssp import dssp
from aiops.policy.esync import esync
from aiops.policy.preset import PRESETS, preset
from aiops.policy.sync import asynchronous, buffered, bulk, ssp
from aiops.policy.table import parse_merge, parse_sync, parse_weights, parse_work
from aiops.policy.weight import by_samples, by_staleness, by_steps, product, uniform
from aiops.policy.work import fixed, fragments, until_model


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
        ("eager", {"sync": bulk(), "weights": uniform(), "work": until_model(), "merge": "eager"}),
    ],
)
def test_what_a_preset_has_beside_rounds(name, settings):
    config = ServerConfig.parse(**preset(name))
    assert {name: getattr(config, name) for name in settings} == settings


def test_a_preset_is_a_copy():
    preset("nbsync")["sync"] = "ssp:1"
    assert PRESETS["nbsync"]["sync"] == "bulk:1"


def test_an_unknown_preset_is_refused():
    with pytest.raises(
        ConfigError, match=r"unknown preset 'fedavgs', known are nbsync, .* 'fedavg'"
    ):
        preset("fedavgs")
