"""The questions a policy answers, and the frozen views it may look at.

A policy is asked; it never acts. It reads no clock, no socket and no random state: time arrives in the view as
``now``, so that every policy is tested with a table and no event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

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
    """

    worker: WorkerId
    base: Version
    staleness: int
    n_samples: int
    n_steps: int
    loss: float
    arrived: float


class RoundView(msgspec.Struct, frozen=True):
    """One open round as the sync policy sees it.

    Attributes:
        version: Rounds closed so far.
        held: Pushes that wait to be merged, by worker, in the order of arrival.
        clocks: Local steps finished, for every live member and no one else. A member that joins late starts at
            the slowest member's clock.
        now: Seconds of the loop's clock.
    """

    version: Version
    held: Mapping[WorkerId, PushView]
    clocks: Mapping[WorkerId, Clock]
    now: float


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


class WeightRule(Protocol):
    """What is each push of one update worth?"""

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return one weight >= 0 per push, in the order given; all zero means that nothing can be merged."""


class WorkPolicy(Protocol):
    """How much does each worker compute before it synchronizes?"""

    @property
    def overlap(self) -> bool:
        """Whether workers go on computing while a synchronization is under way."""

    def plan(self, monitor: Mapping[WorkerId, WorkerView]) -> Mapping[WorkerId, Work]:
        """Return the work of every worker in ``monitor``, valid from the next version on."""


class Place(Protocol):
    """Which shard holds which key?"""

    def __call__(self, sizes: Mapping[Key, int], shards: int) -> Mapping[Key, ShardId]:
        """Return the shard of every key; ``sizes`` in bytes."""
