"""What the server measures of one worker: its step time, its sync time, and what of that is its link's.

Measurements come over the wire, so none of them is believed that the time between two pushes has no room for. It
reads no clock: the engine passes the time in.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiops.policy.base import PushTimes, WorkerView
from aiops.server.event import Pushed
from aiops.types import Clock

# Weight of the newest measurement in a smoothed one.
SMOOTHING = 0.5

# A measurement that differs from the smoothed one by more than this factor takes its place at once: a worker or a link
# that has changed is planned for in the next round, and within it noise is averaged out.
JUMP = 1.5

# How much longer than the time between two arrivals a worker's own times for it may be. Both ends of that time have an
# upload before them, so that it is too short by what the link became faster in between.
SLACK = 2.0


@dataclass(slots=True)
class Pace:
    """The measurements of one life of a worker.

    Attributes:
        heard: When it joined or its last push came, in seconds of the loop's clock.
        step_s: Smoothed duration of a local step, in seconds; 0 until it is known.
        sync_s: Smoothed time from push to model, in seconds; 0 until it is known.
        link_s: The same without the wait for other workers.
        interval_s: Time between its last two pushes, without what the answer to the first was held back; 0 until
            there are two.
        n_steps: Local steps of the last push.
    """

    heard: float
    step_s: float = 0.0
    sync_s: float = 0.0
    link_s: float = 0.0
    interval_s: float = 0.0
    n_steps: int = 0
    _pushed: bool = False
    _held_back_s: float = 0.0
    # How long the answer to the last push waited for other workers; None while there is none, or it was measured.
    _waited_s: float | None = None
    _merged: float = 0.0

    def pushed(self, push: Pushed, now: float) -> None:
        """Take in what a push that came ``now`` says of the time since the one before."""
        believed_s = SLACK * (now - self.heard)
        if self._pushed:
            self.interval_s = now - self.heard - self._held_back_s
        self.heard, self.n_steps = now, push.n_steps
        self._pushed, self._held_back_s = True, 0.0
        if 0.0 < push.step_s * push.n_steps <= believed_s:
            self.step_s = tracked(self.step_s, push.step_s)
        if 0.0 < push.sync_s <= believed_s:
            self.sync_s = tracked(self.sync_s, push.sync_s)
            if self._waited_s is not None and push.sync_s > self._waited_s:
                self.link_s = tracked(self.link_s, push.sync_s - self._waited_s)
        self._waited_s = None

    def merged(self, waited_s: float, now: float) -> None:
        """Note that its push is part of a version ``now``, and how long that waited for the round to close."""
        self._waited_s, self._merged = waited_s, now

    def answered(self, now: float) -> None:
        """Note that it is told so only ``now``, because of other workers."""
        if self._waited_s is not None:
            self._held_back_s = now - self._merged
            self._waited_s += self._held_back_s

    def declined(self) -> None:
        """Note that a push was not taken: what the worker measures next is not a sync's time."""
        self._waited_s = None

    def view(self, clock: Clock) -> WorkerView:
        """Return what a work policy may see."""
        return WorkerView(clock=clock, step_s=self.step_s, sync_s=self.sync_s, link_s=self.link_s)

    def times(self) -> PushTimes:
        """Return what a sync policy may see."""
        return PushTimes(self.heard, self.interval_s, self.n_steps)


def tracked(old: float, new: float) -> float:
    """Return a measurement smoothed, or as it is where it is the first one or far from the smoothed."""
    if old / JUMP <= new <= old * JUMP:
        return old + SMOOTHING * (new - old)
    return new
