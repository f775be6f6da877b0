"""Measures one worker: compute, sync and wait, how much of a sync was overlapped, and steps per round.

It reads no clock: whoever measures passes the times in. Fed from one thread.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from aiops.trace import Span

# Spans kept for pictures; totals go on for ever.
MAX_SPANS = 100_000

# Weight of the newest step in the smoothed step time.
SMOOTHING = 0.2


@dataclass(slots=True)
class Meter:
    """Totals of one worker, in seconds of its own clock.

    Attributes:
        started: When measuring began.
        n_steps: Local steps finished.
        rounds: Models adopted.
        waits: Times the compute side stood still for the network.
        compute_s: Time in local steps.
        wait_s: Time standing still for the network.
        sync_s: Time from push start to model arrival, all rounds.
        overlap_s: Part of ``sync_s`` in which a local step was under way.
        step_s: Smoothed duration of a local step.
        phase_step_s: Mean duration of the local steps of the last push; 0 until there is one.
        last_sync_s: Duration of the last sync.
        steps_per_round: Local steps of the last pushes.
        spans: The last spans, in the order they ended.
    """

    started: float
    n_steps: int = 0
    rounds: int = 0
    waits: int = 0
    compute_s: float = 0.0
    wait_s: float = 0.0
    sync_s: float = 0.0
    overlap_s: float = 0.0
    step_s: float = 0.0
    phase_step_s: float = 0.0
    last_sync_s: float = 0.0
    steps_per_round: deque[int] = field(default_factory=lambda: deque(maxlen=10_000))
    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=MAX_SPANS))
    _recent: deque[Span] = field(default_factory=deque)
    _sync_since: float | None = None
    _phase_s: float = 0.0
    _n_phase: int = 0

    def stepped(self, start: float, stop: float) -> None:
        """Note a local step."""
        span = Span("compute", start, stop)
        self.n_steps += 1
        self.compute_s += stop - start
        took = stop - start
        self.step_s = took if self.n_steps == 1 else self.step_s + SMOOTHING * (took - self.step_s)
        self._phase_s += took
        self._n_phase += 1
        self.spans.append(span)
        if self._sync_since is not None:
            self._recent.append(span)

    def waited(self, start: float, stop: float) -> None:
        """Note that the compute side stood still for the network."""
        self.waits += 1
        self.wait_s += stop - start
        self.spans.append(Span("wait", start, stop))

    def pushing(self, now: float, *, n_steps: int) -> None:
        """Note that a sync starts, with a push of so many local steps."""
        self._sync_since = now
        self._recent.clear()
        self.steps_per_round.append(n_steps)
        if self._n_phase:
            self.phase_step_s = self._phase_s / self._n_phase
            self._phase_s, self._n_phase = 0.0, 0

    def arrived(self, at: float) -> None:
        """Note that the model of the running sync came in at ``at``."""
        since = self._sync_since
        if since is None:
            return
        self._sync_since = None
        self.rounds += 1
        self.last_sync_s = at - since
        self.sync_s += at - since
        for span in self._recent:
            self.overlap_s += max(0.0, min(span.stop, at) - max(span.start, since))
        self._recent.clear()
        self.spans.append(Span("sync", since, at))

    @property
    def overlap_ratio(self) -> float:
        """Compute time inside syncs over sync time: 1 for perfect overlap, 0 for blocking rounds."""
        return self.overlap_s / self.sync_s if self.sync_s else 0.0

    def utilisation(self, now: float) -> float:
        """Return compute time over wall time."""
        wall = now - self.started
        return self.compute_s / wall if wall > 0 else 0.0
