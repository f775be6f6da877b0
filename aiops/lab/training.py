"""One worker's training, the same code in both labs: real gradients, and compute time on a schedule."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from aiops.kernels import weighted_add
from aiops.lab.model import Vector
from aiops.lab.problem import Problem
from aiops.lab.record import Lane, WorkerRecord
from aiops.lab.scenario import Scenario
from aiops.launch.pace import AsyncPace
from aiops.trace import Span
from aiops.worker.client import Client
from aiops.worker.meter import MAX_SPANS, Meter
from aiops.worker.overlap import Step, overlapped
from aiops.worker.rounds import blocking

# How much of the beginning a record shows stretch by stretch, in rounds.
SHOWN_ROUNDS = 12


class Beginning(deque[Span]):
    """The spans up to the end of the last sync that a record shows: a thousand workers would hold millions of them."""

    def __init__(self) -> None:
        super().__init__(maxlen=MAX_SPANS)
        self._syncs, self._until = 0, math.inf

    def append(self, span: Span, /) -> None:
        """Keep a span, unless it ends too late."""
        if span.stop > self._until:
            return
        super().append(span)
        self._syncs += span.lane == "sync"
        if self._syncs == SHOWN_ROUNDS and self._until == math.inf:
            self._until = span.stop


class Speed:
    """How long a worker's local steps take.

    Args:
        scenario: Where it is written.
        worker: Whose.
        seed: Seed of the jitter.
    """

    def __init__(self, scenario: Scenario, worker: int, seed: int) -> None:
        base_s = scenario.workers.step_s
        self._times = [(-math.inf, base_s * scenario.slowdown_of(worker))]
        self._times += [
            (change.at_s, base_s * change.slowdown)
            for change in scenario.changes
            if change.slowdown is not None and change.applies_to(worker)
        ]
        self._jitter = scenario.workers.jitter
        self._rng = np.random.default_rng([seed, worker, 3])

    @property
    def constant_s(self) -> float:
        """Mean step time; 0 where it changes during a run."""
        return self._times[0][1] if len(self._times) == 1 else 0.0

    def draw_s(self, at: float) -> float:
        """Return how long a step takes that begins ``at`` seconds after the start."""
        step_s = next(step_s for since, step_s in reversed(self._times) if since <= at)
        if not self._jitter:
            return step_s
        # Mean 1 whatever the deviation.
        return step_s * float(self._rng.lognormal(mean=-0.5 * self._jitter**2, sigma=self._jitter))


@dataclass(slots=True)
class Trainee:
    """One worker of a run.

    Args:
        scenario: What is run.
        problem: What is trained.
        worker: Its number.
        seed: Seed of model and batches.
        lr: Learning rate.

    Attributes:
        meter: What was measured; None before training starts.
        speed: How long its steps take.
    """

    scenario: Scenario
    problem: Problem
    worker: int
    seed: int
    lr: float
    meter: Meter | None = None
    speed: Speed = field(init=False)

    def __post_init__(self) -> None:
        self.speed = Speed(self.scenario, self.worker, self.seed)

    async def train(self, ps: Client, begun: Callable[[], None], start: asyncio.Event) -> None:
        """Train until the server says that it is over, or this is cancelled.

        Args:
            ps: An entered client.
            begun: Called once this worker has its parameters.
            start: Set when all may begin.
        """
        model = self.problem.model
        ps.n_data = len(self.problem.shares[self.worker])
        snapshot = await ps.init_flat(
            model.specs, lambda _, flat: np.copyto(flat, model.initial(self.seed))
        )
        begun()
        await start.wait()
        loop = asyncio.get_running_loop()
        self.meter = meter = Meter(loop.time(), spans=Beginning())
        sampler, pace = self.problem.sampler(self.worker, self.seed), AsyncPace(self.speed.draw_s)
        slope, waits = self.problem.slope, 0
        gradient = model.bind(snapshot.flat, slope)

        async def step(x: Vector) -> Step:
            nonlocal waits
            if meter.waits != waits:
                waits = meter.waits
                pace.restart()
            images, labels = sampler.draw()
            loss = gradient(images, labels)
            weighted_add(x, slope, -self.lr)
            n_samples = len(labels)
            # A thousand workers would hold a thousand batches while they wait for the end of a step.
            del images, labels
            await pace.wait()
            return Step(n_samples=n_samples, loss=loss)

        run = overlapped if ps.policy.overlap else blocking
        await run(ps, snapshot.flat, step, meter=meter, lr=self.lr)

    def record(self, now: float) -> WorkerRecord:
        """Return what was measured up to ``now``, in seconds of the loop's clock."""
        meter = self.meter
        if meter is None:
            return WorkerRecord(
                n_steps=0,
                rounds=0,
                step_s=0.0,
                target_step_s=self.speed.constant_s,
                wait_s=0.0,
                overlap_ratio=0.0,
                utilisation=0.0,
            )
        # All of them while there was no sync.
        shown = max((span.stop for span in meter.spans if span.lane == "sync"), default=math.inf)
        return WorkerRecord(
            n_steps=meter.n_steps,
            rounds=meter.rounds,
            step_s=meter.compute_s / meter.n_steps if meter.n_steps else 0.0,
            target_step_s=self.speed.constant_s,
            wait_s=meter.wait_s,
            overlap_ratio=meter.overlap_ratio,
            utilisation=meter.utilisation(now),
            lanes=tuple(
                Lane(span.lane, span.start - meter.started, span.stop - meter.started)
                for span in meter.spans
                if span.stop <= shown
            ),
        )
