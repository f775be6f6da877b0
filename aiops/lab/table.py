"""Results as text: what was run, a table per scenario, and speed-ups over several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aiops.bench.machine import Machine
from aiops.lab.comparison import Comparison, Setting, by_cell
from aiops.lab.record import Record
from aiops.lab.scenario import Link, Scenario
from aiops.lab.statistic import Interval, Summary
from aiops.lab.tune import Tuned


def about(scenario: Scenario, setting: Setting) -> Iterator[str]:
    """Yield what is going to run, in a few lines."""
    slow = setting.heterogeneity
    speed = "equally fast" if slow == 1 else f"the slowest {slow:g} times slower"
    yield (
        f"{scenario.name}: S/c {setting.ratio:.3g} (a sync of {scenario.sync_s(setting.n_values):.3g} s, a step of "
        f"{scenario.workers.step_s * 1e3:g} ms), {scenario.workers.count} workers, {speed}"
    )
    alpha = scenario.data.skew
    skew = "evenly dealt" if alpha is None else f"label skew {alpha:g}"
    yield (
        f"{setting.n_values:,} values, {scenario.data.name}, {skew}, target {percent(scenario.target)}, "
        f"at most {scenario.budget_s:g} s; {links(scenario, setting.lab)}"
    )


def links(scenario: Scenario, lab: str) -> str:
    """Return what the links are like, in a few words."""
    kinds: dict[Link, int] = {}
    for worker in range(scenario.workers.count):
        kinds[scenario.link_of(worker)] = kinds.get(scenario.link_of(worker), 0) + 1
    told = [f"{n} of {_link(link)}" for link, n in kinds.items()]
    tcp = sorted({link.congestion or "of the system" for link in kinds})
    control = "no TCP (virtual)" if lab == "virtual" else f"congestion control {', '.join(tcp)}"
    count = len(scenario.changes)
    changes = f", {count} change{'s' * (count > 1)} on the way" if count else ""
    return f"links: {'; '.join(told)}; {control}{changes}"


def _link(link: Link) -> str:
    up, down = link.rates_mbit
    rate = f"{up:g}" if up == down else f"{up:g}/{down:g}"
    jitter = f" +- {link.jitter_ms:g}" if link.jitter_ms else ""
    loss = f", {link.loss:.2%} lost" if link.loss else ""
    return f"{rate} Mbit/s, {link.delay_ms:g}{jitter} ms each way{loss}"


def where(machine: Machine, lab: str) -> str:
    """Return where it runs, in one line."""
    emulated = "virtual time" if lab == "virtual" else "real time, step times padded"
    return f"{emulated} on {machine.lines()[0]}; commit {machine.commit or 'unknown'}"


def table(comparison: Comparison) -> Iterator[str]:
    """Yield the lines of a table: a method a line."""
    target = comparison.setting.target
    goal = "target" if target is None else percent(target)
    width = max(12, *(len(summary.label) for summary in comparison.methods))
    yield (
        f"{'':<{width}}  {'s to ' + goal:<21}{'times as fast':<19}{'reached':>8}{'rounds':>8}{'steps':>9}"
        f"{'overlap':>9}{'busy':>6}{'MB':>8}{'accuracy':>10}"
    )
    for summary in comparison.methods:
        yield f"{summary.label:<{width}}  {_row(summary, comparison.reference)}"
    yield ""
    many = len(comparison.seeds) > 1
    yield (
        f"{'geometric means over' if many else 'one run with'} seed{'s' * many} "
        f"{', '.join(map(str, comparison.seeds)) or '-'}"
        f"{' with 95 % bootstrap intervals' * many}; times as fast as {comparison.reference}"
        f"{', paired by seed' * many}"
    )


def _row(summary: Summary, reference: str) -> str:
    if not summary.n_runs:
        return f"all {summary.rejected} runs rejected" if summary.rejected else "no run yet"
    faster = "1" if summary.label == reference else _interval(summary.speedup)
    reached = f"{summary.n_reached} of {summary.n_runs}"
    row = (
        f"{_interval(summary.time_s):<21}{faster:<19}{reached:>8}{summary.rounds:>8.0f}{summary.steps:>9.0f}"
        f"{summary.overlap_ratio:>9.2f}{summary.utilisation:>6.0%}{_number(summary.megabytes):>8}"
        f"{summary.accuracy:>10.1%}"
    )
    return row + (f"  {summary.rejected} rejected" if summary.rejected else "")


def remarks(records: Iterable[Record]) -> Iterator[str]:
    """Yield a line for every run that does not count, or ended before its time."""
    for record in records:
        for reason in (*record.rejected, *([record.failed] if record.failed else [])):
            what = "rejected" if reason in record.rejected else "failed"
            yield f"{what}: {record.method.label}, seed {record.seed}: {reason}"


def matrix(comparisons: Sequence[Comparison], label: str) -> Iterator[str]:
    """Yield the lines of one method's speed-ups: S/c downwards, heterogeneity to the right."""
    cells = by_cell(comparisons, label)
    rows, columns = (sorted({cell[axis] for cell in cells}) for axis in (0, 1))
    references = sorted({comparison.reference for comparison in comparisons})
    yield f"{label}: times as fast as {' or '.join(references)}"
    yield f"{'S/c':>8}" + "".join(f"{f'slowest {column:g}x':>22}" for column in columns)
    for row in rows:
        texts = [
            _interval(cells[row, column], missing="not reached") if (row, column) in cells else ""
            for column in columns
        ]
        yield f"{row:>8g}" + "".join(f"{text:>22}" for text in texts)


def tuned_table(tuned: Sequence[Tuned], seeds: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table of best points."""
    width = max(12, *(len(one.method.label) for one in tuned))
    yield f"{'':<{width}}  {'points':>6}  {'s to target':>12}  best numbers"
    for one in tuned:
        numbers = one.method.told()
        time = "not reached" if one.time_s is None else _number(one.time_s)
        edge = f"  ({' and '.join(one.edges)} at the edge)" if one.edges else ""
        yield (
            f"{one.method.label:<{width}}  {len(one.trials):>6}  {time:>12}  "
            f"{numbers or 'no grid'}{edge}"
        )
    yield ""
    yield f"geometric means over seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    if any(one.edges for one in tuned):
        yield "at the edge: a wider grid may hold a better number"


def percent(share: float) -> str:
    """Return a share for people, with as many digits as it has."""
    return f"{100 * share:.4g} %"


def _interval(value: Interval | None, *, missing: str = "-") -> str:
    if value is None:
        return missing
    mean = _number(value.mean)
    if value.low == value.high:
        return mean
    return f"{mean} ({_number(value.low)}-{_number(value.high)})"


def _number(value: float) -> str:
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
