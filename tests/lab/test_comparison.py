"""Records side by side: what belongs together, and speed-ups by S/c and heterogeneity."""

import math
from pathlib import Path

import msgspec
import pytest

from aiops.bench.machine import fingerprint
from aiops.errors import ConfigError
from aiops.lab.comparison import by_cell, compare, gather, measured_setting, setting_of
from aiops.lab.method import Method
from aiops.lab.record import Wire
from aiops.lab.result import Manifest, Result
from aiops.lab.scenario import LINE_OVERHEAD, Link, Workers
from tests.lab.kit import record, small

SLOW, FAST = record("slow", 0, 8.0), record("fast", 0, 2.0)


def manifest(scenario, reference="slow"):
    return Manifest(
        scenario=scenario,
        lab="virtual",
        reference=reference,
        n_values=1000,
        machine=fingerprint(),
        version="0",
        command="",
    )


def result(*records, scenario=None, reference="slow"):
    there = None if scenario is None else manifest(scenario, reference)
    return Result(path=Path("x"), records=records, manifest=there)


def test_files_of_one_scenario_become_one_whatever_their_methods_and_seeds():
    one = result(SLOW, scenario=small(methods=("ssgd",)))
    other = result(FAST, scenario=small(methods=("nbsync",), seeds=(1,)))
    (found,) = gather([one, other])
    assert found.records == {"slow": (SLOW,), "fast": (FAST,)}
    assert found.reference == "slow"


def test_scenarios_of_one_name_stay_apart_and_come_by_ratio_then_heterogeneity():
    scenarios = [
        small(link=Link(up_mbit=0.5)),
        small(workers=Workers(count=2, step_s=0.05, slowdown=(1.0, 4.0))),
        small(),
    ]
    found = gather(result(SLOW, scenario=scenario) for scenario in scenarios)
    assert [one.setting for one in found] == [
        setting_of(scenarios[at], "virtual", 1000) for at in (2, 1, 0)
    ]


def test_bare_files_go_together_by_name():
    found = gather([result(SLOW, record("slow", 0, 1.0, scenario="other")), result(FAST)])
    assert sorted((one.setting.scenario, list(one.records)) for one in found) == [
        ("other", ["slow"]),
        ("small", ["slow", "fast"]),
    ]
    assert [one.reference for one in found] == [None, None]


def test_what_ran_twice_is_refused():
    with pytest.raises(ConfigError, match="two runs of 'slow' with seed 0"):
        gather([result(SLOW), result(SLOW)])
    other = msgspec.structs.replace(
        record("slow", 1, 1.0), method=Method(label="slow", algorithm="ssgd")
    )
    with pytest.raises(ConfigError, match="two methods called 'slow'"):
        gather([result(SLOW), result(other)])


def test_a_setting_is_known_from_a_record_alone():
    wire = Wire(kind="x", congestion="", up_mbit=1.0, down_mbit=2.0, delay_ms=10.0)
    slow = msgspec.structs.replace(SLOW.workers[0], target_step_s=0.0, step_s=0.05)
    there = msgspec.structs.replace(SLOW, wires=(wire, wire), workers=(SLOW.workers[0], slow))
    found = measured_setting(there)
    # 32 kbit: 32 ms up, 16 ms down, stretched by headers, 20 ms of delay; steps of 20 ms.
    assert found.ratio == pytest.approx((0.048 * LINE_OVERHEAD + 0.02) / 0.02)
    assert found.heterogeneity == pytest.approx(2.5)
    assert (found.target, found.n_values) == (None, 1000)


def test_a_reference_that_did_not_run_is_refused():
    setting = setting_of(small(), "virtual", 1000)
    with pytest.raises(ConfigError, match="no method 'asp' to refer to, only slow"):
        compare(setting, {"slow": [SLOW]}, "asp")


def test_speedups_by_cell_by_hand():
    def one(ratio, fast_s):
        setting = msgspec.structs.replace(
            setting_of(small(), "virtual", 1000), ratio=ratio, heterogeneity=4.0
        )
        return compare(setting, {"slow": [SLOW], "fast": [record("fast", 0, fast_s)]}, "slow")

    cells = by_cell([one(10.04, 4.0), one(9.96, 1.0), one(40.0, 4.0), one(160.0, None)], "fast")
    # Two scenarios of 10 to two digits: the geometric mean of 2 and 8.
    assert {cell: found and found.mean for cell, found in cells.items()} == {
        (10.0, 4.0): pytest.approx(math.sqrt(16.0)),
        (40.0, 4.0): pytest.approx(2.0),
        (160.0, 4.0): None,
    }
    assert by_cell([one(10.0, 4.0)], "unknown") == {}
