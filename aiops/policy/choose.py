"""By which collective at a given density: the cheapest, unless what is used is hardly worse or was chosen just now."""

from __future__ import annotations

from collections.abc import Sequence

from aiops.policy.cost import COSTS, cheapest, is_dense
from aiops.policy.exchange import Exchange, Load, Network, Plan, Seen

# A collective has to be cheaper by this share to replace another, and the other to have been used for so many steps.
HYSTERESIS = 0.1
DWELL_STEPS = 20

# What sends the largest values of every rank, and what sends everybody's at positions that others chose.
GATHERED = ("allgather", "topk")
LED = ("artopk", "var", "vote")


def exchange_of(collective: str, density: float) -> Exchange:
    """Return the exchange by ``collective``, of everything where it is a dense one."""
    return Exchange(collective, 1.0 if is_dense(collective) else density)


def first_exchange(collectives: Sequence[str], density: float) -> Exchange:
    """Return what to do while nothing is known: the first that gathers each rank's own choice, else the first.

    What it sends loses nothing by following a leader, so that its gain is what a spectrum says.
    """
    for name in collectives:
        if Exchange(name).operator in GATHERED:
            return Exchange(name, density)
    return exchange_of(collectives[0], density)


def settled(
    load: Load, network: Network, density: float, collectives: Sequence[str], held: str
) -> tuple[str, float]:
    """Return the cheapest collective and its seconds, or ``held`` where that is not dearer by the hysteresis."""
    name, seconds = cheapest(load, network, density, collectives)
    if held in collectives:
        held_s = COSTS[held](load, network, density)
        if seconds > (1.0 - HYSTERESIS) * held_s:
            return held, held_s
    return name, seconds


def exchange_at(density: float, load: Load, collectives: Sequence[str], seen: Seen) -> Exchange:
    """Return the exchange at a density by what is cheapest, or held; while no link is known, by what comes first.

    Args:
        density: k/n, in (0, 1].
        load: What there is to exchange.
        collectives: What is chosen from.
        seen: What is known.
    """
    if seen.network is None:
        return exchange_of(first_exchange(collectives, density).collective, density)
    name, _ = settled(load, seen.network, density, collectives, seen.exchange.collective)
    return exchange_of(name, density)


class Chooser:
    """The collective of one density, step by step.

    Args:
        load: What there is to exchange.
        collectives: Names of :data:`aiops.policy.cost.COSTS`, the first is used until the network is known.
        density: k/n, in (0, 1].
    """

    __slots__ = ("_collectives", "_density", "_load", "_since", "current")

    def __init__(self, load: Load, collectives: Sequence[str], density: float) -> None:
        self._load = load
        self._collectives = tuple(collectives)
        self._density = density
        self._since: int | None = None
        self.current = exchange_of(self._collectives[0], density)

    def choose(self, step: int, network: Network) -> Plan | None:
        """Return what changes after ``step``; None where nothing does. What is returned is taken to be done.

        Args:
            step: Steps finished.
            network: What a link is like.
        """
        if self._since is not None and step - self._since < DWELL_STEPS:
            return None
        held = self.current.collective
        load, density = self._load, self._density
        name, seconds = settled(load, network, density, self._collectives, held)
        if name == held:
            return None
        held_s = COSTS[held](load, network, density)
        self.current, self._since = exchange_of(name, density), step
        return Plan(
            self.current,
            f"{self.current} takes {spoken(seconds)} where {held} takes {spoken(held_s)}, "
            f"over links of {described(network)}",
        )


def spoken(seconds: float) -> str:
    """Return a time for people, such as ``1.5 ms``; whole seconds and more as ``1.5 s``."""
    return f"{seconds:.4g} s" if seconds >= 1.0 else f"{seconds * 1e3:.3g} ms"


def described(network: Network) -> str:
    """Return the two numbers of a link for people, such as ``1.5 ms and 125 MB/s``."""
    rate = f"{1e-6 / network.byte_s:.4g} MB/s" if network.byte_s > 0 else "no limit to their rate"
    return f"{spoken(network.latency_s)} and {rate}"
