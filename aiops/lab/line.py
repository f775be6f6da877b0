"""A scenario's links in the emulator's words: SI units, and what changes during a run link by link."""

from __future__ import annotations

from aiops.errors import ConfigError
from aiops.lab.scenario import Scenario
from aiops.lab.wan.link import Change, LinkSpec


def congestion_of(scenario: Scenario) -> str | None:
    """Return the congestion control of a scenario's links; None for the system's.

    Raises:
        ConfigError: They have several.
    """
    names = {scenario.link_of(worker).congestion for worker in range(scenario.workers.count)}
    if len(names) > 1:
        raise ConfigError(
            f"links have {', '.join(map(repr, sorted(names)))}, one run has one congestion control"
        )
    return names.pop() or None


def links_of(scenario: Scenario) -> list[LinkSpec]:
    """Return every worker's link, in their order."""
    return [_spec(scenario, worker) for worker in range(scenario.workers.count)]


def _spec(scenario: Scenario, worker: int) -> LinkSpec:
    link = scenario.link_of(worker)
    up, down = link.rates_mbit
    return LinkSpec(
        up_bits_s=up * 1e6,
        down_bits_s=down * 1e6,
        delay_s=link.delay_ms / 1e3,
        jitter_s=link.jitter_ms / 1e3,
        loss=link.loss,
        changes=tuple(_changes(scenario, worker)),
    )


# Ours are in Mbit/s and milliseconds and for several workers, the emulator's in SI units and of one link.
def _changes(scenario: Scenario, worker: int) -> list[Change]:
    changes = []
    for change in scenario.changes:
        numbers = (change.up_mbit, change.down_mbit, change.delay_ms, change.jitter_ms, change.loss)
        if change.applies_to(worker) and any(number is not None for number in numbers):
            changes.append(
                Change(
                    at_s=change.at_s,
                    up_bits_s=_scaled(change.up_mbit, 1e6),
                    down_bits_s=_scaled(change.down_mbit, 1e6),
                    delay_s=_scaled(change.delay_ms, 1e-3),
                    jitter_s=_scaled(change.jitter_ms, 1e-3),
                    loss=change.loss,
                )
            )
    return changes


def _scaled(number: float | None, unit: float) -> float | None:
    return None if number is None else number * unit
