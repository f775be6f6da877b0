"""What a rank keeps of its gradients from step to step: error feedback, and momentum where it is corrected.

A step is drafted and then committed or dropped, so that a step that some rank refuses leaves no trace on any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aiops.collective.request import Floats, Positions
from aiops.collective.select import Select
from aiops.errors import ConfigError
from aiops.kernels import first_nonfinite, scatter_add


@dataclass(slots=True, eq=False)
class Draft:
    """One step of a rank's memory, before it is known whether it counts.

    Attributes:
        left: float32, shape (n,): gradient plus residual, zero where a value was moved out. The memory's own.
        index: uint32, ascending: what was moved out.
        value: float32: the values there.
        energy: Sum of squares of gradient plus residual; 0 where that is not finite.
        moved_energy: Sum of squares of ``value``.
        bad: Position of a value that is not finite; -1 where all are. Then nothing was moved out, ``index`` is 0..k-1
            and ``value`` zero, and the draft can only be dropped.
    """

    left: Floats
    index: Positions
    value: Floats
    energy: float
    moved_energy: float
    bad: int = -1

    def put_back(self) -> None:
        """Move what was moved out back to where it was."""
        if self.bad < 0:
            scatter_add(self.left, self.index, self.value)
            self.index, self.value, self.moved_energy = self.index[:0], self.value[:0], 0.0

    def take(self, index: Positions) -> Floats:
        """Move the values at ``index`` out and return them; zeros from a draft that is bad.

        Nothing is moved out yet, or it was put back.

        Args:
            index: uint32, shape (k,), below n.
        """
        if self.bad >= 0:
            return np.zeros(index.size, np.float32)
        value = self.left[index]
        self.left[index] = 0.0
        self.index, self.value = index, value
        self.moved_energy = float(np.square(value, dtype=np.float64).sum())
        return value

    def give(self, index: Positions, lost: Floats | None) -> None:
        """Keep ``lost`` at ``index``, where values were moved out; None is nothing."""
        if lost is not None and self.bad < 0:
            scatter_add(self.left, index, lost)


class Memory:
    """A rank's residual, and its momentum where that is corrected.

    Momentum correction and masking are those of Deep Gradient Compression (Lin et al., 2018): the residual adds up the
    momentum m u + g instead of the gradients, and momentum is forgotten where a value was sent. The optimizer then has
    to have none of its own. Where everything is sent nothing is stale, and momentum stays, as in an optimizer.

    Args:
        n: Values of the gradient.
        momentum: m, in [0, 1); 0 is plain error feedback.

    Attributes:
        residual: float32, shape (n,), what was not sent so far.
        velocity: float32, shape (n,), u; None without momentum.
    """

    __slots__ = ("_momentum", "_next", "_spare", "residual", "velocity")

    def __init__(self, n: int, *, momentum: float = 0.0) -> None:
        if not 0 <= momentum < 1:
            raise ConfigError(f"momentum is {momentum}, it must be at least 0 and below 1")
        self._momentum = momentum
        self.residual: Floats = np.zeros(n, np.float32)
        self._spare: Floats = np.zeros(n, np.float32)
        self.velocity: Floats | None = np.zeros(n, np.float32) if momentum else None
        self._next: Floats | None = np.zeros(n, np.float32) if momentum else None

    @property
    def n(self) -> int:
        """Values of the gradient."""
        return self.residual.size

    def draft(self, gradient: Floats, k: int, select: Select) -> Draft:
        """Add a gradient to what was left, and move ``k`` of the sums out; nothing of it lasts before :meth:`commit`.

        Args:
            gradient: float32, shape (n,). Read only.
            k: How many, 0 <= k <= n.
            select: Which ones.
        """
        if self.velocity is not None and self._next is not None:
            # An overflow is found by the addition that follows.
            with np.errstate(over="ignore", invalid="ignore"):
                np.multiply(self.velocity, np.float32(self._momentum), out=self._next)
                self._next += gradient
            gradient = self._next
        try:
            found = select(self.residual, gradient, k, self._spare)
        except ValueError:
            # `_spare` is the whole sum then; the residual is as it was.
            bad = first_nonfinite(self._spare)
            index = np.arange(k, dtype=np.uint32)
            return Draft(self._spare, index, np.zeros(k, np.float32), 0.0, 0.0, bad)
        return Draft(self._spare, found.index, found.value, found.energy, found.moved_energy)

    def commit(self, draft: Draft, sent: Positions | None) -> None:
        """Keep what the last draft left.

        Args:
            draft: What :meth:`draft` returned last.
            sent: Positions that were sent, whose momentum is forgotten; None is all, and their momentum stays.
        """
        self.residual, self._spare = draft.left, self.residual
        if self.velocity is not None and self._next is not None:
            self.velocity, self._next = self._next, self.velocity
            if sent is not None:
                self.velocity[sent] = 0.0
