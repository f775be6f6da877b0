"""``aiops bench``: how fast this is here, beside other libraries and beside what the machine allows."""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiops.cli.bench_view import View, make_view
from aiops.cli.run import Signals, TargetMissed, run
from aiops.errors import ConfigError

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
@click.option("--peer", "peers", multiple=True, help="Only this peer beside ours; may be repeated.")
@click.option(
    "--pictures",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default=True,
    help="Directory for a picture of each suite.",
)
def bench(
    suite: str,
    *,
    quick: bool,
    as_json: bool,
    against: Path | None,
    peers: tuple[str, ...],
    pictures: Path,
) -> int:
    """Measure ours and other libraries in the same run, in turn, and compare.

    SUITE is kernels (against numpy and torch), wire (frames and bare transfers), round (what a push, a sum and a pull
    cost), peers (the same with other libraries; pip install 'aiops-ps[peers]'), or all. Ratios are medians of passes;
    above 1 ours is faster. Exits with 5 when a ratio fell below 0.7 of the one in the --against file.
    """
    from aiops.bench.machine import fingerprint
    from aiops.bench.peers.table import PEERS
    from aiops.bench.result import Head, encode, read
    from aiops.bench.table import table

    for name in peers:
        if name not in PEERS:
            raise ConfigError(f"peer {name!r} is unknown, known are {', '.join(PEERS)}")
    if not pictures.is_dir():
        raise ConfigError(f"cannot write pictures to {pictures}: it is no directory")
    earlier = None if against is None else read(against)
    view, machine = make_view(), fingerprint()
    lines: list[Line] = [Head(machine=machine)]

    def put(line: Line) -> None:
        lines.append(line)
        if as_json:
            click.echo(encode(line))

    if as_json:
        click.echo(encode(lines[0]))
    else:
        click.echo("\n".join(machine.lines()))
    code = run(_bench(SUITES if suite == "all" else (suite,), view, put, quick=quick, only=peers))
    if not as_json:
        click.echo("\n".join(("", *table(lines))))
    _draw(lines, machine, pictures)
    if earlier is not None and not code:
        _compare(earlier, lines, to_stderr=as_json)
    return code


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
        if draw(lines, suite, path, "; ".join(machine.lines())):
            click.echo(f"picture: {path}", err=True)


def _compare(earlier: Sequence[Line], lines: Sequence[Line], *, to_stderr: bool) -> None:
    from aiops.bench.result import LOSS, changes

    found = changes(earlier, lines)
    for change in found:
        click.echo(str(change), err=to_stderr)
    if not found:
        click.echo("nothing changed beyond the quartiles", err=to_stderr)
    lost = [change for change in found if change.lost]
    if lost:
        raise TargetMissed(f"{len(lost)} of the ratios fell below {LOSS:g} of what they were")
