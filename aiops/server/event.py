"""What the engine is told and what it asks for: plain values between the round machine and its service."""

from __future__ import annotations

import math
from typing import TypeAlias

import msgspec

from aiops.errors import Refused
from aiops.types import Version, WorkerId


class Handle:
    """What the engine holds of a push; the service keeps its payload in a subclass."""

    __slots__ = ()


# -- events --


class Joined(msgspec.Struct, frozen=True):
    """A worker is a member now; it is waited for from its first accepted push on."""

    worker: WorkerId


class Left(msgspec.Struct, frozen=True):
    """A worker is gone for good: it left, or its lease ended."""

    worker: WorkerId


class Pushed(msgspec.Struct, frozen=True):
    """A whole and valid push has arrived.

    Attributes:
        worker: Who pushed.
        handle: The push itself, given back in the actions.
        base: Version it was computed from.
        n_samples: Training samples behind it.
        n_steps: Local steps behind it.
        loss: Mean training loss; NaN when unknown.
        step_s: The worker's mean step time since its last push, in seconds; 0 when unknown.
        sync_s: The worker's last time from push to model, in seconds; 0 when unknown.
        n_data: Training samples that the worker has at all; 0 when unknown.
    """

    worker: WorkerId
    handle: Handle
    base: Version
    n_samples: int
    n_steps: int
    loss: float = math.nan
    step_s: float = 0.0
    sync_s: float = 0.0
    n_data: int = 0


class Queried(msgspec.Struct, frozen=True):
    """A worker asks how many more local steps it may take, or tells that it begins to train, or its push.

    Attributes:
        worker: Who asks.
        handle: The question, given back in the action; None when it tells: its push begins, if it has done steps.
        version: Version that its round started from.
        n_steps: Local steps done in this round.
        step_s: Mean duration of those since it last asked, in seconds; 0 when there are none.
        rtt_s: Time from its questions to their answers, in seconds; 0 until there is one.
    """

    worker: WorkerId
    handle: Handle | None
    version: Version
    n_steps: int
    step_s: float = 0.0
    rtt_s: float = 0.0


class Merged(msgspec.Struct, frozen=True):
    """The merge that was asked for is done and published."""


class MergeFailed(msgspec.Struct, frozen=True):
    """The merge that was asked for would not give finite parameters; nothing changed."""

    error: Refused


Event: TypeAlias = Joined | Left | Pushed | Merged | MergeFailed


# -- actions --


class Fold(msgspec.Struct, frozen=True):
    """Add ``weight * push`` to the sum of the open round, of which it may be the ``first``; its payload can go then."""

    handle: Handle
    weight: float
    first: bool


class Merge(msgspec.Struct, frozen=True):
    """Add ``sum weight * push`` to the parameters and publish them; then report Merged or MergeFailed.

    With a ``scale``, the pushes were folded, and the sum is ``scale`` times what they were folded into.
    """

    handles: tuple[Handle, ...]
    weights: tuple[float, ...]
    scale: float | None = None


class Answer(msgspec.Struct, frozen=True):
    """A push is part of ``version``; its worker may be told now.

    One that is answered while it waits for others is part of no version yet, and its payload is still wanted:
    ``n_merged`` is 0, ``version`` the newest there is, and ``staleness`` counts from the push's base to that one.
    """

    handle: Handle
    worker: WorkerId
    version: Version
    staleness: int
    n_merged: int


class Decline(msgspec.Struct, frozen=True):
    """A push will not be merged."""

    handle: Handle
    error: Refused


class Advise(msgspec.Struct, frozen=True):
    """Answer a worker's question.

    Attributes:
        handle: The question.
        version: The round that it was about.
        n_steps: Local steps in that round after which the worker synchronizes; None lets it go on and ask again.
        held_s: How long the answer was held back, in seconds.
    """

    handle: Handle
    version: Version
    n_steps: int | None
    held_s: float = 0.0


class Lead(msgspec.Struct, frozen=True):
    """Ask a worker that asked for the positions of its round to choose them."""

    handle: Handle


class Show(msgspec.Struct, frozen=True):
    """Tell a worker that asked for the positions of its round, or sent some, which they are: the newest choice's."""

    handle: Handle


class Drop(msgspec.Struct, frozen=True):
    """A push that was answered while it waited will not be merged after all; its worker cannot be told."""

    handle: Handle
    error: Refused


Action: TypeAlias = Fold | Merge | Answer | Decline | Advise | Lead | Show | Drop
