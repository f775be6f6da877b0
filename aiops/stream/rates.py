"""How fast the streams of the ScaDLES paper are: its distributions, and the lists in its scripts."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from aiops.errors import ConfigError

RateName = Literal["S1", "S2", "S1'", "S2'"]

# ScaDLES (Tyagi and Swany, 2022), evaluation: shape, mean and standard deviation of a device's rate, in samples/s.
DISTRIBUTIONS: dict[str, tuple[str, float, float]] = {
    "S1": ("uniform", 38.0, 24.0),
    "S2": ("uniform", 300.0, 112.0),
    "S1'": ("normal", 64.0, 24.0),
    "S2'": ("normal", 256.0, 28.0),
}

# What the authors' scripts hold, in samples/s. The list that they call S2 is given here under S2', whose mean and
# deviation it has (257 and 27).
LISTS: dict[str, tuple[int, ...]] = {
    "S1": (50, 38, 12, 36, 34, 13, 82, 40),
    "S1'": (92, 38, 62, 42, 48, 88, 90, 22, 44, 28),
    "S2'": (270, 218, 300, 246, 232, 284, 284, 236, 274, 228),
    # The 25 devices of VGG19, whose distribution is not named.
    "VGG19": (
        92, 22, 62, 42, 48, 36, 18, 38, 84, 60, 108, 40, 58, 16, 44, 78, 92, 28, 30, 52, 84, 20, 16, 38, 66,
    ),
}  # fmt: skip

LEAST_RATE = 8.0


def draw_rates(
    name: RateName, n_devices: int, *, seed: int, least: float = LEAST_RATE
) -> tuple[float, ...]:
    """Draw the rates of devices from a distribution of the paper.

    A uniform one of mean m and deviation s lies in m +- s * sqrt(3), which for S1 begins below 0: what is under
    ``least`` becomes ``least``.

    Args:
        name: ``"S1"``, ``"S2"``, ``"S1'"`` or ``"S2'"``.
        n_devices: How many, >= 1.
        seed: The same seed gives the same rates.
        least: The slowest a stream may be, in samples/s, > 0; the paper's smallest batch, so that it takes a second.

    Returns:
        The rates in samples/s, one a device.

    Raises:
        ConfigError: There is no such distribution, or a number is not as said.
    """
    if name not in DISTRIBUTIONS:
        raise ConfigError(f"no rates are called {name!r}, there are {', '.join(DISTRIBUTIONS)}")
    if n_devices < 1:
        raise ConfigError(f"n_devices is {n_devices!r}, it must be >= 1")
    if not (math.isfinite(least) and least > 0):
        raise ConfigError(f"least is {least!r}, it must be finite and > 0")
    shape, mean, deviation = DISTRIBUTIONS[name]
    rng = np.random.default_rng(seed)
    if shape == "uniform":
        half = deviation * math.sqrt(3)
        drawn = rng.uniform(mean - half, mean + half, n_devices)
    else:
        drawn = rng.normal(mean, deviation, n_devices)
    return tuple(float(rate) for rate in np.maximum(drawn, least))
