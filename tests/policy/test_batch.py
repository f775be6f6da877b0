"""Batch rules against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from aiops.errors import ConfigError
from aiops.policy.batch import Balanced, ByRate, Fixed, balanced, balanced_freely, by_rate, fixed
from aiops.policy.stream import Device


def rates(*values, batch=0):
    return [Device(batch, rate) for rate in values]


def timed(*pairs):
    return [Device(batch, math.nan, step_s) for batch, step_s in pairs]


@pytest.mark.parametrize(
    ("rule", "devices", "batches"),
    [
        pytest.param(Fixed(), rates(3, 5000, math.nan), [64, 64, 64], id="the baseline"),
        pytest.param(Fixed(7), rates(3), [7], id="another fixed one"),
        # A list of rates of the authors' scripts.
        pytest.param(ByRate(), rates(50, 38, 12, 82), [50, 38, 12, 82], id="a second's worth"),
        pytest.param(ByRate(), rates(0, 7.9, 8, 1024, 1e9, math.inf, -3),
                     [8, 8, 8, 1024, 1024, 1024, 8], id="clipped"),
        pytest.param(ByRate(), rates(12.4, 12.6), [12, 13], id="rounded"),
        pytest.param(ByRate(1, 5), rates(0.2, 3, 9), [1, 3, 5], id="other bounds"),
        pytest.param(ByRate(), rates(math.nan), [8], id="nothing known: the smallest"),
        pytest.param(ByRate(), rates(math.nan, batch=90), [90], id="nothing known: as before"),
        # 5 % of 100 is 5.
        pytest.param(ByRate(), rates(95, 105, 94, 106, batch=100), [100, 100, 94, 106], id="band"),
        pytest.param(ByRate(band=0), rates(99, 100, batch=100), [99, 100], id="no band"),
        pytest.param(ByRate(high=100), rates(104, batch=103), [100], id="a batch beyond a bound"),
        # Mean 2 s: 64 * 2 / 1 and 64 * 2 / 3.
        pytest.param(Balanced(keeps_total=False), timed((64, 1.0), (64, 3.0)), [128, 43],
                     id="equal times"),
        # The same in proportion, of 128: 96 and 32.
        pytest.param(Balanced(), timed((64, 1.0), (64, 3.0)), [96, 32], id="equal times and total"),
        # Throughputs 64, 64 and 32 of 160: 192 * .4, .4 and .2 are 76.8, 76.8 and 38.4, and the largest rests are up.
        pytest.param(Balanced(), timed((64, 1.0), (64, 1.0), (64, 2.0)), [77, 77, 38], id="rests"),
        # 9 to 1 of 128 is 115.2 and 12.8; the bound leaves 100, and what it takes goes to the other.
        pytest.param(Balanced(high=100), timed((64, 1.0), (64, 9.0)), [100, 28], id="the upper"),
        pytest.param(Balanced(low=20), timed((64, 1.0), (64, 9.0)), [108, 20], id="the lower bound"),
        pytest.param(Balanced(high=100, keeps_total=False), timed((64, 1.0), (64, 9.0)), [100, 36],
                     id="a bound takes from the total"),
        pytest.param(Balanced(), timed((96, 1.5), (32, 1.5)), [96, 32], id="the fixed point"),
        # 64 * 2.05 / 2 and so on: 3 % at most.
        pytest.param(Balanced(), timed((64, 2.0), (64, 2.1)), [64, 64], id="within the band"),
        pytest.param(Balanced(band=0), timed((64, 2.0), (64, 2.1)), [66, 62], id="without a band"),
        pytest.param(Balanced(), timed((64, 1.0), (0, 0.0)), [64, 64], id="one that is new"),
        pytest.param(Balanced(), timed((90, 1.0), (38, 0.0)), [90, 38], id="one not timed yet"),
        pytest.param(Balanced(), timed((90, 1.0), (38, math.nan)), [90, 38], id="no time at all"),
        pytest.param(Balanced(8, 8, 8), timed((8, 1.0), (8, 3.0)), [8, 8], id="no room"),
        pytest.param(Balanced(), timed((64, 5.0)), [64], id="alone"),
        pytest.param(Balanced(), [], [], id="nobody"),
    ],
)  # fmt: skip
def test_batches(rule, devices, batches):
    assert list(rule(devices)) == batches


def test_a_rate_in_the_band_never_creeps_away():
    batch = 100
    for rate in (104, 96, 104.9, 95.1):
        (batch,) = ByRate()([Device(batch, rate)])
    assert batch == 100


@pytest.mark.parametrize("overhead_s", [0.0, 0.2])
@pytest.mark.parametrize("keeps_total", [True, False])
def test_step_times_become_equal_and_batches_stay(overhead_s, keeps_total):
    # Cores of a published skew, 6/6/4/32, at 10 samples a second each.
    speeds = [60, 60, 40, 320]
    rule, batches = Balanced(low=1, keeps_total=keeps_total), [64, 64, 64, 64]

    def times():
        return [overhead_s + b / speed for b, speed in zip(batches, speeds, strict=True)]

    for _ in range(6):
        batches = rule([Device(b, math.nan, s) for b, s in zip(batches, times(), strict=True)])
        if keeps_total:
            assert sum(batches) == 256
    assert max(times()) / min(times()) < 1.1
    again = rule([Device(b, math.nan, s) for b, s in zip(batches, times(), strict=True)])
    assert list(again) == list(batches)


def test_who_has_to_be_asked_about_all_devices_at_once():
    assert [rule.local for rule in (Fixed(), ByRate(), Balanced())] == [True, True, False]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Fixed(0), "fixed's samples is 0, it must be a whole number >= 1"),
        (lambda: Fixed(1.5), "fixed's samples is 1.5, it must be a whole number >= 1"),
        (lambda: ByRate(0), "by_rate's low is 0, it must be a whole number >= 1"),
        (lambda: ByRate(8, 7), "by_rate's high is 7, it must be a whole number >= low = 8"),
        (lambda: ByRate(band=1), r"by_rate's band is 1, it must be in \[0, 1\)"),
        (lambda: Balanced(4), "balanced's batch is 4, .* from low = 8 to high = 1024"),
        (lambda: Balanced(True, 1), "balanced's batch is True"),
        (lambda: Balanced(64, 8.0), "balanced's low is 8.0"),
        (lambda: Balanced(64, 8, math.inf), "balanced's high is inf"),
        (lambda: Balanced(band=math.nan), "balanced's band is nan"),
    ],
)
def test_what_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()


def test_the_names_of_the_command_line():
    assert (fixed(), by_rate(), balanced()) == (Fixed(64), ByRate(8, 1024, 0.05), Balanced())
    assert balanced_freely(32, 4, 99, 0.1) == Balanced(32, 4, 99, 0.1, keeps_total=False)
