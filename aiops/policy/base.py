"""The questions a policy answers, and the frozen views it may look at.

A policy is asked; it never acts. It reads no clock, no socket and no random state: time arrives in the view as
``now``, so that every policy is tested with a table and no event loop.
"""

# Longer than other files: of this room the server may import this module alone, so all doors are in it.

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol, runtime_checkable

import msgspec

from aiops.types import Clock, Key, ShardId, Version, WorkerId


class PushView(msgspec.Struct, frozen=True):
    """What the server knows of one held push without opening its payload.

    Attributes:
        worker: Who pushed.
        base: Version the push was computed from.
        staleness: Shard version minus ``base``, in rounds.
        n_samples: Training samples behind the push.
        n_steps: Local steps behind the push.
        loss: Mean training loss over those steps; NaN when the worker did not say.
        arrived: When the push was complete, in seconds of the loop's clock.
        n_data: Training samples that the worker has at all; 0 when it did not say.
    """

    worker: WorkerId
    base: Version
    staleness: int
    n_samples: int
    n_steps: int
    loss: float
    arrived: float
    n_data: int = 0


class PushTimes(msgspec.Struct, frozen=True):
    """When an active member pushed.

    Attributes:
        last: When its last push came, in seconds of the loop's clock.
        interval_s: Time between its last two pushes, in seconds, without what the answer to the first one was held
            back; 0 until there are two.
        n_steps: Local steps of the last one.
    """

    last: float
    interval_s: float
    n_steps: int


class RoundView(msgspec.Struct, frozen=True):
    """One open round as the sync policy sees it.

    Attributes:
        version: Rounds closed so far.
        held: Pushes that wait to be merged, by worker, in the order of arrival.
        clocks: Local steps finished, for every live member and no one else. A member that joins late starts at
            the slowest member's clock.
        now: Seconds of the loop's clock.
        granted: Clock that a worker may reach whatever its lead, where a :class:`GrantPolicy` granted it one.
        times: When each active member pushed; empty unless the policy is a :class:`GrantPolicy`.
        slowest: The least of ``clocks``; None where nobody has looked for it yet, see :meth:`least`.

    The mappings are the engine's own, read-only: they are good while the policy is asked, and no copy is made of a
    thousand members for every push.
    """

    version: Version
    held: Mapping[WorkerId, PushView]
    clocks: Mapping[WorkerId, Clock]
    now: float
    granted: Mapping[WorkerId, Clock] = {}
    times: Mapping[WorkerId, PushTimes] = {}
    slowest: Clock | None = None

    def least(self) -> Clock:
        """Return the clock of the slowest live member; there is one."""
        return min(self.clocks.values()) if self.slowest is None else self.slowest


class Work(msgspec.Struct, frozen=True):
    """How much a worker computes between two pushes.

    Attributes:
        min_steps: Local steps before a push is allowed, >= 1.
        max_steps: Local steps at which the worker waits for the model; None means never.
    """

    min_steps: int
    max_steps: int | None


class WorkerView(msgspec.Struct, frozen=True):
    """What the server measured of one live worker.

    Attributes:
        clock: Local steps finished.
        step_s: Smoothed duration of a local step, in seconds; 0 until the first push.
        sync_s: Smoothed time from push to model, in seconds; 0 until the first round.
        link_s: The same without the wait for other workers: up, merge and down; 0 until the first round.
    """

    clock: Clock
    step_s: float
    sync_s: float
    link_s: float = 0.0


class Progress(msgspec.Struct, frozen=True):
    """Where a worker says it stands, at a boundary between two local steps.

    Attributes:
        version: Version that its round started from.
        n_steps: Local steps done in this round.
        at: When the boundary was, in seconds of the loop's clock.
        step_s: Mean duration of the local steps since it last spoke, in seconds; 0 when there were none.
        rtt_s: Time from its questions to their answers, in seconds; 0 until one is answered.
        stopped: Whether its push begins now.
        waited_for: Whether the open round waits for its push.
    """

    version: Version
    n_steps: int
    at: float
    step_s: float = 0.0
    rtt_s: float = 0.0
    stopped: bool = False
    waited_for: bool = True


class SyncPolicy(Protocol):
    """When do pushes become parameters, and who may go on meanwhile?"""

    @property
    def max_staleness(self) -> int | None:
        """Oldest base that is still merged, in rounds behind the shard; None means any."""

    @property
    def barrier(self) -> bool:
        """Whether a round closes only with a push of every live member, so that it is known beforehand with which."""

    def ready(self, view: RoundView) -> AbstractSet[WorkerId]:
        """Return whose held pushes are merged now into one new version; the empty set means "wait"."""

    def may_proceed(self, worker: WorkerId, view: RoundView) -> bool:
        """Return whether ``worker``, whose push is merged, may be answered with the model now."""


@runtime_checkable
class BufferPolicy(SyncPolicy, Protocol):
    """A sync policy under which nobody waits: a push is answered as it comes, and merged when more are there.

    A worker may have several pushes in one version. ``take`` is asked in the place of ``ready``.
    """

    def take(self, pushes: Sequence[PushView]) -> int:
        """Return how many of the oldest pushes are merged now into one new version; 0 means "wait".

        Args:
            pushes: All that wait, of whoever is or was a member, in the order of arrival.
        """


