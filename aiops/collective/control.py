"""Rank 0's decisions: when a spectrum is measured, and what the plan that comes of it is; and every rank's vote."""

from __future__ import annotations

import numpy as np

from aiops.collective.memory import Draft
from aiops.collective.tail import Directive
from aiops.kernels import energy_histogram
from aiops.policy.exchange import Exchange, Judge, Plan, Seen, Spectrum, VotingJudge

# From here on a sample stands for the vector: one block in so many is looked at.
# Small ones see the more of heavy tails: at density .004 the gain is 3 % off with blocks of 64, 7 % with 1024.
SAMPLE_ABOVE = 1_000_000
SAMPLE_BLOCK = 64
SAMPLE_EVERY = 16


class Control:
    """Asks a judge after each step, and shows it the next gradient where it wants to decide.

    What it says of a step it says again if that step is refused.

    Args:
        judge: The decisions of this training.
        collectives: What directives number.
    """

    __slots__ = ("_collectives", "_judge", "_plan", "_voter", "_wanted")

    def __init__(self, judge: Judge, collectives: tuple[str, ...]) -> None:
        self._judge = judge
        self._voter = judge if isinstance(judge, VotingJudge) else None
        self._collectives = collectives
        self._wanted = False
        self._plan: Plan | None = None

    def look(self, seen: Seen) -> None:
        """Note what a step was like."""
        self._wanted = self._judge.observe(seen)
        self._plan = None

    def decide(self, draft: Draft) -> Plan | None:
        """Return what changes with the next step; asked before each exchange.

        Args:
            draft: This rank's gradient plus residual, with whatever was moved out of it.
        """
        if self._wanted and draft.bad < 0:
            self._wanted = False
            self._plan = self._judge.decide(spectrum(draft))
        return self._plan

    def vote(self, draft: Draft) -> bool:
        """Return whether this rank is for what ranks vote on, if they do; asked of every rank in each exchange.

        Args:
            draft: See :meth:`decide`.
        """
        if self._voter is None or draft.bad >= 0:
            return False
        return self._voter.vote(spectrum(draft))

    def knows(self, exchange: Exchange) -> bool:
        """Return whether ``exchange`` is among what may be chosen."""
        return exchange.collective in self._collectives

    def directive(self, exchange: Exchange) -> Directive:
        """Return what tells the others of ``exchange``."""
        return Directive(self._collectives.index(exchange.collective), exchange.density)

    def exchange(self, directive: Directive) -> Exchange:
        """Return what ``directive`` says."""
        return Exchange(self._collectives[directive.collective], directive.density)


def spectrum(draft: Draft) -> Spectrum:
    """Return how the energy of a draft's whole sum is spread over its values.

    What was moved out is counted exactly; of the rest, where it is long, a sample.
    """
    every = SAMPLE_EVERY if draft.left.size > SAMPLE_ABOVE else 1
    counts, energies = energy_histogram(draft.left, block=SAMPLE_BLOCK, every=every)
    if draft.value.size and draft.moved_energy > 0:
        # The places of what was moved out hold zeros, which are in the sample as in the whole.
        moved, moved_energies = energy_histogram(np.ascontiguousarray(draft.value))
        scale = draft.left.size / max(int(counts.sum()), 1)
        counts = np.rint(counts * scale).astype(np.int64) + moved
        energies = energies * scale + moved_energies
        counts[0] = max(int(counts[0]) - draft.value.size, 0)
    return Spectrum(counts, energies)
