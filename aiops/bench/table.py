"""Results as text: one table, the ratios with their quartiles."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from aiops.bench.result import Figure, Line, Miss, Row

HEAD = (
    f"{'':<34}{'median':>10}  {'times as long as ours':<26}{'of bound':>9}{'CPU s/GB':>10}{'n':>4}"
    f"  {'goal'}"
)


def table(lines: Iterable[Line]) -> Iterator[str]:
    """Yield the lines of the table: a block per case, then single figures and what was not measured."""
    results = list(lines)
    rows = [line for line in results if isinstance(line, Row)]
    if rows:
        yield "median (quartiles) of interleaved passes; above 1, ours is faster"
        yield ""
        yield HEAD
    for (bench, case, network), block in itertools.groupby(rows, _block):
        yield f"{bench}: {case}" + (f" ({network})" if network else "")
        yield from map(_row, block)
    figures = [line for line in results if isinstance(line, Figure)]
    if figures:
        yield ""
    for figure in figures:
        goal = f" (goal {figure.goal})" if figure.goal else ""
        yield f"{figure.bench}: {figure.case}: {figure.value:.3g} {figure.unit}{goal}"
    misses = [line for line in results if isinstance(line, Miss)]
    if misses:
        yield ""
    for miss in misses:
        what = ", ".join(part for part in (miss.case, miss.peer) if part)
        yield f"not measured: {miss.bench}: {what}: {miss.reason}"


def seconds(value: float) -> str:
    """Return a time for people."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


# Rows of one case follow each other, but those of one case in two networks may be mixed.
def _block(row: Row) -> tuple[str, str, str]:
    return row.bench, row.case, row.network


def _row(row: Row) -> str:
    ratio = "-"
    if row.ratio is not None:
        ratio = f"{row.ratio:7.2f} ({row.ratio_q25:.2f}-{row.ratio_q75:.2f})"
    bound = "-" if row.bound_ratio is None else f"{row.bound_ratio:.2f}"
    cpu = "-" if row.cpu_s_per_gb is None else f"{row.cpu_s_per_gb:.2f}"
    time = seconds(row.median_s)
    # Ours has none against itself: its goal is about the bound.
    goal = f"  {row.goal}{' of bound' * (row.ratio == 1)}" if row.goal else ""
    goal += f"  CPU {row.cpu_goal}" if row.cpu_goal else ""
    return f"  {row.peer:<32}{time:>10}  {ratio:<26}{bound:>9}{cpu:>10}{row.n:>4}{goal}"
