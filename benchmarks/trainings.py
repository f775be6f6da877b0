"""What benchmarks that train in lockstep share: their options, processes, kept results, and what counts as arrived."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from aiops.lab.statistic import Interval

T = TypeVar("T", bound=msgspec.Struct)

# One look is noise: the target is reached when the mean of so many is.
LOOKS = 5


def options(name: str, description: str | None, *, seeds: int) -> argparse.ArgumentParser:
    """Return a parser of what all of them are told.

    Args:
        name: The module's, below ``benchmarks``.
        description: What it says with ``--help``.
        seeds: How many there are unless told otherwise.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="one seed, few steps; under 3 minutes")
    parser.add_argument("--seeds", type=int, default=seeds, help="how many")
    parser.add_argument("--out", type=Path, help="directory of results, continued, and pictures")
    parser.add_argument(
        "--processes", type=int, default=len(os.sched_getaffinity(0)), help="runs at the same time"
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return what the command line says; it ends here where a count is below 1."""
    arguments = parser.parse_args()
    for name in ("seeds", "processes"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is {getattr(arguments, name)}, it must be at least 1")
    return arguments


def run(jobs: Mapping[str, partial[T]], kind: type[T], out: Path | None, processes: int) -> list[T]:
    """Run what is not there yet, and return all, in the order given.

    Args:
        jobs: By the name of their result's file, in which a space becomes a dash.
        kind: Of their results.
        out: Where results are kept; None for nowhere.
        processes: How many run at the same time.
    """
    paths = {name: out / f"{name.replace(' ', '-')}.json" for name in jobs} if out else {}
    found: dict[str, T] = {
        name: msgspec.json.decode(path.read_bytes(), type=kind)
        for name, path in paths.items()
        if path.exists()
    }
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    for name, result in _run({name: jobs[name] for name in jobs if name not in found}, processes):
        found[name] = result
        if paths:
            paths[name].write_bytes(msgspec.json.encode(result))
        print(f"{len(found)} of {len(jobs)}: {name}", file=sys.stderr, flush=True)
    return [found[name] for name in jobs]


def _run(jobs: Mapping[str, partial[T]], processes: int) -> Iterator[tuple[str, T]]:
    with pool(processes) as started:
        futures = {started.submit(job): name for name, job in jobs.items()}
        for future in concurrent.futures.as_completed(futures):
            yield futures[future], future.result()


@contextlib.contextmanager
def pool(processes: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Enter so many processes of one thread each; Ctrl-C ends them in the middle of what they do."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, context, _alone) as started:
        try:
            yield started
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


# One thread, there is a process for each core; and Ctrl-C is the parent's, which is asked at the same time.
def _alone() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)


def start(main: Callable[[], None]) -> None:
    """Run a benchmark; Ctrl-C ends it with one sentence and exit code 130."""
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted; results that are kept are not run again", file=sys.stderr)
        sys.exit(130)


def arrival(accuracy: Sequence[float], target: float, looks: int = LOOKS) -> int | None:
    """Return at which look a training was at the target; None where it was not.

    It is the last of ``looks`` whose mean accuracy is that or more, as one would know only then.
    """
    for at in range(looks - 1, len(accuracy)):
        if final(accuracy[: at + 1], looks) >= target:
            return at
    return None


def final(accuracy: Sequence[float], looks: int = LOOKS) -> float:
    """Return the mean of the last ``looks``."""
    return math.fsum(accuracy[-looks:]) / looks


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan


def told(interval: Interval, form: str) -> str:
    """Return an interval as text; of a single run the mean alone."""
    if interval.low == interval.high:
        return f"{interval.mean:{form}}"
    return f"{interval.mean:{form}} ({interval.low:{form}}-{interval.high:{form}})"
