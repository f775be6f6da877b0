"""What counts as a number where settings are checked: what is asked of one, in the same words everywhere."""

from __future__ import annotations

import math
from typing import TypeGuard

from aiops.errors import ConfigError


def is_real(value: object) -> TypeGuard[int | float]:
    """Return whether it is a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_count(value: object, least: int = 0) -> TypeGuard[int]:
    """Return whether it is a whole number >= ``least``; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_positive(what: str, value: object) -> None:
    """Refuse what is no finite number > 0.

    Raises:
        ConfigError: It is that.
    """
    if not (is_real(value) and value > 0):
        raise ConfigError(f"{what} is {value!r}, it must be finite and > 0")


def check_share(what: str, value: object) -> None:
    """Refuse what is no share of something that stays or is kept, in [0, 1).

    Raises:
        ConfigError: It is that.
    """
    if not (is_real(value) and 0 <= value < 1):
        raise ConfigError(f"{what} is {value!r}, it must be in [0, 1)")


def check_density(what: str, value: object) -> None:
    """Refuse what is no density, in (0, 1].

    Raises:
        ConfigError: It is that.
    """
    if not (is_real(value) and 0 < value <= 1):
        raise ConfigError(f"{what} is {value!r}, it must be in (0, 1]")
