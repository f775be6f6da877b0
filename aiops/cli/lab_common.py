"""What the verbs of ``aiops lab`` have in common: options, scenarios from files, and runs that can be interrupted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from aiops.cli.run import Signals
from aiops.errors import ConfigError

if TYPE_CHECKING:
    from aiops.cli.lab_view import View
    from aiops.lab.scenario import Scenario

data_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar="AIOPS_DATA_DIR",
    help="Where the data's files are.  [env: AIOPS_DATA_DIR]",
)
processes_option = click.option(
    "--processes", type=int, help="Runs at the same time (virtual lab).  [default: the cores]"
)


def data_root(directory: Path | None) -> str | None:
    """Return where to look for data first: what was asked for, or where the set-up script puts it."""
    if directory is None and (home := os.environ.get("XDG_CACHE_HOME")):
        directory = Path(home) / "aiops" / "datasets"
    return None if directory is None else str(directory)


def seeds_of(text: str) -> tuple[int, ...]:
    """Read seeds with commas.

    Raises:
        ConfigError: They are none.
    """
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"seeds are {text!r}, they must be whole numbers with commas") from None
    if min(seeds) < 0:
        raise ConfigError(f"seed {min(seeds)} is negative, seeds are >= 0")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds are {text!r}, one of them stands there twice")
    return seeds


def chosen(scenario: Scenario, methods: Sequence[str], seeds: str | None) -> Scenario:
    """Return a scenario with these of its methods, looked up, and these seeds.

    Raises:
        ConfigError: It has no such method, or the seeds make no sense.
    """
    from aiops.lab.scenario import only

    for label in methods:
        if methods.count(label) > 1:
            raise ConfigError(f"method {label!r} is asked for twice")
    scenario = only(scenario, methods)
    return msgspec.structs.replace(
        scenario,
        methods=scenario.chosen,
        seeds=scenario.seeds if seeds is None else seeds_of(seeds),
    )


async def interruptible(
    view: View, work: Callable[[], Coroutine[Any, Any, None]], news: str
) -> int:
    """Do work until it is done or a signal asks for its end; return the signal's exit code, or 0.

    Args:
        view: Shown meanwhile.
        work: What to do.
        news: What to say of it if it was interrupted.
    """
    with Signals() as signals, view:
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work())
            asked = tasks.create_task(signals.asked.wait())
            await asyncio.wait([working, asked], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            working.cancel()
        if signals.code:
            view.line(f"interrupted, all processes are ended; {news}")
    return signals.code
