"""What a machine says at a step boundary: what is to be done, and what is pushed."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiops.worker.fragment import Fragment

Vector = NDArray[np.float32]


class Move(enum.Enum):
    """What to do at a step boundary."""

    COMPUTE = "take another local step"
    PUSH = "call push"
    WAIT = "wait for the model, then call push"
    ADOPT = "call adopt"


@dataclass(slots=True)
class Update:
    """What is pushed.

    Attributes:
        values: float32, shape (n,); the machine's buffer, unchanged until the next :meth:`Overlap.push`.
        base: Version it was computed from.
        n_steps: Local steps in it.
        n_samples: Samples in it.
        loss: Mean loss over the steps that told one; NaN when none did.
        fragment: What part of the model it is of; None is the whole.
    """

    values: Vector
    base: int
    n_steps: int
    n_samples: int
    loss: float
    fragment: Fragment | None = None
