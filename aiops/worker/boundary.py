"""What a machine says at a step boundary - what is to be done, what is pushed - and what it keeps for that."""

from __future__ import annotations

import abc
import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiops.worker.fragment import Fragment
from aiops.worker.ticket import Snapshot

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


class Phase(abc.ABC):
    """What the state machine of any worker keeps: the steps since its last push, and a mailbox for one answer.

    Args:
        version: Version of the parameters to start from.

    Attributes:
        version: Version of the newest model adopted, which the present phase started from.
        n_steps: Local steps since the last push.
        mail_at: When what is in the mailbox came, in seconds of the worker's clock.
        under_way: Whether a push has not been answered, or its answer not been taken yet.
        restarts: Times that a push came too late to be merged, so that the worker began anew.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.n_steps = 0
        self.mail_at = 0.0
        self.under_way = False
        self.restarts = 0
        self._lost = False
        # The one-slot mailbox: written by the sync side, taken by the compute side; assignment is atomic.
        self._mail: Snapshot | None = None
        self._n_samples = 0
        self._loss_sum, self._n_losses = 0.0, 0

    @abc.abstractmethod
    def move(self) -> Move:
        """Say what to do at this boundary."""

    def stepped(self, *, n_samples: int = 1, loss: float | None = None) -> Move:
        """Count a local step and say what to do now."""
        self.n_steps += 1
        self._n_samples += n_samples
        if loss is not None:
            self._loss_sum += loss
            self._n_losses += 1
        return self.move()

    def deliver(self, snapshot: Snapshot, *, at: float = 0.0, merged: bool = True) -> None:
        """Put what has arrived into the mailbox; the compute side takes it at a step boundary.

        Args:
            snapshot: It; its memory is the mailbox's until the compute side has adopted it.
            at: When it came, in seconds of the worker's clock.
            merged: Whether the push that it answers is in it. If not, that push came too late to be merged.
        """
        self.mail_at = at
        self._lost = not merged
        self._mail = snapshot

    @property
    def mail(self) -> Snapshot | None:
        """What waits to be adopted."""
        return self._mail

    # What is pushed of the present phase.
    def _update(self, values: Vector, fragment: Fragment | None = None) -> Update:
        loss = self._loss_sum / self._n_losses if self._n_losses else float("nan")
        return Update(values, self.version, self.n_steps, self._n_samples, loss, fragment)

    def _count_anew(self) -> None:
        self.n_steps = self._n_samples = self._n_losses = 0
        self._loss_sum = 0.0
