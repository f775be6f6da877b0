"""The collective of one density: the cheapest, and how long another one stays."""

from __future__ import annotations

import pytest

from aiops.policy.choose import (
    Chooser,
    described,
    exchange_of,
    first_exchange,
    settled,
    spoken,
)
from aiops.policy.exchange import Exchange, Load, Network

# 10 values of 100 are sent by 8 ranks: allgather_ring takes 7 latencies and 560 bytes, artopk_ring 17 and 190.
LOAD = Load(100, 8)
NAMES = ("allgather_ring", "artopk_ring")
SLOW = Network(1.0, 1.0)  # 567 and 207 s
FAR = Network(100.0, 1.0)  # 1260 and 1890 s
EVEN = Network(36.0, 1.0)  # 812 and 802 s
JUST = Network(28.0, 1.0)  # 756 and 666 s


def chooser(names=NAMES):
    return Chooser(LOAD, names, 0.1)


@pytest.mark.parametrize(
    ("network", "held", "name", "seconds"),
    [
        (SLOW, "allgather_ring", "artopk_ring", 207),
        (FAR, "allgather_ring", "allgather_ring", 1260),
        (EVEN, "allgather_ring", "allgather_ring", 812),
        (EVEN, "artopk_ring", "artopk_ring", 802),
        (EVEN, "dense_ring", "artopk_ring", 802),
        (JUST, "allgather_ring", "artopk_ring", 666),
    ],
)
def test_another_collective_has_to_be_a_tenth_cheaper(network, held, name, seconds):
    assert settled(LOAD, network, 0.1, NAMES, held) == (name, pytest.approx(seconds))


def test_the_first_collective_stays_until_another_is_cheaper():
    judge = chooser()
    assert judge.current == Exchange("allgather_ring", 0.1)
    assert judge.choose(1, FAR) is None
    assert judge.choose(2, EVEN) is None
    plan = judge.choose(3, SLOW)
    assert plan.exchange == judge.current == Exchange("artopk_ring", 0.1)
    assert plan.reason == (
        "artopk_ring:0.1 takes 207 s where allgather_ring takes 567 s, over links of 1 s and 1e-06 MB/s"
    )


def test_a_choice_stands_for_twenty_steps():
    judge = chooser()
    assert judge.choose(5, SLOW)
    assert [judge.choose(step, FAR) for step in range(6, 25)] == [None] * 19
    assert judge.choose(25, FAR).exchange == Exchange("allgather_ring", 0.1)
    assert judge.choose(26, SLOW) is None
    assert judge.choose(45, SLOW)


def test_everything_is_sent_where_that_is_cheaper():
    judge = Chooser(Load(100, 8), ("allgather_ring", "dense_ring"), 0.9)
    assert judge.choose(1, Network(1e-6, 1.0)).exchange == Exchange("dense_ring", 1.0)


@pytest.mark.parametrize(
    ("names", "exchange"),
    [
        (["dense_ring", "artopk_ring", "allgather_ring"], Exchange("allgather_ring", 0.1)),
        (["artopk_server", "topk_server"], Exchange("topk_server", 0.1)),
        (["vote_ring", "dense_ring"], Exchange("vote_ring", 0.1)),
        (["dense_tree", "vote_ring"], Exchange("dense_tree")),
    ],
)
def test_while_nothing_is_known_each_rank_chooses_for_itself(names, exchange):
    assert first_exchange(names, 0.1) == exchange


def test_a_dense_exchange_is_of_everything():
    assert exchange_of("dense_ring", 0.1) == Exchange("dense_ring", 1.0)
    assert exchange_of("vote_ring", 0.1) == Exchange("vote_ring", 0.1)


def test_links_are_described_in_milliseconds_and_megabytes():
    assert described(Network(1.5e-3, 8e-9)) == "1.5 ms and 125 MB/s"
    assert described(Network(1e-5, 5e-10)) == "0.01 ms and 2000 MB/s"
    assert [spoken(s) for s in (0.0, 0.0123456, 0.99, 1.0, 61.44)] == [
        "0 ms", "12.3 ms", "990 ms", "1 s", "61.44 s",
    ]  # fmt: skip
    assert described(Network(0.0, 0.0)) == "0 ms and no limit to their rate"
