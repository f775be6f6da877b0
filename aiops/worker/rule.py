"""How an overlapped worker merges the model that arrives into what it has computed meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from aiops.config import BootstrapName, MergeName
from aiops.errors import ConfigError

MERGES = get_args(MergeName)
BOOTSTRAPS = get_args(BootstrapName)


@dataclass(frozen=True, slots=True)
class Rule:
    """How an overlapped worker behaves.

    Attributes:
        merge: What becomes of the local model when the global one arrives: reset, carry, eager, mix or partial.
        alpha: Share of its own model that "mix" keeps.
        beta: Share of the progress that "partial" keeps.
        bootstrap: "fixed", or "authors" to count the first steps twice as the prototype does.

    Raises:
        ConfigError: A name is unknown, or a share is outside its limits.
    """

    merge: str = "reset"
    alpha: float = 0.5
    beta: float = 0.5
    bootstrap: str = "fixed"

    def __post_init__(self) -> None:
        if self.merge not in MERGES:
            raise ConfigError(f"merge is {self.merge!r}, known are {', '.join(MERGES)}")
        if self.bootstrap not in BOOTSTRAPS:
            raise ConfigError(f"bootstrap is {self.bootstrap!r}, known are {', '.join(BOOTSTRAPS)}")
        if not 0.0 <= self.alpha < 1.0:
            raise ConfigError(f"alpha of merge 'mix' is {self.alpha!r}, it must be in [0, 1)")
        if not 0.0 <= self.beta <= 1.0:
            raise ConfigError(f"beta of merge 'partial' is {self.beta!r}, it must be in [0, 1]")
