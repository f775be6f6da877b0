"""The gates against hand-computed limits."""

import pytest

from aiops.lab.wan.counters import Counters, WayCounters
from aiops.lab.wan.gate import (
    LinkCheck,
    check_lateness,
    check_link,
    check_rate,
    check_round_trip,
    check_step,
    late_between,
    line_rate,
    worst,
)
from aiops.lab.wan.link import LinkSpec

SPEC = LinkSpec(up_bits_s=20e6, down_bits_s=10e6, delay_s=0.025)


def measured(**numbers):
    good = {"worker": 3, "up_bits_s": 20e6, "down_bits_s": 10e6, "round_trip_s": 0.05}
    return LinkCheck(**{**good, **numbers})


@pytest.mark.parametrize(
    ("bits_s", "reason"),
    [
        (20e6, None),
        (20.59e6, None),
        (19.41e6, None),
        (
            20.7e6,
            "the way up carries 20.70 Mbit/s instead of 20.00, +3.5% where 3% are allowed",
        ),
        (
            15e6,
            "the way up carries 15.00 Mbit/s instead of 20.00, -25.0% where 3% are allowed",
        ),
    ],
)
def test_a_rate_may_be_off_by_three_percent(bits_s, reason):
    assert check_rate("the way up", target_bits_s=20e6, bits_s=bits_s) == reason


@pytest.mark.parametrize(
    ("target_s", "off_s", "jitter_s", "holds"),
    [
        pytest.param(0.01, 0.00099, 0, True, id="a millisecond on a short one"),
        pytest.param(0.01, 0.00101, 0, False, id="no more"),
        pytest.param(0.01, -0.00101, 0, False, id="nor less"),
        pytest.param(0.1, 0.0029, 0, True, id="three percent of a long one"),
        pytest.param(0.1, 0.0031, 0, False, id="no more of that"),
        pytest.param(0.1, -0.0129, 0.005, True, id="jitter both ways on top"),
    ],
)
def test_a_round_trip_may_be_off_by(target_s, off_s, jitter_s, holds):
    reason = check_round_trip(
        "it", target_s=target_s, round_trip_s=target_s + off_s, jitter_s=jitter_s
    )
    assert (reason is None) == holds


def test_a_wrong_round_trip_is_told_with_what_is_allowed():
    assert check_round_trip("it", target_s=0.1, round_trip_s=0.11, jitter_s=0) == (
        "it has a round trip of 110.00 ms instead of 100.00, 3.00 ms off are allowed"
    )


def test_steps_may_be_off_by_three_percent():
    assert check_step(0.02, 0.0205) is None
    assert check_step(0.02, 0.0195) is None
    assert check_step(0.02, 0.021) == (
        "steps took 21.00 ms instead of 20.00, +5.0% where 3% are allowed"
    )


def test_an_emulator_may_be_half_a_millisecond_late():
    assert check_lateness(0.0005) is None
    assert check_lateness(0.002) == (
        "the emulator delivered 2.00 ms late on average, 0.5 ms are allowed"
    )


def test_a_link_is_compared_with_what_it_should_be():
    assert list(check_link(SPEC, measured())) == []
    reasons = list(check_link(SPEC, measured(down_bits_s=20e6, round_trip_s=0.1)))
    assert len(reasons) == 2
    assert reasons[0].startswith("worker 3's link down carries 20.00 Mbit/s instead of 10.00")
    assert reasons[1].startswith("worker 3's link has a round trip of 100.00 ms")


def test_what_is_lost_on_purpose_is_no_error():
    lossy = LinkSpec(up_bits_s=20e6, down_bits_s=10e6, delay_s=0.025, loss=0.1)
    assert list(check_link(lossy, measured(up_bits_s=18e6, down_bits_s=9e6))) == []
    assert len(list(check_link(lossy, measured()))) == 2


def test_the_worst_error_keeps_its_sign():
    links = [measured(), measured(up_bits_s=19e6, round_trip_s=0.047), measured(down_bits_s=10.4e6)]
    rate, trip_s = worst([SPEC] * 3, links)
    assert rate == pytest.approx(-0.05)
    assert trip_s == pytest.approx(-0.003, abs=1e-4)


@pytest.mark.parametrize(
    ("arrivals", "bits_s"),
    [
        pytest.param([], 0.0, id="nothing came"),
        pytest.param([(1.0, 1448)], 0.0, id="one piece has no rate"),
        # 1448 bytes a millisecond are 1514 on the line: 12.112 Mbit/s.
        pytest.param([(n * 1e-3, n * 1448) for n in range(1001)], 12.112e6, id="a steady transfer"),
        pytest.param(
            [(n * 1e-3, 0) for n in range(400)] + [(0.4 + n * 1e-3, n * 1448) for n in range(601)],
            12.112e6,
            id="slow start in the first half does not count",
        ),
    ],
)
def test_the_rate_of_a_transfer_is_that_of_its_second_half(arrivals, bits_s):
    assert line_rate(arrivals) == pytest.approx(bits_s)


def count(packets, late_s):
    way = WayCounters(
        packets=packets, n_bytes=0, dropped=0, lost=0, late_s=late_s, late_p99_s=late_s
    )
    return Counters(up=[way], down=[way], cpu_s=0, elapsed_s=1)


def test_lateness_between_two_counts_leaves_out_what_was_before():
    # 200 packets 0.1 ms late, then 200 more 0.3 ms late.
    before, after = count(100, 1e-4), count(200, 2e-4)
    assert late_between(before, after) == pytest.approx(3e-4)
    assert late_between(before, before) == 0.0
