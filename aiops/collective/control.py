"""Rank 0's decisions: when gains are measured, and what the plan that comes of them is; and every rank's vote."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aiops.collective.memory import Draft
from aiops.collective.request import Floats
from aiops.collective.tail import Directive
from aiops.kernels import energy_histogram
from aiops.policy.exchange import Exchange, GainCurve, Judge, Plan, Seen, Spectrum, VotingJudge

# Of a long vector about so many values are looked at, in blocks. Small blocks see the more of heavy tails: at density
# .004 the gain is 3 % off with blocks of 64, 7 % with 1024.
SAMPLE = 500_000
SAMPLE_BLOCK = 64

# Trials that were not done after so many steps have been forgotten; it is as long as most decisions stand.
PATIENCE_STEPS = 20

log = logging.getLogger("aiops.collective")


class Control:
    """Asks a judge after each step, and shows it the next gradient where it wants to decide, or what trials came to.

    What it says of a step it says again if that step is refused.

    Args:
        judge: The decisions of this training.
        collectives: What directives number.
    """

    __slots__ = ("_collectives", "_judge", "_plan", "_tried", "_voter", "_waited", "_wanted")

    def __init__(self, judge: Judge, collectives: tuple[str, ...]) -> None:
        self._judge = judge
        self._voter = judge if isinstance(judge, VotingJudge) else None
        self._collectives = collectives
        self._wanted = False
        self._plan: Plan | None = None
        self._tried: GainCurve | None = None
        self._waited = 0

    def look(self, seen: Seen) -> None:
        """Note what a step was like."""
        self._wait()
        self._wanted = self._judge.observe(seen)
        self._plan = self._tried = None

    def decide(self, draft: Draft) -> Plan | None:
        """Return what changes with the next step; asked before each exchange.

        Args:
            draft: This rank's gradient plus residual, with whatever was moved out of it.
        """
        if draft.bad >= 0:
            return None
        if self._tried is not None:
            self._plan = self._judge.decide(self._tried)
        elif self._wanted and not self._judge.trials:
            self._plan = self._judge.decide(spectrum(draft))
        else:
            return self._plan
        self._wanted, self._tried = False, None
        return self._plan

    def vote(self, draft: Draft) -> bool:
        """Return whether this rank is for what ranks vote on, if they do; asked of every rank in each exchange.

        Args:
            draft: See :meth:`decide`.
        """
        if self._voter is None or draft.bad >= 0:
            return False
        return self._voter.vote(spectrum(draft))

    @property
    def trials(self) -> tuple[Exchange, ...]:
        """What all ranks are to try for the next plan; nothing where none is wanted."""
        return self._judge.trials if self._wanted else ()

    def tried(self, gains: GainCurve) -> None:
        """Take what the trials came to; the next step decides on it."""
        self._tried = gains
        self._waited = 0

    # Says once that somebody waits for trials that nobody does.
    def _wait(self) -> None:
        if not self.trials:
            return
        self._waited += 1
        if self._waited == PATIENCE_STEPS:
            log.warning(
                "trials have been due for %d steps and nobody does them, so the exchange stays as it is: call "
                "aiops.collective.trials.Trials.measure after each step",
                PATIENCE_STEPS,
            )

    def knows(self, exchange: Exchange) -> bool:
        """Return whether ``exchange`` is among what may be chosen."""
        return exchange.collective in self._collectives

    def directive(self, exchange: Exchange) -> Directive:
        """Return what tells the others of ``exchange``."""
        return Directive(self._collectives.index(exchange.collective), exchange.density)

    def exchange(self, directive: Directive) -> Exchange:
        """Return what ``directive`` says."""
        return Exchange(self._collectives[directive.collective], directive.density)

    def numbers(self, trials: Sequence[Exchange]) -> tuple[int, ...]:
        """Return what tells the others of ``trials``, whose densities they know."""
        return tuple(self._collectives.index(one.collective) for one in trials)

    def exchanges(self, numbers: Sequence[int]) -> tuple[Exchange, ...]:
        """Return what ``numbers`` say is to be tried."""
        if not numbers:
            return ()
        return tuple(
            Exchange(self._collectives[number], one.density)
            for number, one in zip(numbers, self._judge.trials, strict=True)
        )


def spectrum(draft: Draft) -> Spectrum:
    """Return how the energy of a draft's whole sum is spread over its values.

    What was moved out is counted apart from the rest: a sample of the whole would see too few of so few. Of what is
    long a sample is taken.
    """
    counts, energies = _histogram(draft.left)
    if draft.value.size and draft.moved_energy > 0:
        # The places of what was moved out hold zeros.
        moved, moved_energies = _histogram(np.ascontiguousarray(draft.value))
        counts += moved
        energies += moved_energies
        counts[0] = max(int(counts[0]) - draft.value.size, 0)
    return Spectrum(counts, energies)


# Counts and energies by magnitude of the whole, from a sample where it is long.
def _histogram(x: Floats) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    every = max(1, round(x.size / SAMPLE))
    counts, energies = energy_histogram(x, block=SAMPLE_BLOCK, every=every)
    scale = x.size / max(int(counts.sum()), 1)
    return np.rint(counts * scale).astype(np.int64), energies * scale
