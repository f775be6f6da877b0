"""One door to both labs; the real one runs its jobs in turn."""

import pytest

from aiops.errors import ConfigError
from aiops.lab import real
from aiops.lab.job import Job
from aiops.lab.method import get
from aiops.lab.record import Point
from aiops.lab.runner import check, open_lab
from aiops.lab.scenario import Link
from tests.lab.kit import record, small


class Fake:
    """A real lab whose links are not what they should be."""

    def __init__(self, scenario, *, kind, data_root):
        self.made_of = scenario, kind, data_root
        self.verdict = self
        self.reasons = ["worker 1's rate is 9 % off"]

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        pass

    async def run(self, method, seed, *, tell):
        assert self.made_of == (small(), "netem", "/data")
        tell(Point(1.0, 1, 0.5, 1.0))
        return record(method.label, seed, 1.0)


async def test_the_real_lab_runs_jobs_in_turn(monkeypatch):
    monkeypatch.setattr(real, "RealLab", Fake)
    jobs = [Job(scenario=small(), method=get("fedavg"), seed=seed) for seed in (2, 1)]
    told, seen, warned = [], [], []
    async with open_lab(
        small(),
        "real",
        data_root="/data",
        emulator="netem",
        seen=lambda job, point: seen.append((job.seed, point.accuracy)),
        warn=warned.append,
    ) as lab:
        records = await lab.run_all(jobs, lambda job, record: told.append((job.seed, record.seed)))
    assert [record.seed for record in records] == [2, 1]
    assert told == [(2, 2), (1, 1)]
    assert seen == [(2, 0.5), (1, 0.5)]
    assert warned == ["runs will be rejected: worker 1's rate is 9 % off"]


def test_what_only_the_real_lab_can_do_is_refused_in_the_virtual_one():
    lossy = small(link=Link(loss=0.1))
    check(lossy, "real")
    with pytest.raises(ConfigError, match="use the real lab"):
        check(lossy, "virtual")
    with pytest.raises(ConfigError, match="emulator is 'tun', the virtual lab computes"):
        check(small(), "virtual", "tun")


async def test_the_real_lab_takes_no_number_of_processes():
    with pytest.raises(ConfigError, match="the real lab runs one at a time"):
        async with open_lab(small(), "real", processes=2):
            pass
