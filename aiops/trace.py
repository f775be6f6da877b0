"""Spans: what a worker did, when, and for how long. Values only; nobody needs to listen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Lane = Literal["compute", "sync", "wait"]


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of time in one lane of one worker.

    Attributes:
        lane: "compute" for local steps, "sync" from push start to model arrival, "wait" for the compute side
            standing still until a model arrives.
        start: Seconds of the worker's clock.
        stop: Seconds of the worker's clock.
    """

    lane: Lane
    start: float
    stop: float
