"""``aiops bench``: how fast this is here, beside other libraries and beside what the machine allows."""

from __future__ import annotations

import asyncio
import importlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiops.cli.bench_view import View, make_view
from aiops.cli.run import Signals, TargetMissed, run
from aiops.errors import AiopsError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiops.bench.machine import Machine
    from aiops.bench.result import Line
    from aiops.bench.run import Bench

SUITES = ("kernels", "wire", "round", "peers")

# Its cases are functions of the process that measures, some of which take seconds a call.
APART = "kernels"


@click.command()
@click.argument("suite", type=click.Choice([*SUITES, "all"]), default="all")
@click.option("--quick", is_flag=True, help="Few cases and few passes: under a minute.")
@click.option("--json", "as_json", is_flag=True, help="Print each result as a line of JSON.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help="An earlier --json file: tell what changed; exit with 5 where a ratio was lost.",
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    help="Only this peer beside ours and the bound, and no kernels; may be repeated.",
)
@click.option(
    "--pictures",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for a picture of each suite.  [default: the current one; none with --json]",
)
def bench(
    suite: str,
    *,
    quick: bool,
    as_json: bool,
    against: Path | None,
    peers: tuple[str, ...],
    pictures: Path | None,
) -> int:
    """Measure ours and other libraries in the same run, in turn, and compare.

    SUITE is kernels (against numpy and torch), wire (frames and bare transfers), round (what a push, a sum and a pull
    cost), peers (the same with other libraries; pip install 'aiops-ps[peers]'), or all. Ratios are medians of passes;
    above 1 ours is faster. Exits with 5 when a ratio fell below 0.7 of the one in the --against file.
    """
    from aiops.bench.machine import fingerprint
    from aiops.bench.result import Head, encode, read
    from aiops.bench.table import table

    suites = _chosen(suite, peers)
    _check_directory(pictures)
    earlier = None if against is None else read(against)
    view, machine = make_view(), fingerprint()
    if earlier is not None:
        _check_earlier(earlier, machine, suites)
    lines: list[Line] = [Head(machine=machine)]

    def put(line: Line) -> None:
        lines.append(line)
        if as_json:
            click.echo(encode(line))

    if as_json:
        click.echo(encode(lines[0]))
    else:
        click.echo("\n".join(machine.lines()))
    code = run(_bench(suites, view, put, quick=quick, only=peers))
    if not as_json:
        click.echo("\n".join(("", *table(lines))))
    if code:
        return code
    # Pictures take seconds, and may fail.
    verdict = None if earlier is None else _compare(earlier, lines, to_stderr=as_json)
    if pictures is not None or not as_json:
        _draw(lines, machine, pictures or Path())
    if verdict is not None:
        raise verdict
    return 0


# The suites of a run, where some peers may be all that is asked for.
def _chosen(suite: str, peers: Sequence[str]) -> list[str]:
    from aiops.bench.peers.table import PEERS

    for name in peers:
        if name not in PEERS:
            raise ConfigError(f"peer {name!r} is unknown, known are {', '.join(PEERS)}")
    if peers and suite == APART:
        raise ConfigError(f"--peer is for processes that talk to each other, {APART} has none")
    return [name for name in SUITES if suite in (name, "all") and not (peers and name == APART)]


def _check_directory(pictures: Path | None) -> None:
    if pictures is None:
        return
    if not pictures.is_dir():
        raise ConfigError(f"cannot write pictures to {pictures}: it is no directory")
    if not os.access(pictures, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write pictures to {pictures}: permission denied")


async def _bench(
    suites: Sequence[str],
    view: View,
    put: Callable[[Line], None],
    *,
    quick: bool,
    only: Sequence[str],
) -> int:
    from aiops.bench.run import Bench, Clock

    clock = Clock()
    with Signals() as signals, view, tempfile.TemporaryDirectory(prefix="aiops-bench-") as scratch:
        bench = Bench(view, put, scratch=scratch, quick=quick, only=only)
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(_run(bench, suites))
            asked = tasks.create_task(signals.asked.wait())
            await asyncio.wait([work, asked], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            work.cancel()
        view.line(f"interrupted after {clock}" if signals.code else f"measured in {clock}")
    return signals.code


async def _run(bench: Bench, suites: Sequence[str]) -> None:
    from aiops.bench.apart import apart
    from aiops.bench.machine import congestion
    from aiops.bench.network import SAME, possible

    if not possible(SAME):
        bench.view.warn(
            f"no network with {SAME} for all: it takes the privilege to make one (root), "
            f"so everything runs on the system's {congestion()}"
        )
    for name in suites:
        if name == APART:
            await apart(bench, name)
        else:
            await importlib.import_module(f"aiops.bench.suites.{name}").run(bench)


def _draw(lines: Sequence[Line], machine: Machine, directory: Path) -> None:
    try:
        from aiops.bench.picture import draw
    except ImportError as error:
        click.echo(f"no pictures: {error} (pip install 'aiops-ps[peers]')", err=True)
        return
    for suite in SUITES:
        path = directory / f"bench-{suite}.png"
        try:
            drawn = draw(lines, suite, path, "; ".join(machine.lines()))
        except OSError as error:
            click.echo(f"no pictures: cannot write {path}: {error.strerror}", err=True)
            return
        if drawn:
            click.echo(f"picture: {path}", err=True)


# Before anything is measured: what of it could be compared, and with what reservation.
def _check_earlier(earlier: Sequence[Line], machine: Machine, suites: Sequence[str]) -> None:
    from aiops.bench.machine import differences
    from aiops.bench.result import Head, Row

    if not any(isinstance(line, Row) and line.bench in suites for line in earlier):
        raise ConfigError(f"the earlier run has no rows of {' or '.join(suites)}")
    for line in earlier:
        for difference in differences(line.machine, machine) if isinstance(line, Head) else ():
            click.echo(f"warning: ratios may differ for {difference}", err=True)


# What changed, told; and the error that it comes to, if any.
def _compare(
    earlier: Sequence[Line], lines: Sequence[Line], *, to_stderr: bool
) -> AiopsError | None:
    from aiops.bench.result import LOSS, changes, matches

    matched, here = matches(earlier, lines), matches(lines, lines)
    if not matched:
        return ConfigError(f"none of the {here} ratios of this run is in the earlier one")
    found = changes(earlier, lines)
    click.echo(f"{matched} of {here} ratios are in the earlier run", err=to_stderr)
    for change in found:
        click.echo(str(change), err=to_stderr)
    if not found:
        click.echo("nothing changed beyond the quartiles", err=to_stderr)
    lost = sum(change.lost for change in found)
    if lost:
        return TargetMissed(f"{lost} of the ratios fell below {LOSS:g} of what they were")
    return None
