"""Goals of rounds and transfers: every one has its peer, and they reach the rows."""

import pytest

from aiops.bench.campaign import Campaign, Contender, Outcome
from aiops.bench.network import DEFAULT, SAME
from aiops.bench.peers.base import Case
from aiops.bench.peers.table import PEERS
from aiops.bench.result import Row
from aiops.bench.run import Bench
from aiops.bench.suites import goals, peers, round, wire


class Silent:
    def say(self, text): ...

    warn = say


@pytest.fixture
def asked(monkeypatch):
    """Who would take part in each case: by suite, case and network, the contenders by key."""
    found = {}

    async def compete(self, bench, case, contenders, **options):
        first = contenders[0]
        found[bench, case, first.network] = {one.key: one for one in contenders}

    monkeypatch.setattr(Bench, "compete", compete)
    monkeypatch.setattr(Bench, "available", lambda self, bench, keys, **options: list(keys))
    return found


@pytest.fixture
def bench():
    return Bench(Silent(), lambda line: None, scratch="")


def test_every_goal_has_its_peer_and_its_case():
    for (size, n_workers), by_key in goals.ROUNDS.items():
        assert size in peers.SIZES
        assert n_workers in peers.WORKERS
        assert set(by_key) <= set(PEERS)
    assert set(goals.ONE_WAY) <= set(wire.SIZES)


async def test_goals_reach_the_contenders(asked, bench, monkeypatch):
    monkeypatch.setattr(peers, "possible", lambda name: True)
    monkeypatch.setattr(peers, "congestion", lambda: "bbr")
    await peers.run(bench)
    await round.sizes(bench, 3)
    await wire.one_way(bench, 3)
    large = asked["peers", "100 MB, 1 worker", SAME]
    assert {key: one.goal for key, one in large.items() if one.goal} == {
        "sockets": ">= 0.95",
        "gloo": ">= 1",
        "zmq": ">= 3.5",
        "rpc": ">= 3.2",
        "grpc-stream": ">= 4.4",
        "grpc-unary": ">= 14",
        "flower": ">= 18",
        "streams": ">= 9",
    }
    assert [key for key, one in large.items() if one.thrifty] == ["ours"]
    assert asked["peers", "4 KB, 1 worker", SAME]["epoll"].goal == ">= 0.5"
    for suite in ("peers", "round"):
        assert asked[suite, "100 MB, 1 worker", SAME]["sockets"].goal == ">= 0.95"
        assert asked[suite, "100 MB, 1 worker", SAME]["ours"].thrifty
    assert asked["wire", "100 MB one way", SAME]["sockets"].goal == ">= 0.95"
    # Out of the box nobody has the congestion control that the goals are about.
    boxed = asked["peers", "100 MB, 1 worker", DEFAULT]
    assert not any(one.goal or one.thrifty for one in boxed.values())
    met = {
        (size, n_workers): {key for key, one in asked["peers", case, SAME].items() if one.goal}
        for size, n_workers in goals.ROUNDS
        for case in [f"{size}, {peers.workers(n_workers)}"]
    }
    assert met == {case: set(by_key) for case, by_key in goals.ROUNDS.items()}


def test_goals_and_processor_times_reach_the_rows():
    lines, case = [], Case(n_bytes=100_000_000)
    bench = Bench(Silent(), lines.append, scratch="")
    outcomes = {
        "aiops": Outcome(samples={0: 1.0}, rounds=10, user_s=0.4),
        "C": Outcome(samples={0: 0.9}, rounds=10, user_s=0.2, system_s=0.4),
    }
    for one in (
        Contender("aiops", "ours", case, thrifty=True),
        Contender("C", "sockets", case, goal=">= 0.95"),
    ):
        bench._put_outcome("peers", "100 MB", one, Campaign(outcomes, 0.0).outcomes, "aiops", "C")
    ours, bound = lines
    assert isinstance(ours, Row)
    assert (ours.goal, ours.cpu_goal) == ("", "<= 0.30")
    assert (bound.goal, bound.cpu_goal) == (">= 0.95", "")
