"""What a run leaves behind: plain structs, written and read as JSON."""

from __future__ import annotations

import msgspec

from aiops.lab.method import Method


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One version, looked at ``at`` seconds after the start."""

    at: float
    version: int
    accuracy: float
    loss: float


class Lane(msgspec.Struct, frozen=True, array_like=True):
    """One stretch of a worker's timeline, in seconds since the start: "compute", "sync" or "wait"."""

    name: str
    start: float
    stop: float


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker measured.

    Attributes:
        n_steps: Local steps.
        rounds: Models adopted.
        step_s: Mean duration of a step.
        target_step_s: What it was to be; 0 where it changed during the run.
        wait_s: Time standing still for the network.
        overlap_ratio: Compute time inside syncs over sync time.
        utilisation: Compute time over wall time.
        lanes: The beginning, stretch by stretch.
    """

    n_steps: int
    rounds: int
    step_s: float
    target_step_s: float
    wait_s: float
    overlap_ratio: float
    utilisation: float
    lanes: tuple[Lane, ...] = ()


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """What one link was like, as measured, or as computed in the virtual lab.

    Attributes:
        kind: How it is emulated.
        congestion: TCP congestion control; "" where there is no TCP.
        up_mbit: Rate achieved towards the server.
        down_mbit: Rate achieved from the server.
        delay_ms: One-way delay, half of the round trip.
    """

    kind: str
    congestion: str
    up_mbit: float
    down_mbit: float
    delay_ms: float


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one method with one seed.

    Attributes:
        scenario: Its name.
        lab: "virtual" or "real".
        method: What ran, as configured.
        seed: Seed of model and batches.
        n_values: Parameters of the model.
        points: Test accuracy over time.
        ended_s: When the run ended, in seconds since its start.
        reached_s: When the target was reached, confirmed by the next evaluation; None if it was not.
        reached_version: Which version that was.
        rounds: Versions made.
        up_bytes: Bytes from all workers to the server.
        down_bytes: Bytes from the server to all workers.
        workers: What each worker measured.
        wires: What each link was like.
        rejected: Why the run does not count, one sentence each; empty when it is valid.
        took_s: How long it took to compute, on the wall.
        failed: Why training ended before its time, in a sentence; empty where it did not.
    """

    scenario: str
    lab: str
    method: Method
    seed: int
    n_values: int
    points: tuple[Point, ...]
    ended_s: float
    reached_s: float | None
    reached_version: int | None
    rounds: int
    up_bytes: int
    down_bytes: int
    workers: tuple[WorkerRecord, ...]
    wires: tuple[Wire, ...] = ()
    rejected: tuple[str, ...] = ()
    took_s: float = 0.0
    failed: str = ""

    @property
    def final_accuracy(self) -> float:
        """Accuracy of the last version looked at; 0 if there was none."""
        return self.points[-1].accuracy if self.points else 0.0

    @property
    def best_accuracy(self) -> float:
        """Best accuracy of any version looked at."""
        return max((point.accuracy for point in self.points), default=0.0)

    @property
    def n_steps(self) -> int:
        """Local steps of all workers."""
        return sum(worker.n_steps for worker in self.workers)

    @property
    def overlap_ratio(self) -> float:
        """Mean over the workers."""
        return sum(w.overlap_ratio for w in self.workers) / max(len(self.workers), 1)

    @property
    def utilisation(self) -> float:
        """Mean over the workers."""
        return sum(w.utilisation for w in self.workers) / max(len(self.workers), 1)


class Curve:
    """Takes evaluations in and says when a target is reached.

    A target counts from its first crossing that the next evaluated version confirms: a single lucky version does
    not, and a method that makes more versions gains nothing by it.

    Args:
        target: The accuracy waited for.
    """

    def __init__(self, target: float) -> None:
        self.points: list[Point] = []
        self.reached: Point | None = None
        self._target = target

    @property
    def is_waiting(self) -> bool:
        """Whether the last version is at the target and the next one may confirm it."""
        return self.reached is None and bool(self.points) and self._is_there(self.points[-1])

    def _is_there(self, point: Point) -> bool:
        return point.accuracy >= self._target

    def add(self, point: Point) -> None:
        """Take in the evaluation of a newer version."""
        if self.is_waiting and self._is_there(point):
            self.reached = self.points[-1]
        self.points.append(point)
