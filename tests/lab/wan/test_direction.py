"""One way of a link against hand-computed times: 8 Mbit/s is a byte per microsecond."""

import pytest

from aiops.lab.wan.direction import DROPPED, LOST, Direction
from aiops.lab.wan.link import Change, LinkSpec

US, MS = 1000, 1_000_000

# With the Ethernet header 1000 bytes on the line: a millisecond.
PACKET = 986


def spec(**numbers):
    return LinkSpec(**{"up_bits_s": 8e6, "down_bits_s": 4e6, "delay_s": 0.01, **numbers})


def direction(way="up", seed="0", **numbers):
    return Direction(spec(**numbers), way, seed=seed)


@pytest.mark.parametrize(
    ("way", "n_bytes", "due"),
    [
        pytest.param("up", PACKET, 11 * MS, id="serialized, then delayed"),
        pytest.param("down", PACKET, 12 * MS, id="at half the rate"),
        pytest.param("up", 6, 10 * MS + 20 * US, id="a small one is nearly the delay alone"),
    ],
)
def test_a_packet_on_an_idle_link_is_due(way, n_bytes, due):
    assert direction(way).enqueue(n_bytes, 5 * MS) == 5 * MS + due


def test_packets_leave_one_after_the_other_and_an_idle_line_begins_at_once():
    link = direction()
    assert [link.enqueue(PACKET, at * MS) for at in (0, 0, 1)] == [11 * MS, 12 * MS, 13 * MS]
    # The line was busy until 3 ms.
    assert link.enqueue(PACKET, 7 * MS) == 18 * MS


def test_what_does_not_fit_into_the_queue_is_dropped_and_takes_no_time():
    link = direction(queue_bytes=3000)
    assert [link.enqueue(PACKET, 0) for _ in range(5)] == [
        11 * MS, 12 * MS, 13 * MS, DROPPED, DROPPED,
    ]  # fmt: skip
    # A small one fits behind the three that are not through yet.
    assert link.enqueue(PACKET, MS // 2) == DROPPED
    assert link.enqueue(486, MS // 2) == 13 * MS + MS // 2
    assert (link.dropped, link.lost) == (3, 0)


def test_a_line_that_is_free_takes_every_packet():
    link = direction(queue_bytes=1514)
    assert link.enqueue(1500, 0) == 11 * MS + 514 * US
    assert link.enqueue(1500, 1) == DROPPED
    assert link.enqueue(1500, 1514 * US) == 2 * 1514 * US + 10 * MS


def test_losses_are_those_of_the_seed_and_use_the_line():
    def lost(seed):
        link = direction(loss=0.1, queue_bytes=10**9, seed=seed)
        dues = [link.enqueue(PACKET, 0) for _ in range(10_000)]
        assert all(due == (n + 11) * MS for n, due in enumerate(dues) if due != LOST)
        gone = [n for n, due in enumerate(dues) if due == LOST]
        assert link.lost == len(gone)
        return gone

    # Mean 1000, standard deviation 30.
    assert 880 < len(lost("a")) < 1120
    assert lost("a") == lost("a") != lost("b")


def test_a_link_that_is_cut_loses_everything():
    link = direction(loss=1.0)
    assert {link.enqueue(PACKET, n * MS) for n in range(100)} == {LOST}


def test_jitter_is_bounded_seeded_and_overtakes_nobody():
    def dues(gap):
        link = direction(jitter_s=0.004, queue_bytes=10**9)
        return [link.enqueue(PACKET, n * gap) for n in range(2000)]

    apart = [due - n * 100 * MS for n, due in enumerate(dues(100 * MS))]
    assert min(apart) >= 7 * MS
    assert max(apart) <= 15 * MS
    # Uniform: mean 11 ms, standard error 0.052 ms.
    assert sum(apart) / len(apart) == pytest.approx(11 * MS, abs=0.26 * MS)
    close = dues(MS)
    assert close == sorted(close) == dues(MS)


def fill(link, n_packets):
    for _ in range(n_packets):
        due = link.enqueue(PACKET, 0)
        link.flying.append((due, b""))


def dues(link):
    return [due for due, _ in link.flying]


def test_what_waits_leaves_at_the_rate_of_a_change():
    link = direction()
    fill(link, 4)
    # At 2.5 ms two packets are on their way, half of the third is through; 1.5 ms of line become 3.
    link.change(spec(up_bits_s=4e6), 2 * MS + MS // 2)
    assert dues(link) == [11 * MS, 12 * MS, 13 * MS + MS // 2, 15 * MS + MS // 2]
    # The line is free at 5.5 ms, and a packet takes two.
    assert link.enqueue(PACKET, 3 * MS) == 17 * MS + MS // 2


def test_what_waits_takes_the_delay_of_a_change_and_what_left_does_not():
    link = direction()
    fill(link, 3)
    link.change(spec(delay_s=0.05), MS)
    assert dues(link) == [11 * MS, 52 * MS, 53 * MS]


def test_a_shorter_delay_lets_nobody_overtake():
    link = direction()
    fill(link, 3)
    link.change(spec(delay_s=0.001), MS)
    assert dues(link) == [11 * MS, 11 * MS, 11 * MS]
    assert link.enqueue(PACKET, 3 * MS) == 11 * MS
    assert link.enqueue(PACKET, 20 * MS) == 22 * MS


def test_a_change_of_the_queue_counts_for_who_comes_next():
    link = direction(queue_bytes=2000)
    fill(link, 2)
    assert link.enqueue(PACKET, 0) == DROPPED
    link.change(spec(queue_bytes=3000), 0)
    assert link.enqueue(PACKET, 0) == 13 * MS
    link.change(spec(queue_bytes=2000), 0)
    assert link.enqueue(PACKET, 0) == DROPPED


def test_what_a_schedule_says_is_what_a_direction_does():
    changing = spec(changes=(Change(at_s=1, up_bits_s=80e6), Change(at_s=2, loss=1.0)))
    link = Direction(changing, "up", seed="0")
    answers = []
    for at_s in (0, 1, 2):
        link.change(changing.at(at_s), at_s * 1000 * MS)
        answers.append(link.enqueue(PACKET, at_s * 1000 * MS))
    assert answers == [11 * MS, 1000 * MS + 10 * MS + 100 * US, LOST]
