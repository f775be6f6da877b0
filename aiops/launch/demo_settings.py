"""What the demo runs, checked before anything starts, and how it tells its progress."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aiops.errors import ConfigError
from aiops.policy.table import parse_merge, parse_work
from aiops.sim.relay import WanLink


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What is run.

    Attributes:
        data: Name of the data set.
        data_root: Where its files are; None searches the usual places.
        cache: The cache directory to search.
        n_workers: Workers, >= 2.
        link: Each worker's line; None connects it directly.
        step_s: A fast worker's step time, in seconds.
        slowdown: Step time of each worker over ``step_s``.
        hidden: Width of the model's hidden layer.
        batch: Samples per step.
        lr: Learning rate of every worker.
        fedavg_steps: Local steps of FedAvg's rounds.
        merge: NBSync's merge rule.
        alpha: Dirichlet concentration of the label skew; None is an even split.
        target: Accuracy that is waited for.
        budget_s: How long each algorithm trains.
        seed: Seed of model and batches.
    """

    data: str
    data_root: Path | None
    cache: Path | None
    n_workers: int
    link: WanLink | None
    step_s: float
    slowdown: tuple[float, ...]
    hidden: int
    batch: int
    lr: float
    fedavg_steps: int
    merge: str
    alpha: float | None
    target: float
    budget_s: float
    seed: int

    def __post_init__(self) -> None:
        if self.n_workers < 2:
            raise ConfigError(f"demo has {self.n_workers} workers, it takes at least 2")
        if len(self.slowdown) != self.n_workers:
            raise ConfigError(
                f"slowdown names {len(self.slowdown)} workers, there are {self.n_workers}"
            )
        if not all(factor >= 1 for factor in self.slowdown):
            raise ConfigError(f"slowdown is {self.slowdown}, every factor must be >= 1")
        for name in ("step_s", "budget_s", "lr", "alpha"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}, it must be > 0")
        # The server processes would refuse these, too, but only after everything has started.
        parse_work(f"fixed:{self.fedavg_steps}")
        parse_merge(self.merge)
        if not 0 < self.target < 1:
            raise ConfigError(f"target is {self.target!r}, it must be between 0 and 1")

    @property
    def algorithms(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Name and server flags of what is compared, in the order of running."""
        return (
            ("FedAvg", ("--algorithm", "fedavg", "--work", f"fixed:{self.fedavg_steps}")),
            ("NBSync", ("--algorithm", "nbsync", "--merge", self.merge)),
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run goes.

    Attributes:
        algorithm: What runs.
        at: Seconds since its start.
        budget_s: Seconds it has.
        version: Rounds closed.
        accuracy: Of the last version measured; None before.
        clocks: Local steps merged, by worker.
    """

    algorithm: str
    at: float
    budget_s: float
    version: int
    accuracy: float | None
    clocks: tuple[int, ...]
