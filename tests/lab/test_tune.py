"""The search finds the best point of a made-up landscape, whatever the order in which runs end."""

import asyncio
import math

import pytest

from aiops.bench.machine import fingerprint
from aiops.errors import ConfigError
from aiops.lab.method import Method
from aiops.lab.tune import FINALISTS, Trial, Tuned, Tuning, tune
from tests.lab.kit import record, small

METHOD = Method(
    label="f",
    algorithm="fedavg",
    settings={"work": "fixed:{tau}"},
    grid={"tau": (5, 10, 20, 40), "lr": (0.1, 0.2)},
)


class Fake:
    """A fleet whose runs take what a function says, and that ends them at their budget."""

    def __init__(self, time_s, *, order=1):
        self.time_s, self.order, self.jobs = time_s, order, []
        self.turn = asyncio.Lock()

    async def run(self, job):
        # One at a time, the first or the last asker first.
        for _ in range(2 if self.order > 0 else 20 - len(self.jobs)):
            await asyncio.sleep(0)
        async with self.turn:
            job = job() if callable(job) else job
            self.jobs.append(job)
            numbers = job.method.numbers()
            took = self.time_s(numbers, job.seed)
            budget = min(job.scenario.budget_s, job.give_up_s or math.inf)
            reached = took if took is not None and took <= budget else None
            accuracy = 0.5 + numbers["lr"]
            return record("f", job.seed, reached, points=[(1.0, 1, accuracy, 1.0)])

    async def run_all(self, jobs, told=None):
        records = [await self.run(job) for job in jobs]
        for job, one in zip(jobs, records, strict=True):
            if told is not None:
                told(job, one)
        return records


def bowl(numbers, seed):
    """Best at tau 20, lr 0.2: 10 s on every seed."""
    return 10.0 * 2 ** abs(math.log2(numbers["tau"] / 20)) * (1.2 if numbers["lr"] == 0.1 else 1.0)


@pytest.mark.parametrize("order", [1, -1])
async def test_the_best_point_is_found(order):
    heard = []
    fake = Fake(bowl, order=order)
    tuned = await tune(
        fake, small(budget_s=100.0), METHOD, [100, 101], lambda m, r: heard.append(m)
    )
    assert tuned.method.numbers() == {"tau": 20, "lr": 0.2}
    assert tuned.reached
    assert tuned.time_s == pytest.approx(10.0)
    assert tuned.edges == ("lr",)
    assert len(tuned.trials) == 8
    assert tuned.trials[tuned.best].times_s == {100: 10.0, 101: 10.0}
    # Every point on the first seed; on the second one the two within a quarter of the best.
    assert [job.seed for job in fake.jobs] == [100] * 8 + [101] * 2
    assert len(heard) == 10
    assert all(job.scenario.stop_at_target for job in fake.jobs)


async def test_a_point_that_is_better_on_the_other_seeds_wins():
    def times(numbers, seed):
        if numbers["lr"] == 0.2 or numbers["tau"] > 10:
            return 50.0
        # tau 10 is 20 % slower on the first seed, then far faster than tau 5.
        return {(5, 100): 10.0, (5, 101): 30.0}.get((numbers["tau"], seed), 12.0)

    tuned = await tune(Fake(times), small(budget_s=100.0), METHOD, [100, 101])
    assert tuned.method.numbers() == {"tau": 10, "lr": 0.1}
    # The slow one was let run to its end: only the first seed gives runs up.
    assert tuned.trials[0].times_s == {100: 10.0, 101: 30.0}


@pytest.mark.parametrize("order", [1, -1])
async def test_runs_given_up_early_change_nothing(order):
    def times(numbers, seed):
        return 8.0 if numbers == {"tau": 40, "lr": 0.2} else 9.9 + numbers["tau"] / 100

    tuned = await tune(Fake(times, order=order), small(budget_s=100.0), METHOD, [1, 2])
    assert tuned.method.numbers() == {"tau": 40, "lr": 0.2}
    assert sum(len(trial.times_s) == 2 for trial in tuned.trials) <= FINALISTS


async def test_where_no_point_arrives_the_most_accurate_one_is_taken():
    tuned = await tune(Fake(lambda numbers, seed: None), small(), METHOD, [100])
    assert not tuned.reached
    assert tuned.time_s is None
    assert tuned.method.lr == 0.2


async def test_a_point_that_misses_the_target_on_a_later_seed_loses():
    def times(numbers, seed):
        if numbers["tau"] == 20:
            return None if seed == 101 else 5.0
        return 5.5

    tuned = await tune(Fake(times), small(budget_s=100.0), METHOD, [100, 101])
    assert tuned.method.numbers()["tau"] != 20
    assert tuned.reached


@pytest.mark.parametrize(
    ("tau", "lr", "edges"),
    [(5, 0.1, ("tau", "lr")), (20, 0.2, ("lr",)), (40, 0.1, ("tau", "lr"))],
)
def test_a_best_point_at_the_edge_is_marked(tau, lr, edges):
    there = Trial(numbers={"tau": tau, "lr": lr}, times_s={1: 5.0})
    tuned = Tuned(method=METHOD.at(there.numbers), reached=True, trials=(there,), best=0)
    assert tuned.edges == edges


def test_a_grid_of_one_number_has_no_edge():
    method = Method(label="f", algorithm="fedavg", grid={"lr": (0.1,)})
    assert Tuned(method=method, reached=True, trials=(), best=0).edges == ()


def tuning(*methods):
    found = tuple(Tuned(method=m, reached=True, trials=(), best=0) for m in methods)
    return Tuning(scenario=small(), seeds=(100,), ratio=10.0, machine=fingerprint(), methods=found)


def test_tuned_numbers_go_into_a_scenario():
    scenario = small(methods=("nbsync", METHOD))
    nbsync, fedavg = tuning(METHOD.at({"tau": 40, "lr": 0.2})).apply(scenario).chosen
    assert nbsync.label == "nbsync"
    assert fedavg.spec()["work"] == "fixed:40"
    assert fedavg.lr == 0.2


def test_a_method_with_a_grid_that_was_not_searched_is_refused():
    scenario = small(methods=(METHOD,))
    other = Method(label="f", algorithm="fedavg", grid={"lr": (0.1, 0.2)})
    for found in (tuning(), tuning(other)):
        with pytest.raises(ConfigError, match="nothing was tuned for method 'f' and its tau, lr"):
            found.apply(scenario)
