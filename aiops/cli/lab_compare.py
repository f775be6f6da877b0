"""``aiops lab compare``: results of earlier runs, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from aiops.lab.comparison import Comparison

PICTURE = "speedup.png"


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--reference", help="Speed-ups are over this method.  [default: as it was run]")
@click.option("--json", "as_json", is_flag=True, help="Print the summaries for programs.")
@click.option(
    "--pictures",
    type=click.Path(path_type=Path, file_okay=False, exists=True, writable=True),
    help="Directory for speedup.png.  [default: the current one; none with --json]",
)
def compare(
    *, results: tuple[Path, ...], reference: str | None, as_json: bool, pictures: Path | None
) -> None:
    """Compare the methods of one or several runs of aiops lab run.

    RESULTS are their directories, or files of one record a line. Runs of one scenario become one table; several
    scenarios also a matrix of speed-ups over S/c and heterogeneity, and its picture.
    """
    from aiops.lab import comparison
    from aiops.lab.result import read_result
    from aiops.lab.table import matrix, remarks, table

    gathered = comparison.gather(read_result(path) for path in results)
    found = []
    for group in gathered:
        theirs = group.reference if group.reference in group.records else None
        first = reference or theirs or next(iter(group.records))
        found.append(comparison.compare(group.setting, group.records, first))
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        for one in found:
            click.echo("\n".join((_head(one), *table(one), "")))
    for group in gathered:
        for runs in group.records.values():
            for line in remarks(runs):
                click.echo(line, err=True)
    if len(found) > 1 and not as_json:
        for label in _others(found):
            click.echo("\n".join((*matrix(found, label), "")))
    if len(found) > 1 and (pictures is not None or not as_json):
        _draw(found, (pictures or Path()) / PICTURE)


def _head(one: Comparison) -> str:
    setting = one.setting
    return (
        f"{setting.scenario} ({setting.lab}): S/c {setting.ratio:.3g}, slowest {setting.heterogeneity:g}x, "
        f"{setting.n_values:,} values"
    )


# Every method that is not the reference everywhere.
def _others(found: Sequence[Comparison]) -> list[str]:
    labels = dict.fromkeys(
        s.label for one in found for s in one.methods if s.label != one.reference
    )
    return list(labels)


def _draw(found: Sequence[Comparison], path: Path) -> None:
    try:
        from aiops.lab.picture import speedups
    except ImportError as error:
        click.echo(f"no pictures: {error} (pip install 'aiops-ps[demo]')", err=True)
        return
    try:
        drawn = speedups(found, path)
    except OSError as error:
        click.echo(f"no pictures: cannot write {path}: {error.strerror}", err=True)
        return
    if drawn:
        click.echo(f"picture: {path}", err=True)
