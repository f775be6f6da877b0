"""Who takes part where only some peers were asked for, and where there is no time for all."""

import math

import pytest

from aiops.bench.campaign import FEWEST_ROUNDS, Campaign, Outcome, _plan
from aiops.bench.peers.base import Sample, Skipped
from aiops.bench.peers.table import PEERS, peer
from aiops.bench.result import Miss
from aiops.bench.run import Bench, compared
from aiops.bench.suites import peers, round, wire


class Silent:
    def say(self, text): ...

    warn = say


@pytest.fixture(autouse=True)
def everybody_is_here(monkeypatch):
    for key in PEERS:
        monkeypatch.setattr(type(peer(key)), "versions", lambda self: "1.0")


@pytest.fixture
def asked(monkeypatch):
    """Cases in order, each with the keys of who would take part."""
    found = []

    async def compete(self, bench, case, contenders, *, ours="aiops", bound="", **options):
        found.append((case, {one.key for one in contenders}))
        outcomes = {one.label: Outcome(samples={0: 1.0}, means={0: 1.0}) for one in contenders}
        assert ours in outcomes
        assert bound in outcomes or not bound
        return Campaign(outcomes, 0.0)

    async def nothing(*arguments, **options): ...

    monkeypatch.setattr(Bench, "compete", compete)
    monkeypatch.setattr(wire, "framing", nothing)
    monkeypatch.setattr(round, "control", nothing)
    monkeypatch.setattr(round, "push_memory", nothing)
    monkeypatch.setattr(round, "copies", lambda *arguments: None)
    return found


def a_bench(**options):
    lines = []
    made = Bench(Silent(), lines.append, scratch="", **options)
    made.lines = lines
    return made


async def test_one_peer_stands_beside_ours_and_the_bound_alone(asked):
    await peers.run(a_bench(only=["gloo"]))
    assert len(asked) >= len(peers.SIZES) * len(peers.WORKERS)
    assert all(keys == {"ours", "sockets", "gloo"} for _, keys in asked)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("suite", [peers, round, wire])
async def test_a_suite_without_the_peer_asked_for_still_has_ours_and_the_bound(asked, suite, quick):
    bench = a_bench(only=["hivemind"], quick=quick)
    await suite.run(bench)
    ours = "transport" if suite is wire else "ours"
    assert all({ours} <= keys <= {ours, "sockets", "hivemind"} for _, keys in asked)
    assert not [line for line in bench.lines if isinstance(line, Miss)]


async def test_who_is_always_there_may_still_be_missing(asked, monkeypatch):
    def missing(self):
        raise Skipped("no C compiler")

    monkeypatch.setattr(type(peer("sockets")), "versions", missing)
    bench = a_bench(only=["gloo"])
    assert bench.available("peers", ["ours", "sockets", "gloo", "zmq"]) == ["ours", "gloo"]
    assert [line.reason for line in bench.lines] == ["no C compiler"]


@pytest.mark.parametrize("suite", [peers, round, wire])
async def test_a_quick_run_has_few_cases(asked, suite):
    await suite.run(a_bench())
    every = list(asked)
    asked.clear()
    await suite.run(a_bench(quick=True))
    assert 1 <= len(asked) <= 2 < len(every)
    if suite is peers:
        assert not any(keys & peers.QUICK_LEAVES_OUT for _, keys in asked)


def test_who_was_not_there_is_not_compared():
    there = Campaign({"a": Outcome(samples={0: 2.0}), "b": Outcome(samples={0: 1.0})}, 0.0)
    assert compared(there, "a", "b") == 2
    assert math.isnan(compared(there, "a", "c"))
    assert math.isnan(compared(there, "c", "b"))


class Slow:
    failed = ""

    def __init__(self, n_workers):
        self.workers = [None] * n_workers

    async def rounds(self, count):
        return Sample(median_s=5.0, best_s=5.0, start_s=0.0, end_s=5.0 * count)


@pytest.mark.parametrize(("n_workers", "fewest"), [(1, 1), (2, FEWEST_ROUNDS), (4, FEWEST_ROUNDS)])
async def test_a_turn_of_several_workers_has_rounds_that_follow_each_other(n_workers, fewest):
    assert FEWEST_ROUNDS > 1
    plan = await _plan(Slow(n_workers), passes=9, turn_s=0.1)
    assert plan.rounds == fewest
