"""Training on streams: the values that batch rules and data injection decide on, and their doors.

A device is whoever trains on a stream of its own, a rank of a collective job or a worker of a server. Rates come in
measured; nothing here has a clock, and what is drawn follows from a seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import msgspec


class Device(msgspec.Struct, frozen=True):
    """What is known of one device before its next step.

    Attributes:
        batch: Samples of its step so far; 0 before the first decision.
        rate: Samples per second that its stream brings; NaN where that is not known yet.
        step_s: Smoothed time of a step since ``batch`` was last changed, without the wait for samples and for others,
            in seconds; 0 where that is not known yet.
    """

    batch: int = 0
    rate: float = math.nan
    step_s: float = 0.0


class BatchRule(Protocol):
    """How many samples does each device's next step take?"""

    @property
    def local(self) -> bool:
        """Whether a device's batch follows from what is known of it alone, so that it may be asked about alone."""

    def __call__(self, devices: Sequence[Device]) -> Sequence[int]:
        """Return the batch of every device, in the order given, each >= 1.

        It is what a step waits for. How many samples a step gets where a stream has stopped is the stream's matter.
        """


class Draw(msgspec.Struct, frozen=True):
    """Which samples are handed on in one step, as one rank sees it. All but ``picks`` is the same on every rank.

    Attributes:
        rank: Whose draw it is.
        donors: The ranks that share, ascending.
        own: Samples of its own stream that each rank trains on.
        shares: Samples that each rank gives to each of the others; 0 of a rank that is no donor.
        picks: Which ones this rank gives, positions in its own ``own[rank]`` samples, ascending.
        batches: What each rank trains on, its own samples and the others' shares.
    """

    rank: int
    donors: tuple[int, ...]
    own: tuple[int, ...]
    shares: tuple[int, ...]
    picks: tuple[int, ...]
    batches: tuple[int, ...]

    @property
    def weights(self) -> tuple[float, ...]:
        """What each rank's gradient is worth, r_i = batches[i] / sum(batches); all zero where there is no sample."""
        total = sum(self.batches)
        return tuple(batch / total if total else 0.0 for batch in self.batches)


class Part(msgspec.Struct, frozen=True):
    """What one device makes of its batch in a step.

    Attributes:
        own: Samples that it trains on itself, the first ones.
        picks: Which of these it gives to each of the others, ascending.
    """

    own: int
    picks: tuple[int, ...] = ()


class InjectionRule(Protocol):
    """Which samples does a device share with the others?"""

    @property
    def name(self) -> str:
        """A text that names this rule, for those who are told it."""

    def donors(self, step: int, ranks: int) -> tuple[int, ...]:
        """Return who shares in a step, ascending; nobody where there is nobody to share with.

        Args:
            step: Steps finished.
            ranks: How many there are.
        """

    def part(self, step: int, batch: int, rank: int, *, donors: int, gives: bool) -> Part:
        """Return one device's part of a step: all that it has to know of the others is how many of them share.

        Args:
            step: Steps finished.
            batch: What it would train on without injection, in samples.
            rank: Its number.
            donors: How many devices share, itself counted.
            gives: Whether it is one of them.
        """

    def plan(self, step: int, batches: Sequence[int], rank: int) -> Draw:
        """Return the draw of a step.

        Args:
            step: Steps finished.
            batches: What each rank would train on without injection, in samples; the same on every rank.
            rank: Who asks.
        """
