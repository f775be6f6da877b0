"""Records put side by side: what they depend on, one summary per method, and speed-ups over several scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from aiops.errors import ConfigError
from aiops.lab.record import Record
from aiops.lab.scenario import Scenario, dense_sync_s, heterogeneity, speed_ratio
from aiops.lab.statistic import Interval, Summary, geometric, summarize

if TYPE_CHECKING:
    from aiops.lab.result import Result


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What results depend on besides the method.

    Attributes:
        scenario: Its name.
        lab: "virtual" or "real".
        target: The accuracy waited for; None where only the records are left.
        n_values: Parameters of the model.
        ratio: S/c, dense sync time over the fastest worker's step time.
        heterogeneity: The slowest worker's step time over the fastest one's.
    """

    scenario: str
    lab: str
    target: float | None
    n_values: int
    ratio: float
    heterogeneity: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The methods of one scenario.

    Attributes:
        setting: What they have in common.
        reference: The method that speed-ups are over.
        seeds: Seeds of all runs.
        methods: One summary each.
    """

    setting: Setting
    reference: str
    seeds: tuple[int, ...]
    methods: tuple[Summary, ...]


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one scenario, whatever files they come from.

    Attributes:
        setting: What they have in common.
        records: By method.
        reference: The method that speed-ups are over, where a manifest names it.
    """

    setting: Setting
    records: dict[str, tuple[Record, ...]]
    reference: str | None = None


def setting_of(scenario: Scenario, lab: str, n_values: int) -> Setting:
    """Return what the results of a scenario depend on."""
    return Setting(
        scenario=scenario.name,
        lab=lab,
        target=scenario.target,
        n_values=n_values,
        ratio=speed_ratio(scenario, n_values),
        heterogeneity=heterogeneity(scenario),
    )


def measured_setting(record: Record) -> Setting:
    """Return the same from one record alone: of what its links and workers were like."""
    sync_s = max(
        (
            dense_sync_s(record.n_values, (wire.up_mbit, wire.down_mbit), wire.delay_ms)
            for wire in record.wires
        ),
        default=0.0,
    )
    steps = [worker.target_step_s or worker.step_s for worker in record.workers]
    steps = [step_s for step_s in steps if step_s] or [1.0]
    return Setting(
        scenario=record.scenario,
        lab=record.lab,
        target=None,
        n_values=record.n_values,
        ratio=sync_s / min(steps),
        heterogeneity=max(steps) / min(steps),
    )


def compare(
    setting: Setting, records: Mapping[str, Sequence[Record]], reference: str
) -> Comparison:
    """Return one summary per method.

    Args:
        setting: What the runs have in common.
        records: Runs by method, in the order of the table.
        reference: The method that speed-ups are over.

    Raises:
        ConfigError: There is no such method.
    """
    if reference not in records:
        known = ", ".join(records)
        raise ConfigError(
            f"scenario {setting.scenario!r} has no method {reference!r} to refer to, only {known}"
        )
    return Comparison(
        setting=setting,
        reference=reference,
        seeds=tuple(sorted({record.seed for runs in records.values() for record in runs})),
        methods=tuple(summarize(records, reference)),
    )


def gather(results: Iterable[Result]) -> list[Gathered]:
    """Put the runs of each scenario together.

    Files of one scenario (the same but for methods and seeds) become one; those of another one by the same name stay
    apart. They come by S/c, then by heterogeneity.

    Raises:
        ConfigError: A method ran twice with one seed, or two methods have the same name.
    """
    found: dict[bytes, Gathered] = {}
    for result in results:
        manifest = result.manifest
        for record in result.records:
            if manifest is None:
                key = msgspec.json.encode([record.scenario, record.lab])
                setting, reference = measured_setting(record), None
            else:
                key = _key(manifest.scenario, manifest.lab)
                setting, reference = manifest.setting, manifest.reference
            there = found.setdefault(
                key, Gathered(setting=setting, records={}, reference=reference)
            )
            _add(there, record)
    return sorted(found.values(), key=lambda one: (one.setting.ratio, one.setting.heterogeneity))


def by_cell(
    comparisons: Iterable[Comparison], label: str
) -> dict[tuple[float, float], Interval | None]:
    """Return a method's speed-up by S/c, to two digits, and heterogeneity; None where runs did not arrive.

    Scenarios of one cell become their geometric mean.
    """
    cells: dict[tuple[float, float], list[Interval | None]] = {}
    for comparison in comparisons:
        setting = comparison.setting
        cell = (float(f"{setting.ratio:.2g}"), float(f"{setting.heterogeneity:.2g}"))
        for summary in comparison.methods:
            if summary.label == label and summary.n_runs:
                cells.setdefault(cell, []).append(summary.speedup)
    return {cell: _mean(intervals) for cell, intervals in cells.items()}


def _mean(intervals: Sequence[Interval | None]) -> Interval | None:
    known = [interval for interval in intervals if interval is not None]
    if len(known) < len(intervals):
        return None
    if len(known) == 1:
        return known[0]
    return geometric([interval.mean for interval in known])


def _key(scenario: Scenario, lab: str) -> bytes:
    bare = msgspec.structs.replace(scenario, methods=("fedavg",), seeds=(0,))
    return msgspec.json.encode([bare, lab])


def _add(there: Gathered, record: Record) -> None:
    label = record.method.label
    runs = there.records.get(label, ())
    if any(run.seed == record.seed for run in runs):
        raise ConfigError(
            f"scenario {record.scenario!r} has two runs of {label!r} with seed {record.seed}, "
            "compare the files one by one"
        )
    if runs and runs[0].method != record.method:
        raise ConfigError(
            f"scenario {record.scenario!r} has two methods called {label!r}, "
            "give one of them another label"
        )
    there.records[label] = (*runs, record)
