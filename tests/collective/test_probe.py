"""What the probe makes of transfers and pings."""

import numpy as np
import pytest

from aiops.collective.probe import Probe
from aiops.collective.request import Path


def test_nothing_is_known_before_a_ping_and_a_transfer():
    probe = Probe()
    probe.transfer(Path(2, 100.0), 1.0)
    assert probe.network is None
    probe.ping(0.01)
    assert probe.network is None
    probe.transfer(Path(2, 100.0), 1.02)
    assert probe.network.byte_s == pytest.approx(0.01)
    assert probe.network.latency_s == 0.01


def test_latency_is_half_the_shortest_round_trip():
    assert Probe.latency(np.array([0.5, 0.2, 0.3])) == pytest.approx(0.1)
    assert Probe.latency(np.empty(0)) == 0.0


def test_the_slope_is_found_whatever_the_sizes():
    probe = Probe()
    probe.ping(0.05)
    for n_bytes, hops in ((1e5, 3), (1e6, 14), (1e4, 3), (3e6, 14)):
        probe.transfer(Path(hops, n_bytes), hops * 0.05 + n_bytes * 8e-8)
    assert probe.network.byte_s == pytest.approx(8e-8)
    assert probe.network.byte_error_s == pytest.approx(0, abs=1e-12)


def test_a_link_that_changes_is_seen_within_ten_transfers():
    probe = Probe()
    probe.ping(0.001)
    for byte_s, steps in ((1e-9, 50), (2.5e-8, 10)):
        for _ in range(steps):
            probe.transfer(Path(14, 1e6), 0.014 + 1e6 * byte_s)
    assert probe.network.byte_s == pytest.approx(2.5e-8, rel=0.12)
    assert probe.network.byte_error_s > 0


def test_scatter_shows_as_an_error():
    random = np.random.default_rng(0)
    probe = Probe()
    probe.ping(0.001)
    for _ in range(200):
        probe.transfer(Path(14, 1e6), 0.014 + 1e6 * 1e-8 * random.uniform(0.8, 1.2))
    network = probe.network
    assert abs(network.byte_s - 1e-8) < 3 * network.byte_error_s
    assert 1e-10 < network.byte_error_s < 2e-9
    probe.ping(0.002)
    assert probe.network.latency_error_s > 0


def test_what_is_faster_than_its_hops_says_that_bytes_cost_nothing_much():
    probe = Probe()
    probe.ping(1.0)
    probe.transfer(Path(10, 100.0), 0.5)
    assert 0 < probe.network.byte_s < 1e-300
