"""One door to both labs: jobs in, records out."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from aiops.errors import ConfigError
from aiops.lab import virtual
from aiops.lab.fleet import Fleet, Told
from aiops.lab.job import Job
from aiops.lab.record import Point, Record
from aiops.lab.scenario import Scenario
from aiops.lab.wan.base import Kind

if TYPE_CHECKING:
    from aiops.lab.real import RealLab

Emulator = Kind | Literal["auto"]
Seen = Callable[[Job, Point], None]
Warn = Callable[[str], None]


class Runner(Protocol):
    """A lab that is open."""

    async def run_all(self, jobs: Sequence[Job], told: Told | None = None) -> list[Record]:
        """Run jobs, as many at once as the lab can, and return their records in the order of the jobs."""


def check(scenario: Scenario, lab: str, emulator: Emulator = "auto") -> None:
    """Refuse what a lab cannot do.

    Raises:
        ConfigError: It is that.
    """
    if lab == "virtual":
        if emulator != "auto":
            raise ConfigError(f"emulator is {emulator!r}, the virtual lab computes its links")
        virtual.check(scenario)


@contextlib.asynccontextmanager
async def open_lab(
    scenario: Scenario,
    lab: str,
    *,
    processes: int | None = None,
    data_root: str | None = None,
    emulator: Emulator = "auto",
    seen: Seen | None = None,
    warn: Warn | None = None,
) -> AsyncIterator[Runner]:
    """Open a lab for one scenario.

    Args:
        scenario: What is going to run; the real lab makes its links.
        lab: "virtual" or "real".
        processes: Runs at the same time in the virtual lab; as many as cores unless given.
        data_root: Where the data's files are; None searches the usual places.
        emulator: How the real lab makes its links.
        seen: Hears of every evaluation in the real lab.
        warn: Hears of what will make the real lab reject runs.

    Raises:
        ConfigError: The lab cannot do that.
    """
    check(scenario, lab, emulator)
    if lab == "virtual":
        async with Fleet(processes, data_root=data_root) as fleet:
            yield fleet
        return
    if processes is not None:
        raise ConfigError(
            f"processes is {processes}, the real lab runs one at a time, a process a worker"
        )
    # Imported here because the virtual lab needs none of it.
    from aiops.lab.real import RealLab

    async with RealLab(scenario, kind=emulator, data_root=data_root) as real:
        if warn is not None:
            for reason in real.verdict.reasons:
                warn(f"runs will be rejected: {reason}")
        yield _InTurn(real, seen)


class _InTurn:
    def __init__(self, real: RealLab, seen: Seen | None) -> None:
        self._real, self._seen = real, seen

    async def run_all(self, jobs: Sequence[Job], told: Told | None = None) -> list[Record]:
        records = []
        for job in jobs:
            tell = None if self._seen is None else functools.partial(self._seen, job)
            record = await self._real.run(job.method, job.seed, tell=tell)
            records.append(record)
            if told is not None:
                told(job, record)
        return records
