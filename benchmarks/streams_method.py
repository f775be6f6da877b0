"""What is trained on streams, on which devices, and how: the rows of :mod:`benchmarks.streams`."""

from __future__ import annotations

from typing import Literal

import msgspec

from aiops.config.exchange import ExchangeConfig
from aiops.policy.batch import ByRate, Fixed
from aiops.policy.stream import BatchRule
from aiops.stream.rates import LISTS, RateName, draw_rates
from benchmarks.streams_clock import Machine

# The paper's.
LOW, HIGH = 8, 1024


class Task(msgspec.Struct, frozen=True):
    """What is trained, and how.

    Attributes:
        hidden: Width of the hidden layer.
        momentum: Of the optimizer.
        decay: What the learning rate is multiplied by at each milestone, the paper's for ResNet152.
        milestones: After which shares of the steps it is.
        steps: Of the whole training.
        evaluate: Steps between two looks at the test accuracy.
        n_test: Test samples that are looked at.
    """

    hidden: int = 64
    momentum: float = 0.9
    decay: float = 0.2
    milestones: tuple[float, ...] = (0.6, 0.8)
    steps: int = 400
    evaluate: int = 5
    n_test: int = 10_000

    def lr(self, lr: float, step: int) -> float:
        """Return the learning rate of a step that begins at ``lr``."""
        return lr * self.decay ** sum(step >= share * self.steps for share in self.milestones)


class Setting(msgspec.Struct, frozen=True):
    """Devices and their streams.

    Attributes:
        rates: A distribution of the paper, drawn for each seed, or "VGG19", the list of that name.
        devices: How many.
        skewed: Whether each has one label only; every one has a like share of all labels otherwise.
        machine: What they are.
    """

    rates: str
    devices: int
    skewed: bool
    machine: Machine

    @property
    def name(self) -> str:
        """What it is called."""
        kind = "one label each" if self.skewed else "IID"
        return f"{self.rates} {kind}, {self.devices} devices"

    @property
    def slug(self) -> str:
        """What its files are called."""
        kind = "skewed" if self.skewed else "iid"
        return f"{self.rates.replace(chr(39), '-prime')}-{kind}-{self.devices}"

    def drawn(self, seed: int) -> tuple[float, ...]:
        """Return the devices' rates, in samples/s."""
        if self.rates == "VGG19":
            return tuple(float(rate) for rate in LISTS["VGG19"])
        name: RateName = self.rates  # type: ignore[assignment]
        return draw_rates(name, self.devices, seed=seed)


class Method(msgspec.Struct, frozen=True):
    """How it is trained: a row of the table.

    Attributes:
        label: Its name.
        batches: By the rule of this name.
        low: The smallest batch by rate.
        high: The largest one.
        weighs: Whether gradients count by their samples; all count alike otherwise.
        truncates: Whether what a step leaves of a stream is thrown away.
        compresses: Whether gradients may be.
        sparse: By which collective those are exchanged that are.
        alpha: Share of the devices that inject.
        beta: Share of their batch that they do.
    """

    label: str
    batches: Literal["by_rate", "fixed"] = "by_rate"
    low: int = LOW
    high: int = HIGH
    weighs: bool = True
    truncates: bool = True
    compresses: bool = True
    sparse: str = "artopk_ring"
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def rule(self) -> BatchRule:
        """How many samples a step takes."""
        return Fixed() if self.batches == "fixed" else ByRate(self.low, self.high)

    @property
    def config(self) -> ExchangeConfig:
        """How gradients are exchanged."""
        return ExchangeConfig.parse(
            density="scadles:0.1,0.3" if self.compresses else "fixed:1",
            collectives=("dense_ring", self.sparse) if self.compresses else ("dense_ring",),
            weights="by_samples" if self.weighs else "uniform",
        )
