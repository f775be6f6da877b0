"""What the demo's parent and its worker processes tell each other."""

from __future__ import annotations

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One training run of one worker.

    Attributes:
        index: Which worker this is.
        n_workers: How many there are.
        url: Where its server is, through its link.
        data: Name of the data set.
        data_root: Where its files are; None searches the usual places.
        cache: The cache directory to search.
        n_inputs: Pixels of an image.
        n_classes: Classes.
        hidden: Width of the hidden layer.
        alpha: Dirichlet concentration of the label skew; None is an even split.
        split_seed: Seed of the split.
        seed: Seed of model and batches.
        batch: Samples per step.
        lr: Learning rate.
        step_s: How long a local step takes, in seconds.
        budget_s: How long to train, in seconds.
        picture_s: How much of the beginning is reported span by span, in seconds.
    """

    index: int
    n_workers: int
    url: str
    data: str
    data_root: str | None
    cache: str | None
    n_inputs: int
    n_classes: int
    hidden: int
    alpha: float | None
    split_seed: int
    seed: int
    batch: int
    lr: float
    step_s: float
    budget_s: float
    picture_s: float


class Span(msgspec.Struct, frozen=True, array_like=True):
    """One stretch of a lane, in seconds since the start."""

    lane: str
    start: float
    stop: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker measured.

    Attributes:
        index: Which worker this is.
        n_steps: Local steps.
        rounds: Models received.
        waits: Times that computing stood still for the network.
        wait_s: How long it did.
        overlap_ratio: Compute time inside syncs over sync time.
        utilisation: Compute time over wall time.
        step_s: Mean step time.
        steps_per_round: Local steps of the last pushes.
        spans: The beginning, span by span.
    """

    index: int
    n_steps: int
    rounds: int
    waits: int
    wait_s: float
    overlap_ratio: float
    utilisation: float
    step_s: float
    steps_per_round: list[int]
    spans: list[Span]


class Point(msgspec.Struct, frozen=True, array_like=True):
    """Test accuracy of one version, ``at`` seconds after the start."""

    at: float
    version: int
    accuracy: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One algorithm's run.

    Attributes:
        algorithm: Its name.
        settings: What its server was told.
        time_to_target_s: Seconds until the target accuracy, confirmed by the next evaluation; None if never.
        final_accuracy: Accuracy of the last version.
        best_accuracy: Best accuracy of any version.
        rounds: Versions made.
        n_bytes: Bytes over all links, both ways.
        overlap_ratio: Mean over the workers.
        utilisation: Mean over the workers.
        curve: Accuracy over time.
        workers: What each worker measured.
    """

    algorithm: str
    settings: str
    time_to_target_s: float | None
    final_accuracy: float
    best_accuracy: float
    rounds: int
    n_bytes: int
    overlap_ratio: float
    utilisation: float
    curve: list[Point]
    workers: list[Result]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole demo.

    Attributes:
        data: Name of the data set.
        target: Target accuracy.
        budget_s: Seconds each algorithm had.
        rate_mbit: Rate of each worker's link in Mbit/s; None is no emulated link.
        delay_ms: One-way delay of each link.
        step_ms: Step time of each worker.
        n_values: Parameters of the model.
        sync_s: What a push and a pull take on an idle link.
        speedup: Time to target of the first algorithm over that of the last; None where one never got there.
        outcomes: The algorithms in the order they ran.
    """

    data: str
    target: float
    budget_s: float
    rate_mbit: float | None
    delay_ms: float
    step_ms: list[float]
    n_values: int
    sync_s: float
    speedup: float | None
    outcomes: list[Outcome]
