"""``aiops lab run``: a scenario's methods, each with every seed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from aiops import __version__
from aiops.cli.lab_common import chosen, data_option, data_root, interruptible, processes_option
from aiops.cli.lab_view import View, make_view
from aiops.cli.run import TargetMissed, run
from aiops.errors import ConfigError

if TYPE_CHECKING:
    from aiops.lab.comparison import Comparison
    from aiops.lab.job import Job
    from aiops.lab.record import Point, Record
    from aiops.lab.result import Folder, Lab, Manifest
    from aiops.lab.runner import Emulator
    from aiops.lab.scenario import Scenario


@click.command("run")
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--method", "methods", multiple=True, help="Only this one; may be repeated.")
@click.option("--seeds", help="In place of the scenario's: 0,1,2.")
@click.option(
    "--tuned", type=click.Path(path_type=Path), help="Numbers that aiops lab tune has found."
)
@click.option("--reference", help="Speed-ups are over this method.  [default: the first one]")
@click.option("--lab", type=click.Choice(["virtual", "real"]), help="[default: virtual]")
@click.option(
    "--emulator",
    type=click.Choice(["auto", "tun", "netem", "relay"]),
    default="auto",
    show_default=True,
    help="How the real lab makes its links.",
)
@processes_option
@data_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for records, summary, manifest and pictures.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary for programs.")
@click.option("--no-pictures", is_flag=True, help="Draw none.")
@click.pass_context
def run_scenario(
    context: click.Context,
    *,
    scenario: Path,
    methods: tuple[str, ...],
    seeds: str | None,
    tuned: Path | None,
    reference: str | None,
    lab: Lab | None,
    emulator: Emulator,
    processes: int | None,
    data_dir: Path | None,
    out: Path | None,
    as_json: bool,
    no_pictures: bool,
) -> int:
    """Run every method of a scenario with every seed, and compare.

    SCENARIO is a TOML file, or the manifest.json of an earlier run, which runs it again; in the virtual lab the numbers
    are then the same to the last bit. Exits with 5 when a method reached the target with no seed.
    """
    from aiops.lab.result import Folder
    from aiops.lab.runner import check, open_lab
    from aiops.lab.table import about, where

    view = make_view({})
    root = data_root(data_dir)
    manifest = _manifest(scenario, methods, seeds, tuned, reference, lab, root, context.obj, view)
    ready = manifest.scenario
    check(ready, manifest.lab, emulator)
    runs = {method.label: len(ready.seeds) for method in ready.chosen}
    view = make_view(runs)
    with Folder(out, manifest) if out is not None else contextlib.nullcontext() as folder:
        for line in (*about(ready, manifest.setting), where(manifest.machine, manifest.lab)):
            click.echo(line, err=as_json)
        records: list[Record] = []

        def told(job: Job, record: Record) -> None:
            records.append(record)
            if folder is not None:
                folder.add(record)
            view.told(record)

        def seen(job: Job, point: Point) -> None:
            view.seen(job.method.label, job.seed, point.at, point.accuracy)

        async def work() -> None:
            async with open_lab(
                ready, manifest.lab,
                processes=processes, data_root=root, emulator=emulator, seen=seen, warn=view.warn,
            ) as runner:  # fmt: skip
                await runner.run_all(_jobs(ready), told)

        code = run(interruptible(view, work, f"{sum(runs.values())} runs were asked for"))
        comparison = _show(manifest, records, folder, as_json=as_json)
    if folder is not None and not no_pictures and records:
        _draw(manifest, records, folder.path)
    if code:
        return code
    _check_reached(comparison, ready)
    return 0


def _manifest(
    path: Path,
    methods: Sequence[str],
    seeds: str | None,
    tuned: Path | None,
    reference: str | None,
    lab: Lab | None,
    root: str | None,
    arguments: Sequence[str] | None,
    view: View,
) -> Manifest:
    from aiops.bench.machine import differences, fingerprint
    from aiops.lab.problem import Problem
    from aiops.lab.result import Manifest, command_line, read_manifest
    from aiops.lab.scenario import read

    machine = fingerprint()
    earlier = read_manifest(path) if path.suffix == ".json" else None
    if earlier is not None:
        for difference in differences(earlier.machine, machine):
            view.warn(f"results may differ for {difference}")
    whole = read(path) if earlier is None else earlier.scenario
    ready = chosen(whole, methods, seeds)
    if tuned is not None:
        ready = _apply(tuned, ready, view)
    labels = [method.label for method in ready.chosen]
    if reference is None and earlier is not None and earlier.reference in labels:
        reference = earlier.reference
    if reference is not None and reference not in labels:
        raise ConfigError(f"reference is {reference!r}, the methods are {', '.join(labels)}")
    return Manifest(
        scenario=ready,
        lab=lab or (earlier.lab if earlier is not None else "virtual"),
        reference=reference or labels[0],
        n_values=Problem(ready, data_root=root).size,
        machine=machine,
        version=__version__,
        command=command_line(arguments or ()),
    )


def _apply(path: Path, scenario: Scenario, view: View) -> Scenario:
    from aiops.lab.tune import Tuning

    try:
        tuning = msgspec.json.decode(path.read_bytes(), type=Tuning)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"{path} is no result of aiops lab tune: {error}") from None
    ready = tuning.apply(scenario)
    for warning in tuning.warnings(ready):
        view.warn(warning)
    return ready


# Seed by seed, so that an interrupted campaign has pairs.
def _jobs(scenario: Scenario) -> list[Job]:
    from aiops.lab.job import Job

    return [
        Job(scenario=scenario, method=method, seed=seed)
        for seed in scenario.seeds
        for method in scenario.chosen
    ]


# The table, on the screen and in the folder; records come in any order, and are kept in that of the jobs.
def _show(
    manifest: Manifest, records: list[Record], folder: Folder | None, *, as_json: bool
) -> Comparison:
    from aiops.lab.comparison import compare
    from aiops.lab.table import remarks, table

    order = [(job.method.label, job.seed) for job in _jobs(manifest.scenario)]
    records.sort(key=lambda record: order.index((record.method.label, record.seed)))
    by_method: dict[str, list[Record]] = {method.label: [] for method in manifest.scenario.chosen}
    for record in records:
        by_method[record.method.label].append(record)
    comparison = compare(manifest.setting, by_method, manifest.reference)
    if folder is not None:
        folder.finish(records, comparison)
    if as_json:
        click.echo(msgspec.json.encode(comparison).decode())
    else:
        click.echo("\n".join(("", *table(comparison))))
    for line in remarks(records):
        click.echo(line, err=True)
    if folder is not None:
        click.echo(f"results: {folder.path}", err=True)
    return comparison


def _draw(manifest: Manifest, records: Sequence[Record], directory: Path) -> None:
    from aiops.lab.table import about, where

    try:
        from aiops.lab import picture
    except ImportError as error:
        click.echo(f"no pictures: {error} (pip install 'aiops-ps[demo]')", err=True)
        return
    runs: dict[str, list[Record]] = {}
    for method in manifest.scenario.chosen:
        found = [record for record in records if record.method.label == method.label]
        if found:
            runs[method.label] = found
    title = "\n".join(
        (*about(manifest.scenario, manifest.setting), where(manifest.machine, manifest.lab))
    )
    try:
        picture.accuracy(runs, manifest.scenario, directory / "accuracy.png", title=title)
        picture.timeline(runs, directory / "timeline.png", title=title)
    except OSError as error:
        click.echo(f"no pictures: cannot write to {directory}: {error.strerror}", err=True)


def _check_reached(comparison: Comparison, scenario: Scenario) -> None:
    from aiops.lab.table import percent

    missed = [summary for summary in comparison.methods if not summary.n_reached]
    if missed:
        best = ", ".join(f"{summary.label} (at best {summary.best:.1%})" for summary in missed)
        raise TargetMissed(
            f"no seed reached {percent(scenario.target)} within {scenario.budget_s:g} s: {best}"
        )
