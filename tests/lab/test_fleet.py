"""Runs in processes of their own: the same numbers as here, in the order of the jobs, and errors that say why."""

import asyncio

import msgspec
import pytest

from aiops.errors import ConfigError
from aiops.lab import virtual
from aiops.lab.fleet import Fleet
from aiops.lab.job import Job, work
from aiops.lab.method import get
from aiops.lab.problem import Problem
from aiops.lab.record import Record
from aiops.lab.scenario import Data, Link
from aiops.launch.process import ChildFailed
from tests.lab.kit import small

pytestmark = pytest.mark.timeout(60)


def job(algorithm="fedavg", seed=0, **changes):
    return Job(scenario=small(**changes), method=get(algorithm), seed=seed)


def test_a_job_survives_json():
    assert msgspec.json.decode(msgspec.json.encode(job()), type=Job) == job()


def test_a_job_is_a_run_and_its_problem_is_kept():
    problems = {}
    first = work(job(budget_s=1.0), problems, None)
    (problem,) = problems.values()
    second = work(job(budget_s=1.0, seed=1), problems, None)
    assert isinstance(first, Record)
    assert isinstance(second, Record)
    assert list(problems.values()) == [problem]
    work(job(budget_s=1.0, data=Data(name="digits", n_train=300)), problems, None)
    assert list(problems.values()) != [problem]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"link": Link(loss=0.1)}, "fedavg: scenario 'small' has links that lose 0.1"),
        ({"data": Data(name="digits", n_train=9999)}, "fedavg: n_train is 9999, digits has"),
        ({"data": Data(name="mnist")}, "fedavg: no data set is called 'mnist'"),
    ],
)
def test_a_job_that_makes_no_sense_is_a_sentence(changes, message):
    assert work(job(**changes), {}, None).startswith(message)


@pytest.mark.slow
async def test_records_come_in_the_order_of_the_jobs_and_are_those_of_this_process():
    jobs = [job("nbsync", seed, budget_s=2.0) for seed in (3, 1, 2)]
    heard = []
    async with Fleet(2) as fleet:
        records = await fleet.run_all(jobs, lambda job, record: heard.append((job.seed, record)))
    assert [record.seed for record in records] == [3, 1, 2]
    assert sorted(seed for seed, _ in heard) == [1, 2, 3]
    problem = Problem(small())
    for one, record in zip(jobs, records, strict=True):
        here = await asyncio.to_thread(
            virtual.run, one.scenario, one.method, one.seed, problem=problem
        )
        # Sums of numpy's may differ by a bit with the number of threads, which is 1 in a job's process.
        assert [p.version for p in record.points] == [p.version for p in here.points]
        assert record.points[-1].loss == pytest.approx(here.points[-1].loss, rel=1e-3)


@pytest.mark.slow
async def test_an_error_leaves_the_process_for_the_next_job():
    async with Fleet(1) as fleet:
        with pytest.raises(ConfigError, match="use the real lab"):
            await fleet.run(job(link=Link(loss=0.1)))
        assert (await fleet.run(lambda: job(budget_s=1.0))).method.label == "fedavg"


@pytest.mark.slow
async def test_a_process_that_ends_is_said():
    async with Fleet(1) as fleet:
        child = fleet._idle.get_nowait()
        fleet._idle.put_nowait(child)
        run = asyncio.ensure_future(fleet.run(job("nbsync", budget_s=500.0, stop_at_target=False)))
        await asyncio.sleep(0.3)
        child.signal(9)
        with pytest.raises(ChildFailed, match="lab process 0 ended with -9"):
            await run


def test_a_fleet_of_nobody_is_refused():
    with pytest.raises(ConfigError, match="processes is 0, it must be >= 1"):
        Fleet(0)
