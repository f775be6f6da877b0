"""What a push and a round cost does not depend on how many members there are."""

import asyncio
import random

import numpy as np
import pytest

from aiops.policy.base import PushTimes
from aiops.policy.dssp import dssp
from aiops.policy.sync import asynchronous, bulk, ssp
from aiops.policy.weight import uniform
from aiops.policy.work import fill_the_sync, fixed
from aiops.server.engine import Engine
from aiops.server.event import Handle, Joined, Merge, Merged, Pushed
from aiops.server.roster import Roster
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.types import Version
from aiops.worker.overlap import overlapped

# Pages, in which a pool counts.
MODEL_BYTES = 4 * 4096


class Looked(dict):
    """Counts how often somebody looks at all that is in it; asking for the keys is no look yet."""

    looks = 0

    def __iter__(self):
        Looked.looks += 1
        return super().__iter__()

    def values(self):
        Looked.looks += 1
        return super().values()

    def items(self):
        Looked.looks += 1
        return super().items()

    def copy(self):
        Looked.looks += 1
        return super().copy()


class Planned:
    """Counts what a work policy is asked."""

    def __init__(self, policy):
        self.policy, self.plans, self.overlap = policy, 0, policy.overlap

    def plan(self, monitor):
        self.plans += 1
        return self.policy.plan(monitor)


def raced(sync, n, *, rounds=10, fold=False):
    """Let ``n`` workers push in turn; return the looks at all members or all pushes."""
    machine = Engine(sync, uniform(), fixed(1), min_workers=n if sync.barrier else 1, fold=fold)
    machine._roster.clocks = Looked()
    machine._roster._members = Looked()
    machine._round.held, machine._round.views = Looked(), Looked()
    for worker in range(n):
        machine.handle(Joined(worker), 0.0)
    Looked.looks, closed = 0, 0
    for turn in range(rounds):
        for worker in range(n):
            now = turn + worker / n
            push = Pushed(worker, Handle(), base=machine.version, n_samples=1, n_steps=1)
            machine.preview([push], now)
            for action in machine.handle(push, now):
                if isinstance(action, Merge):
                    machine.handle(Merged(), now)
                    closed += 1
    assert closed == (rounds if sync.barrier else rounds * n)
    return Looked.looks


@pytest.mark.parametrize("fold", [False, True])
def test_only_the_close_of_a_full_round_looks_at_all_of_its_pushes(fold):
    few, many = (raced(bulk(), n, fold=fold) for n in (50, 200))
    # Whose pushes close it, what it is foreseen to close with, their weights, and the slowest clock once in a turn.
    assert few == many <= 4 * 10


def test_a_merge_on_arrival_looks_only_for_the_slowest_once_in_a_turn():
    # The first of those that are held is found by an iterator that stops there.
    few, many = (raced(asynchronous(), n) - 10 * n for n in (50, 200))
    assert few == many <= 11
    few, many = (raced(ssp(3), n) - 10 * n for n in (50, 200))
    assert few == many <= 11
    few, many = (raced(dssp(3, 9), n) - 10 * n for n in (50, 200))
    assert few == many <= 11


@pytest.mark.parametrize("seed", range(20))
def test_the_slowest_clock_is_the_least_one_whatever_happens(seed):
    rng, roster, version = random.Random(seed), Roster(), Version(0)
    for turn in range(400):
        worker = rng.randrange(6)
        if worker not in roster:
            roster.join(worker, version, float(turn))
            assert roster.get(worker).clock == min(roster.clocks.values(), default=0)
        elif rng.random() < 0.2:
            roster.leave(worker)
        else:
            steps = rng.choice((0, 1, 1, 2, 5))
            push = Pushed(worker, Handle(), base=version, n_samples=1, n_steps=steps)
            roster.pushed(push, float(turn))
        if rng.random() < 0.7:
            assert roster.slowest() == min(roster.clocks.values(), default=0)
        assert list(roster.times()) == list(roster.clocks)
        assert len(roster.times()) == len(roster.clocks)


def test_times_are_those_of_active_members():
    roster = Roster()
    roster.join(1, Version(0), 0.0)
    roster.join(2, Version(0), 0.0)
    for now in (3.0, 5.0):
        roster.pushed(Pushed(1, Handle(), base=0, n_samples=1, n_steps=4), now)
    assert dict(roster.times()) == {1: PushTimes(last=5.0, interval_s=2.0, n_steps=4)}
    assert 2 not in roster.times()
    with pytest.raises(KeyError):
        roster.times()[2]


def test_work_is_planned_once_a_round_and_not_at_all_where_it_is_the_same_for_all(monkeypatch):
    for policy, n_plans in ((fill_the_sync(), 20 + 3), (fixed(1), 20 + 3)):
        planned = Planned(policy)
        machine = Engine(bulk(), uniform(), planned, min_workers=20)
        played(machine, 20, rounds=3)
        assert planned.plans == n_plans
    even = Engine(bulk(), uniform(), fixed(1), min_workers=20)
    monkeypatch.setattr(Roster, "views", None)
    played(even, 20, rounds=3)
    assert even.work_of(7) == fixed(1).each


def played(machine, n, *, rounds):
    """Let ``n`` workers join and push round by round."""
    for worker in range(n):
        machine.handle(Joined(worker), 0.0)
    for version in range(rounds):
        for worker in range(n):
            machine.handle(Pushed(worker, Handle(), base=version, n_samples=1, n_steps=1), 1.0)
        machine.handle(Merged(), 1.0)


async def trained(n, rounds=10):
    """Let ``n`` overlapped workers train over links on which a push is a single piece; return the server's service."""
    params = {"w": np.zeros(MODEL_BYTES // 4, np.float32)}
    spec = {"sync": "bulk:1", "work": "until_model", "merge": "partial:0.5", "weights": "uniform"}
    counts = {"min_workers": n, "max_members": n}

    async def work(house, number):
        line = {way: Link(delay_s=0.02, rate_bytes_s=1e6) for way in ("up", "down")}
        async with house.worker(f"w{number}", **line) as ps:
            start = await ps.init()

            async def step(x):
                x += np.float32(1.0)
                await asyncio.sleep(0.01 + 0.0001 * number)

            await overlapped(ps, start["w"], step)

    async with Cluster(params=params, rounds=rounds, fold="arrival", **spec, **counts) as house:
        async with asyncio.TaskGroup() as group:
            for number in range(n):
                group.create_task(work(house, number))
        assert house.server.version == rounds
        return house.server.service


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.virtual
async def test_what_a_server_holds_is_the_same_for_fifty_workers_and_for_two_hundred():
    few, many = await trained(50), await trained(200)
    # The parameters, the sum, and a push on its way in or the next parameters.
    assert few.pool.peak_bytes == many.pool.peak_bytes == 3 * MODEL_BYTES
    assert (few.counters["pushes_folded"], many.counters["pushes_folded"]) == (500, 2000)
