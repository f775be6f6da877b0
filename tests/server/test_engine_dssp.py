"""DSSP in the engine: what is granted lasts for as many pushes, and leads stay in the range."""

import asyncio
import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiops.policy.dssp import dssp
from aiops.policy.sync import ssp
from aiops.server.event import Answer
from aiops.sim.cluster import Cluster
from tests.server.script import MERGED, engine, join, leave, push


class Race:
    """Workers that push every so many seconds, computing from their last answer on; merges take no time."""

    def __init__(self, sync, *step_s):
        self.machine, self.step_s = engine(sync), step_s
        self.leads, self.waited, self.since, self.pushed = [], [0.0] * len(step_s), {}, []
        self.due = [(each, worker) for worker, each in enumerate(step_s)]
        heapq.heapify(self.due)
        for worker in range(len(step_s)):
            self.tell(join(worker), 0.0)

    def run(self, until):
        while self.due and self.due[0][0] <= until:
            now, worker = heapq.heappop(self.due)
            self.since[worker] = now
            self.pushed.append((now, worker))
            self.tell(push(f"{worker}", base=self.machine.version), now)
            self.tell(MERGED, now)
        return self

    def tell(self, event, now):
        for action in self.machine.handle(event, now):
            if isinstance(action, Answer):
                worker = action.worker
                clocks = self.machine.clocks()
                if worker in clocks:
                    self.leads.append(clocks[worker] - min(clocks.values()))
                self.waited[worker] += now - self.since.pop(worker)
                heapq.heappush(self.due, (now + self.step_s[worker], worker))


def test_one_and_three_point_three_seconds_give_three_further_pushes():
    machine = engine(dssp(3, 7))
    machine.handle(join(0), 0.0)
    machine.handle(join(1), 0.0)

    def pushed(worker, now, **options):
        actions = machine.handle(push(f"{worker}", base=machine.version, **options), now)
        actions += machine.handle(MERGED, now)
        return [action.worker for action in actions if isinstance(action, Answer)]

    assert pushed(0, 0.3) == [0]
    assert pushed(1, 1.0) == [1]
    for now in (1.3, 2.3, 3.3):
        assert pushed(0, now) == [0], "leads of 1, 2 and 3"
    # An empty push, so that the lead of the next one is 4 at the very moment of it.
    assert pushed(1, 4.3, n_steps=0) == [1]
    # It is granted 3 pushes of 1 s each, since the other one comes after 3.3 s.
    for now in (4.3, 5.3, 6.3):
        assert pushed(0, now) == [0], "leads of 4, 5 and 6"
    assert pushed(0, 7.3) == []
    # 0.3 s later the slower one is there, and is waited for until the lead is 3 again.
    assert pushed(1, 7.6) == [1]
    assert pushed(1, 10.9, n_steps=3) == [0, 1]


def test_a_race_of_one_and_three_point_three_seconds():
    race = Race(dssp(3, 7), 1.0, 3.3).run(30.0)
    fast = [round(now, 6) for now, worker in race.pushed if worker == 0]
    # The slow one pushes at 3.3, level with 3, 6.6, ... At 8 (lead 4) its next push at 9.9 is nearest to 10, so 2 are
    # granted; at 10 (lead 5) 13.2 is nearest to 13, so 3 are; at 13 the lead is 8, and 26.4 makes it 3.
    assert fast == [*map(float, range(1, 14)), 27.4, 28.4, 29.4]
    assert max(race.leads) == 7


@pytest.mark.parametrize("step_s", [(1.0, 3.3), (1.0, 1.7, 2.9), (0.3, 1.0, 1.0, 5.0)], ids=str)
def test_it_waits_less_than_its_low_bound_and_stays_under_its_high_one(step_s):
    low, dynamic, high = (Race(sync, *step_s).run(300.0) for sync in (ssp(3), dssp(3, 9), ssp(9)))
    assert max(dynamic.leads) <= 9
    assert len(dynamic.pushed) >= len(low.pushed)
    assert sum(dynamic.waited) <= sum(low.waited)
    assert max(low.leads) <= 3 < max(high.leads)


@settings(max_examples=150)
@given(
    low=st.integers(0, 4),
    wide=st.integers(1, 8),
    step_s=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=4),
    gone=st.integers(0, 3),
)
def test_leads_stay_in_the_range_and_nobody_waits_for_ever(low, wide, step_s, gone):
    race = Race(dssp(low, low + wide), *step_s).run(60.0)
    assert max(race.leads) <= low + wide
    assert race.due, "somebody goes on"
    if gone < len(step_s):
        race.due = [(at, worker) for at, worker in race.due if worker != gone]
        heapq.heapify(race.due)
        race.since.setdefault(gone, 60.0)
        race.tell(leave(gone), 60.0)
        race.due = [(at, worker) for at, worker in race.due if worker != gone]
        heapq.heapify(race.due)
        race.run(120.0)
        assert race.due


def test_a_grant_ends_with_the_life_of_its_worker():
    race = Race(dssp(3, 9), 1.0, 50.0).run(60.0)
    assert race.machine._roster.granted
    race.machine.handle(leave(0), 60.0)
    race.machine.handle(join(0), 60.0)
    assert not race.machine._roster.granted


@pytest.mark.virtual
async def test_a_cluster_trains_with_it():
    clocks = {"fast": 0, "slow": 0}
    leads = []

    async def work(house, name, step_s):
        async with house.worker(name) as ps:
            await ps.init({"w": np.zeros(4, np.float32)})
            while house.server.version < 60:
                await asyncio.sleep(step_s)
                clocks[name] += 1
                await ps.sync({"w": np.ones(4, np.float32)})
                if name == "fast":
                    leads.append(clocks["fast"] - clocks["slow"])

    async with Cluster(sync="dssp:3,7", weights="uniform") as house:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work(house, "slow", 3.3))
            tasks.create_task(work(house, "fast", 1.0))
        assert set(house.server.params()["w"].tolist()) == {float(house.server.version)}
    # The first push of the slow one comes after three of the fast one, from where both count.
    assert 3 < max(leads) <= 7 + 3
