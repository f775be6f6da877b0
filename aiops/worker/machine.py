"""NBSync (Zhou et al., 2023) as a state machine: no I/O, no threads, no clocks.

Whoever steps the optimizer asks :class:`Overlap` at every step boundary what to do. It follows the authors' published
prototype; the merge rules beside "reset" are from the literature named at :meth:`Overlap.push`. One push is under way
at a time, so an update is one version late, never more. A blocking round is the same machine: push, wait, adopt.
"""

from __future__ import annotations

from typing import get_args

import numpy as np

from aiops.config import DriftName, check_drift_merge
from aiops.errors import ConfigError
from aiops.kernels import swap_update, weighted_add
from aiops.wire.message import Policy
from aiops.worker.boundary import Move as Move
from aiops.worker.boundary import Phase
from aiops.worker.boundary import Update as Update
from aiops.worker.boundary import Vector as Vector
from aiops.worker.drift import Drift
from aiops.worker.follow import Follower
from aiops.worker.proximal import Proximal
from aiops.worker.rule import Rule as Rule
from aiops.worker.ticket import Snapshot

DRIFTS = get_args(DriftName)


class Overlap(Phase):
    """The state machine of one worker.

    Args:
        x: float32, shape (n,): the parameters to start from, as received.
        version: Their version.
        rule: How to merge.
        min_steps: Local steps before a push.
        max_steps: Local steps at which the worker waits; None is never.
        accumulated: Leading values whose changes are accumulated; the rest are running statistics, whose values are
            averaged. All are accumulated unless given.
        drift: What corrects this worker's drift; None where nothing does.
        proximal: What holds its steps near the newest model; None where nothing does.
        follower: What is taken over of a policy that comes with a model; None takes over nothing.

    Attributes:
        proximal: What holds local steps near the newest model; whoever takes them asks it.
    """

    def __init__(
        self,
        x: Vector,
        version: int,
        rule: Rule,
        *,
        min_steps: int = 1,
        max_steps: int | None = None,
        accumulated: int | None = None,
        drift: Drift | None = None,
        proximal: Proximal | None = None,
        follower: Follower | None = None,
    ) -> None:
        super().__init__(version)
        self.rule = rule
        self.min_steps = min_steps
        self.max_steps = max_steps
        self._base = x.copy()
        self._averaged = slice(x.size if accumulated is None else accumulated, None)
        self._out = np.empty_like(x)
        self._drift = drift
        self._follower = follower
        self.proximal = proximal

    @property
    def correction(self) -> Vector | None:
        """What is to be added to the parameters after every local step, float32, shape (n,); None for nothing."""
        return None if self._drift is None else self._drift.correction

    def move(self) -> Move:
        """Say what to do at this boundary."""
        if self.n_steps < self.min_steps:
            return Move.COMPUTE
        if not self.under_way or self._mail is not None:
            return Move.PUSH
        if self.max_steps is not None and self.n_steps >= self.max_steps:
            return Move.WAIT
        return Move.COMPUTE

    def push(self, x: Vector) -> Update | None:
        """Take this phase's progress out and adopt the model that has arrived, if any.

        With u the progress ``x - base`` and W the new model, u is what is pushed, always whole, and ``x`` becomes:

        - reset: W, the authors' rule; their progress lives on as the next push.
        - carry: W + u (CoCoD-SGD, Shen et al., 2019).
        - eager: W + u / N (after the published idea of eager updates, Kale et al., 2025), N pushes per round.
        - mix: alpha * x + (1 - alpha) * W (after the published idea of Streaming DiLoCo, Douillard et al., 2025).
        - partial: W + beta * u; between reset and carry.

        Where drift is corrected, the corrections are in u here but are left out of what is pushed.

        Args:
            x: float32, shape (n,): the live parameters, changed in place.

        Returns:
            The update to push; its values are good until the next call. None where the last push came too late:
            what was computed since belongs to a model that is gone, ``x`` is the new one, and nothing is pushed.
        """
        new, out, base = self._mail, self._out, self._base
        if new is not None and self._lost:
            self.adopt(x)
            return None
        update = self._update(out)
        if new is not None:
            self._follow_rule(new)
            # What is pushed of a statistic is its distance to the model that it will be merged into, so that the mean
            # of values comes out; a change since the base, one version late, would make it swing, below zero even.
            np.copyto(base[self._averaged], new.flat[self._averaged])
        if new is None:
            np.subtract(x, base, out=out)
            # In the authors' prototype the base stays, so that the first steps are pushed twice.
            if self.rule.bootstrap == "fixed":
                np.copyto(base, x)
        elif self.rule.merge == "reset":
            swap_update(x, base, new.flat, out=out)
        else:
            np.subtract(x, base, out=out)
            self._merge(x, new, out)
            np.copyto(base, x)
        if self._drift is not None:
            self._drift.pushing(out, update.n_steps, new)
        if new is not None and self._follow_drift(new) and self._drift is not None:
            self._drift.pushing(out, update.n_steps)
        self._turn(new)
        self.under_way = True
        return update

    def adopt(self, x: Vector) -> None:
        """Begin anew from the arrived model, with nothing to push: a blocking round does, and one that was too late.

        Args:
            x: float32, shape (n,): becomes the model.
        """
        new = self._mail
        assert new is not None
        np.copyto(x, new.flat)
        np.copyto(self._base, new.flat)
        if self._drift is not None:
            (self._drift.forget if self._lost else self._drift.learn)(new)
        self._follow_rule(new)
        self._follow_drift(new)
        self.restarts += self._lost
        self._turn(new)
        self.under_way = self._lost = False

    def rebase(self, x: Vector) -> None:
        """Take ``x`` as what was adopted, where the worker cannot hold the model exactly (16-bit floats)."""
        np.copyto(self._base, x)

    def _follow_rule(self, new: Snapshot) -> None:
        if new.policy is not None and self._follower is not None:
            self.rule = self._follower.rule(self.rule, new.policy)

    # Say whether drift correction begins or ends with this model.
    def _follow_drift(self, new: Snapshot) -> bool:
        if new.policy is None or self._follower is None:
            return False
        before = self._drift
        self._drift = self._follower.drift(before, new.policy, self.rule, new)
        return self._drift is not before

    # A new phase begins, from this model if there is one.
    def _turn(self, new: Snapshot | None) -> None:
        if new is not None:
            self.version = new.version
            self.min_steps, self.max_steps = new.min_steps, new.max_steps
            if self.proximal is not None:
                self.proximal.adopt(new)
        self._mail = None
        self._count_anew()

    def _merge(self, x: Vector, new: Snapshot, progress: Vector) -> None:
        match self.rule.merge:
            case "mix":
                x *= np.float32(self.rule.alpha)
                weighted_add(x, new.flat, 1.0 - self.rule.alpha)
            case "carry" | "eager" | "partial":
                kept = {
                    "carry": 1.0,
                    "eager": 1.0 / max(new.n_merged, 1),
                    "partial": self.rule.beta,
                }
                np.copyto(x, new.flat)
                weighted_add(x, progress, kept[self.rule.merge])
            case _:
                raise AssertionError(f"no merge rule {self.rule.merge!r}")


