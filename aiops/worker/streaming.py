"""Streaming DiLoCo (Douillard et al., 2025) as a state machine: no I/O, no threads, no clocks."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from aiops.errors import ConfigError
from aiops.kernels import weighted_add
from aiops.wire.message import Policy
from aiops.wire.table import Table
from aiops.worker.boundary import Phase
from aiops.worker.fragment import Fragment, cut
from aiops.worker.machine import Move, Overlap, Update, Vector
from aiops.worker.rule import Rule
from aiops.worker.ticket import Snapshot


class Streaming(Phase):
    """The state machine of one worker that pushes a fragment of its model at a time.

    Every ``steps`` local steps the fragment whose turn it is (the version modulo their number, the same one for all
    workers) is pushed, as its distance to the last global fragment adopted. ``delay`` local steps later the answer w is
    adopted, and waited for if need be: that part of x becomes ``alpha * x + (1 - alpha) * w``.

    A worker that comes later pushes after its first step: it is waited for from then on, and in step with the others.
    One whose push came too late takes the whole model, pushes that it has done nothing yet, and waits, so that it is in
    whatever its steps take.

    Args:
        x: float32, shape (n,): the parameters to start from, as received.
        version: Their version.
        fragments: The fragments, in order.
        steps: Local steps between two pushes.
        delay: Local steps between a push and the adoption of its answer, less than ``steps``.
        alpha: Share of its own model that a worker keeps, in [0, 1).
    """

    # What an overlapped worker may have beside its steps, and this one has not.
    correction = None
    proximal = None

    def __init__(
        self,
        x: Vector,
        version: int,
        fragments: tuple[Fragment, ...],
        *,
        steps: int,
        delay: int,
        alpha: float,
    ) -> None:
        super().__init__(version)
        self._fragments = fragments
        self._steps, self._delay, self._alpha = steps, delay, alpha
        self._due = steps if version == 0 else 1
        self._adopt_at = delay
        self._base = x.copy()
        self._out = np.empty_like(x)
        self._flying = fragments[0]

    @property
    def model(self) -> Vector:
        """The newest global fragments adopted, float32, shape (n,); the machine's own."""
        return self._base

    def move(self) -> Move:
        """Say what to do at this boundary; it is asked again after everything but a step."""
        if not self.under_way:
            return Move.PUSH if self.n_steps >= self._due else Move.COMPUTE
        if self.n_steps < self._adopt_at and not (self._lost and self._mail is not None):
            return Move.COMPUTE
        return Move.WAIT if self._mail is None else Move.ADOPT

    def push(self, x: Vector) -> Update:
        """Take the progress of the fragment out whose turn it is.

        Args:
            x: float32, shape (n,): the live parameters.

        Returns:
            The update to push; its values are good until the next call. It counts the steps since the last one.
        """
        fragment = self._fragments[self.version % len(self._fragments)]
        values = self._out[fragment.place]
        np.subtract(x[fragment.place], self._base[fragment.place], out=values)
        update = self._update(values, fragment)
        self._flying = fragment
        self.under_way = True
        self._adopt_at = self._delay if self._due else 0
        self._due = self._steps
        self._count_anew()
        return update

    def adopt(self, x: Vector) -> Snapshot:
        """Mix the arrived fragment into the live parameters; begin anew where its push came too late.

        Args:
            x: float32, shape (n,): the live parameters, changed in place.

        Returns:
            What was adopted.
        """
        new = self._mail
        assert new is not None
        if self._lost:
            np.copyto(x, new.flat)
            np.copyto(self._base, new.flat)
            self.restarts += 1
            self._due = 0
            self._count_anew()
        else:
            part = x[self._flying.place]
            part *= np.float32(self._alpha)
            weighted_add(part, new.flat, 1.0 - self._alpha)
            np.copyto(self._base[self._flying.place], new.flat)
        self.version = new.version
        self._mail = None
        self.under_way = self._lost = False
        return new


Machine: TypeAlias = Overlap | Streaming


def streaming_of(
    policy: Policy, table: Table, x: Vector, version: int, *, rule: Rule | None = None
) -> Streaming:
    """Return the machine of a worker whose server has rounds of fragments.

    Args:
        policy: What the server says.
        table: The agreed table.
        x: float32, shape (n,): the parameters to start from, as received.
        version: Their version.
        rule: How to merge; the server's unless given.

    Raises:
        ConfigError: The rule is another one than mix.
    """
    name, alpha = (policy.merge, policy.alpha) if rule is None else (rule.merge, rule.alpha)
    if name != "mix":
        raise ConfigError(f"merge is {name!r}, a model in fragments is merged by mix: use mix:0.5")
    return Streaming(
        x,
        version,
        cut(table, policy.fragments),
        steps=policy.min_steps,
        delay=policy.delay,
        alpha=alpha,
    )
