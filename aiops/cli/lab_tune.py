"""``aiops lab tune``: the same search for every method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from aiops.cli.lab_common import chosen, data_option, data_root, interruptible, processes_option
from aiops.cli.lab_view import View, make_view
from aiops.cli.run import TargetMissed, run
from aiops.cli.tensors import check_place
from aiops.errors import ConfigError

if TYPE_CHECKING:
    from aiops.lab.method import Method
    from aiops.lab.record import Record
    from aiops.lab.scenario import Scenario
    from aiops.lab.tune import Tuned, Tuning


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--method", "methods", multiple=True, help="Only this one; may be repeated.")
@click.option(
    "--seeds",
    default="100,101",
    show_default=True,
    help="Seeds to search on; a comparison takes others.",
)
@click.option(
    "--points", type=int, default=32, show_default=True, help="The largest grid a method may have."
)
@processes_option
@data_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="File for everything that was tried, for aiops lab run --tuned.",
)
def tune(
    *,
    scenario: Path,
    methods: tuple[str, ...],
    seeds: str,
    points: int,
    processes: int | None,
    data_dir: Path | None,
    out: Path,
) -> int:
    """Search every method's grid in the virtual lab, with the same budget for each.

    Every point runs on the first seed, the best few on the others, too; the best geometric mean of times to target
    wins. Exits with 5 when no point of a method reached the target.
    """
    from aiops.bench.machine import fingerprint
    from aiops.lab.comparison import setting_of
    from aiops.lab.problem import Problem
    from aiops.lab.scenario import read
    from aiops.lab.table import about, percent, tuned_table, where
    from aiops.lab.tune import Tuning, at_most
    from aiops.lab.virtual import check

    check_place(out)
    ready = chosen(read(scenario), methods, seeds)
    check(ready)
    sizes = _sizes(ready, points)
    root = data_root(data_dir)
    setting = setting_of(ready, "virtual", Problem(ready, data_root=root).size)
    machine = fingerprint()
    for line in (*about(ready, setting), where(machine, "virtual"), _budget(sizes, ready.seeds)):
        click.echo(line)
    view = make_view({label: at_most(size, len(ready.seeds)) for label, size in sizes.items()})
    found: list[Tuned] = []
    code = run(
        interruptible(view, lambda: _search(ready, processes, root, view, found), "nothing written")
    )
    if found:
        click.echo("\n".join(("", *tuned_table(found, ready.seeds))))
    if code:
        return code
    tuning = Tuning(
        scenario=ready,
        seeds=ready.seeds,
        ratio=setting.ratio,
        machine=machine,
        methods=tuple(found),
    )
    _write(out, tuning)
    missed = [tuned.method.label for tuned in found if not tuned.reached]
    if missed:
        raise TargetMissed(
            f"no point of {', '.join(missed)} reached {percent(ready.target)} within {ready.budget_s:g} s"
        )
    return 0


async def _search(
    scenario: Scenario, processes: int | None, root: str | None, view: View, found: list[Tuned]
) -> None:
    from aiops.lab.fleet import Fleet
    from aiops.lab.tune import tune as search

    def tell(point: Method, record: Record) -> None:
        view.told(record, point.told())

    async with Fleet(processes, data_root=root) as fleet:
        for method in scenario.chosen:
            found.append(await search(fleet, scenario, method, scenario.seeds, tell))
            view.closed(method.label)


# Points by method; the points themselves are made, so that one that makes no sense is found before anything runs.
def _sizes(scenario: Scenario, limit: int) -> dict[str, int]:
    sizes = {method.label: sum(1 for _ in method.points()) for method in scenario.chosen}
    for label, size in sizes.items():
        if size > limit:
            raise ConfigError(
                f"the grid of {label!r} has {size} points, more than the {limit} that each may have"
            )
    return sizes


def _budget(sizes: dict[str, int], seeds: Sequence[int]) -> str:
    from aiops.lab.tune import FINALISTS

    points = ", ".join(f"{label} {size}" for label, size in sizes.items())
    others = ", ".join(map(str, seeds[1:]))
    then = f", the best {FINALISTS} of each on {others}" if others else ""
    return f"points: {points}; all on seed {seeds[0]}{then}"


def _write(path: Path, tuning: Tuning) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(tuning), indent=2) + b"\n")
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    click.echo(f"tuned numbers: {path}", err=True)