@runtime_checkable
class GrantPolicy(SyncPolicy, Protocol):
    """A sync policy that lets a worker go on for several pushes by one decision, which the engine remembers for it."""

    def grant(self, worker: WorkerId, view: RoundView) -> int:
        """Return how many local steps beyond its clock an active member may go on; 0 means that it waits.

        Asked once for each push that is merged and whose worker may not proceed.
        """


class WeightRule(Protocol):
    """What is each push of one update worth?"""

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return one weight >= 0 per push, in the order given; all zero means that nothing can be merged."""


@runtime_checkable
class FoldableRule(WeightRule, Protocol):
    """A weight rule whose weights are a number of each push's own times one factor of the whole update.

    So a push can be added to a sum when it comes: ``rule(pushes)[i]`` is ``raw(pushes[i]) * scale(pushes)``, but for
    rounding.
    """

    def raw(self, push: PushView) -> float:
        """Return what a push weighs by itself, >= 0."""

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return what all raw weights of an update are multiplied by, >= 0."""


class WorkPolicy(Protocol):
    """How much does each worker compute before it synchronizes?"""

    @property
    def overlap(self) -> bool:
        """Whether workers go on computing while a synchronization is under way."""

    def plan(self, monitor: Mapping[WorkerId, WorkerView]) -> Mapping[WorkerId, Work]:
        """Return the work of every worker in ``monitor``, valid from the next version on."""


@runtime_checkable
class EvenWork(WorkPolicy, Protocol):
    """A work policy under which everybody does the same whatever is measured, so that nobody needs to be asked again.

    ``plan`` says the same; it takes time for every worker.
    """

    @property
    def each(self) -> Work:
        """The work of every worker."""


class Choice(enum.Enum):
    """What an automatic server has turned on besides overlapped work that fills the sync."""

    PLAIN = "plain"
    TOPK = "topk"
    DRIFT = "drift"


class Measured(msgspec.Struct, frozen=True):
    """What an automatic server knows at a version boundary.

    Attributes:
        version: Rounds closed.
        ratio: S/c of dense pushes and models; 0 until it is known.
        agreement: Mean cosine of pushes over the measuring rounds; None while it is not known.
        judged: Whether the measuring rounds are over, or never come.
        choice: What is turned on.
        since: Version with which it began.
        changes: Changes so far.
    """

    version: int
    ratio: float
    agreement: float | None
    judged: bool
    choice: Choice
    since: int = 0
    changes: int = 0


class Change(msgspec.Struct, frozen=True):
    """What is to be turned on instead, and a sentence for people that says why."""

    choice: Choice
    reason: str


class AutoPolicy(Protocol):
    """What does an automatic server turn on?"""

    @property
    def measuring(self) -> range:
        """The versions whose pushes are compared with each other."""

    def agreement(self, cosines: Sequence[float], losses: Sequence[float]) -> float | None:
        """Return how far the workers go the same way; None where that cannot be told.

        Args:
            cosines: The mean cosine between the pushes of every measuring round.
            losses: The mean training loss of each; NaN where the workers tell none.
        """

    def dense_s(self, before_s: float, settled_s: float, now_s: float, *, share: float) -> float:
        """Return what a dense sync would take, in seconds, while Top-k is on.

        Args:
            before_s: What one took before.
            settled_s: What one with Top-k took after that.
            now_s: What one with Top-k takes now.
            share: Bytes of one with Top-k over those of a dense one, in (0, 1).
        """

    def decide(self, seen: Measured) -> Change | None:
        """Return what is to change; None where nothing is."""

    def corrected(self, weights: WeightRule) -> WeightRule:
        """Return the rule that drift correction needs in the place of these shares."""


class WorkTable(Protocol):
    """The state of one training under a :class:`QueriedWork`: told what happens, asked what follows."""

    def record(self, worker: WorkerId, progress: Progress) -> None:
        """Note what a worker says of itself."""

    def pushed(self, worker: WorkerId, now: float) -> None:
        """Note that a worker's push is there."""

    def reset(self, version: Version, now: float, waited_for: AbstractSet[WorkerId]) -> None:
        """Begin a round, which starts from ``version`` and waits for the pushes of ``waited_for``."""

    def drop(self, worker: WorkerId) -> None:
        """Forget a worker that has left."""

    @property
    def decidable(self) -> bool:
        """Whether :meth:`decide` can tell a number now to everybody who is timed."""

    def is_timed(self, worker: WorkerId) -> bool:
        """Return whether enough is known of a worker itself, so that its answer may wait for others."""

    def decide(self, worker: WorkerId) -> int | None:
        """Return how many more steps a recorded worker may take; None while that cannot be said."""

    def foresee(self, worker: WorkerId) -> int | None:
        """Return how many steps a worker is expected to take in a round that begins; None when unknown."""


@runtime_checkable
class QueriedWork(WorkPolicy, Protocol):
    """Work that is decided while a round goes on: workers ask, see :mod:`aiops.policy.esync`."""

    def table(self) -> WorkTable:
        """Return the state to decide by, for one training."""


class Place(Protocol):
    """Which shard holds which key?"""

    def __call__(self, sizes: Mapping[Key, int], shards: int) -> Mapping[Key, ShardId]:
        """Return the shard of every key; ``sizes`` in bytes."""
