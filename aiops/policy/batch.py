"""Batch rules: as many samples as ever, as a stream brings, or as equal step times take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aiops.errors import ConfigError
from aiops.policy.number import check_share, is_count
from aiops.policy.stream import Device

# The bounds of ScaDLES' evaluation, and the batch of what it is compared with.
LOW, HIGH, BASE = 8, 1024, 64
# The dead-band of dynamic batching; ScaDLES publishes none.
BAND = 0.05


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same batch always, on every device: ScaDLES' baseline.

    Attributes:
        samples: That batch, >= 1.
    """

    samples: int = BASE

    def __post_init__(self) -> None:
        if not is_count(self.samples, 1):
            raise ConfigError(
                f"fixed's samples is {self.samples!r}, it must be a whole number >= 1"
            )

    @property
    def local(self) -> bool:
        """True."""
        return True

    def __call__(self, devices: Sequence[Device]) -> Sequence[int]:
        """Return the same for each."""
        return [self.samples] * len(devices)


@dataclass(frozen=True, slots=True)
class ByRate:
    """What a stream brings in one second, b_i = clip(S_i, low, high) (ScaDLES, Tyagi and Swany, 2022).

    Attributes:
        low: Smallest batch, >= 1.
        high: Largest one, >= ``low``.
        band: A batch stays where it would change by no more than this share of it, in [0, 1). It is ours.
    """

    low: int = LOW
    high: int = HIGH
    band: float = BAND

    def __post_init__(self) -> None:
        _check_range("by_rate", self.low, self.high)
        check_share("by_rate's band", self.band)

    @property
    def local(self) -> bool:
        """True: a device looks at its own stream only."""
        return True

    def __call__(self, devices: Sequence[Device]) -> Sequence[int]:
        """Return each device's rate, rounded and within the bounds; while it is not known, the batch so far."""
        return [self._batch(device) for device in devices]

    def _batch(self, device: Device) -> int:
        held = min(max(device.batch, self.low), self.high)
        if math.isnan(device.rate):
            return held
        wanted = round(min(max(device.rate, self.low), self.high))
        stays = held == device.batch and abs(wanted - held) <= self.band * held
        return held if stays else wanted


@dataclass(frozen=True, slots=True)
class Balanced:
    """Batches that make all steps last equally long, b_k <- b_k mean(mu) / mu_k (Tyagi and Sharma, 2020).

    With mu_k the time of a step of device k, this is a controller of gain b_k / mu_k on the error mu_k - mean(mu).
    Where the total is kept, all are scaled to add up to K times ``batch`` for K devices, and what a bound takes from
    one goes to the others in proportion; batches are then K ``batch`` X_k / sum(X) of the throughputs X_k = b_k / mu_k.
    The published static rule lacks the K; the later OmniLearn keeps the total by handing the surplus out in equal
    parts. That a batch is never again raised to where throughput once fell is left out.

    Attributes:
        batch: Of every device at first, and the mean where the total is kept, from ``low`` to ``high``.
        low: Smallest batch, >= 1.
        high: Largest one, >= ``low``.
        band: Nothing changes where no batch would by more than this share of it, in [0, 1).
        keeps_total: Whether the batches always add up to the same.
    """

    batch: int = BASE
    low: int = LOW
    high: int = HIGH
    band: float = BAND
    keeps_total: bool = True

    def __post_init__(self) -> None:
        _check_range("balanced", self.low, self.high)
        if not (is_count(self.batch, 1) and self.low <= self.batch <= self.high):
            raise ConfigError(
                f"balanced's batch is {self.batch!r}, it must be a whole number from low = {self.low} to "
                f"high = {self.high}"
            )
        check_share("balanced's band", self.band)

    @property
    def local(self) -> bool:
        """False: a device is measured against the others."""
        return False

    def __call__(self, devices: Sequence[Device]) -> Sequence[int]:
        """Return the batches for equal step times; the batches so far until every device's time is known."""
        held = [device.batch or self.batch for device in devices]
        if not all(device.batch and 0 < device.step_s < math.inf for device in devices):
            return held
        mean_s = math.fsum(device.step_s for device in devices) / max(len(devices), 1)
        wanted = [device.batch * (mean_s / device.step_s) for device in devices]
        if self.keeps_total:
            batches = _dealt(self.batch * len(devices), wanted, self.low, self.high)
        else:
            batches = [round(min(max(each, self.low), self.high)) for each in wanted]
        moved = any(
            abs(b - before) > self.band * before for b, before in zip(batches, held, strict=True)
        )
        return batches if moved else held


# Whole numbers from low to high in proportion to the weights, but for the bounds, which add up to the total.
def _dealt(total: int, weights: Sequence[float], low: int, high: int) -> list[int]:
    if not weights:
        return []

    def parts(scale: float) -> list[float]:
        return [min(max(scale * weight, low), high) for weight in weights]

    # The sum grows with the scale; halving the interval so often leaves no float64 in between.
    least, most = 0.0, high / min(weights)
    for _ in range(100):
        middle = (least + most) / 2
        if math.fsum(parts(middle)) < total:
            least = middle
        else:
            most = middle
    shares = parts(most)
    batches = [math.floor(share) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda at: (batches[at] - shares[at], at))
    for at in by_rest[: total - sum(batches)]:
        batches[at] += 1
    return batches


def _check_range(rule: str, low: object, high: object) -> None:
    if not is_count(low, 1):
        raise ConfigError(f"{rule}'s low is {low!r}, it must be a whole number >= 1")
    if not is_count(high, low):
        raise ConfigError(f"{rule}'s high is {high!r}, it must be a whole number >= low = {low}")


def fixed(samples: int = BASE) -> Fixed:
    """Return the same batch for everybody.

    Args:
        samples: That batch, >= 1.
    """
    return Fixed(samples)


def by_rate(low: int = LOW, high: int = HIGH, band: float = BAND) -> ByRate:
    """Return ScaDLES' rule: what a stream brings in a second.

    Args:
        low: Smallest batch, >= 1.
        high: Largest one, >= ``low``.
        band: Share of a batch by which it has to change at least, in [0, 1).
    """
    return ByRate(low, high, band)


def balanced(batch: int = BASE, low: int = LOW, high: int = HIGH, band: float = BAND) -> Balanced:
    """Return dynamic batching under which the global batch stays: equal step times.

    Args:
        batch: Mean over the devices, from ``low`` to ``high``.
        low: Smallest batch, >= 1.
        high: Largest one, >= ``low``.
        band: Share of a batch by which one has to change at least, in [0, 1).
    """
    return Balanced(batch, low, high, band)


def balanced_freely(
    batch: int = BASE, low: int = LOW, high: int = HIGH, band: float = BAND
) -> Balanced:
    """Return dynamic batching as first published, under which the global batch follows: equal step times.

    Args:
        batch: Of every device at first, from ``low`` to ``high``.
        low: Smallest batch, >= 1.
        high: Largest one, >= ``low``.
        band: Share of a batch by which one has to change at least, in [0, 1).
    """
    return Balanced(batch, low, high, band, keeps_total=False)
