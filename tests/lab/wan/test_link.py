"""What a link is like: its formula, its queue, its changes, and what is refused."""

import msgspec
import pytest

from aiops.errors import ConfigError
from aiops.lab.wan.link import Change, LinkSpec


def link(**numbers):
    return LinkSpec(**{"up_bits_s": 20e6, "down_bits_s": 50e6, "delay_s": 0.025, **numbers})


def test_a_message_takes_its_bytes_with_headers_at_the_rate_and_the_delay():
    # 1 MB are 690.6 packets of 1448 bytes, each 1514 on the line.
    assert link().ideal_transfer_s(1_000_000, "up") == pytest.approx(0.418232 + 0.025, rel=1e-5)
    assert link().ideal_transfer_s(1_000_000, "down") == pytest.approx(0.167293 + 0.025, rel=1e-5)


def test_a_small_round_trip_is_two_delays_and_a_small_packet_each_way():
    # 67 bytes with the Ethernet header are 536 bits: 26.8 us up and 10.72 us down.
    assert link().round_trip_s() == pytest.approx(0.05 + 37.52e-6, rel=1e-9)


@pytest.mark.parametrize(
    ("numbers", "up", "down"),
    [
        pytest.param({}, 250_000, 625_000, id="two bandwidth-delay products"),
        pytest.param({"delay_s": 0.0}, 65_536, 65_536, id="not less than 64 KiB"),
        pytest.param({"queue_bytes": 3000}, 3000, 3000, id="what is asked for"),
    ],
)
def test_the_router_holds(numbers, up, down):
    assert (link(**numbers).queue("up"), link(**numbers).queue("down")) == (up, down)


@pytest.mark.parametrize(
    ("numbers", "takes"),
    [
        ({}, True),
        ({"jitter_s": 0.01}, True),
        ({"loss": 0.001}, False),
        ({"queue_bytes": 60_000}, False),
        ({"changes": (Change(at_s=1, loss=0.1), Change(at_s=2, loss=0.0))}, False),
    ],
)
def test_packets_go_in_trains_unless_single_ones_matter(numbers, takes):
    assert link(**numbers).takes_trains() == takes


def test_changes_set_what_they_name_and_keep_the_rest():
    changes = (
        Change(at_s=10, up_bits_s=5e6),
        Change(at_s=20, loss=1.0, delay_s=0.1),
        Change(at_s=21, loss=0.0),
    )
    spec = link(changes=changes)
    assert spec.at(0) == spec.at(9.9) == link()
    assert spec.at(10) == link(up_bits_s=5e6)
    assert spec.at(20.5) == link(up_bits_s=5e6, loss=1.0, delay_s=0.1)
    assert spec.at(99) == link(up_bits_s=5e6, delay_s=0.1)
    assert [at_s for at_s, _ in spec.states()] == [0, 10, 20, 21]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"up_bits_s": 0}, "up_bits_s is 0, it must be > 0 and finite"),
        ({"down_bits_s": float("inf")}, "down_bits_s is inf"),
        ({"delay_s": -1}, "delay_s is -1, it must be >= 0 and finite"),
        ({"delay_s": float("nan")}, "delay_s is nan"),
        ({"jitter_s": 0.03}, r"jitter_s is 0.03, it must be in \[0, 0.025\], the delay"),
        ({"loss": 1.1}, r"loss is 1.1, it must be in \[0, 1\]"),
        ({"queue_bytes": 1000}, "queue_bytes is 1000, a full packet takes 1514"),
        ({"changes": (Change(at_s=1, loss=-0.1),)}, "loss is -0.1"),
        (
            {"jitter_s": 0.02, "changes": (Change(at_s=1, delay_s=0.01),)},
            "jitter_s is 0.02, it must be in",
        ),
        (
            {"changes": (Change(at_s=2, loss=0.1), Change(at_s=2, loss=0.0))},
            "a change at 2 s stands behind one at 2 s",
        ),
    ],
)
def test_a_link_that_cannot_be_is_refused(numbers, message):
    with pytest.raises(ConfigError, match=message):
        link(**numbers)


@pytest.mark.parametrize("at_s", [0, -1, float("inf"), float("nan")])
def test_a_change_at_no_moment_is_refused(at_s):
    with pytest.raises(ConfigError, match="it must be > 0 and finite"):
        Change(at_s=at_s)


def test_a_link_comes_out_of_a_file_as_it_went_in():
    spec = link(changes=(Change(at_s=1, loss=0.5),))
    assert msgspec.json.decode(msgspec.json.encode(spec), type=LinkSpec) == spec
    with pytest.raises(msgspec.ValidationError, match="rate"):
        msgspec.json.decode(b'{"up_bits_s": 1, "down_bits_s": 1, "rate": 1}', type=LinkSpec)