def machine_of(
    policy: Policy,
    x: Vector,
    version: int,
    *,
    accumulated: int,
    rule: Rule | None = None,
    exact: bool = True,
) -> Overlap:
    """Return the machine of a worker that does what the server says.

    Args:
        policy: What the server says.
        x: float32, shape (n,): the parameters to start from, as received.
        version: Their version.
        accumulated: Leading values whose changes are accumulated, see :class:`Overlap`.
        rule: How an overlapped worker merges; the server's unless given.
        exact: Whether the parameters hold any float32 value.

    Raises:
        ConfigError: The server names a rule or a correction that is not known here, or the given rule does not go with
            its correction.
    """
    follower = Follower(rule, accumulated, exact)
    if rule is None:
        rule = Rule(policy.merge, policy.alpha, policy.beta, policy.bootstrap)
    if policy.drift not in DRIFTS:
        raise ConfigError(f"drift is {policy.drift!r}, known are {', '.join(DRIFTS)}")
    drift = None
    if policy.drift != "off":
        if policy.overlap:
            check_drift_merge(rule.merge, rule.beta)
        drift = Drift(x, version, accumulated=accumulated)
    mu = policy.proximal
    proximal = Proximal(x, mu, accumulated=accumulated) if mu > 0 else None
    return Overlap(
        x,
        version,
        rule,
        min_steps=policy.min_steps,
        max_steps=policy.max_steps,
        accumulated=accumulated,
        drift=drift,
        proximal=proximal,
        follower=follower,
    )
