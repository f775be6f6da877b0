"""Who is a member, until when, and which of its pushes were already taken.

A member is a (identity, incarnation) pair with a lease. It holds no socket: connections come and go under it. Memory
is O(workers): the last outcomes of each member, and as much for the most recently departed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from aiops.errors import Refused
from aiops.types import Version, WorkerId

if TYPE_CHECKING:
    from aiops.server.peer import Peer

# A worker has one push under way and resends it until it is answered, so one would do; the rest is for observation.
WINDOW = 64

# Departed members whose outcomes are remembered, so that a push resent after the lease ended is still merged once.
MAX_DEPARTED = 1024


class Taken(msgspec.Struct, frozen=True):
    """The push is merged in ``version``, which moved by ``moved_steps``, see :class:`aiops.wire.message.Model`.

    With ``n_merged`` 0 it is in no version yet: it waits for others, and ``version`` was the newest when it came.
    """

    version: Version
    staleness: int
    n_merged: int
    moved_steps: float = 0.0


Outcome: TypeAlias = "Taken | Refused"


@dataclass(slots=True, eq=False)
class Member:
    """One worker, across its connections.

    Attributes:
        worker: Its number, kept across incarnations.
        identity: What it calls itself, unique.
        incarnation: Which life of it this is.
        name: For people.
        last_heard: When anything came from it, in seconds of the loop's clock.
        outcomes: What became of its last pushes, by sequence number.
        forgotten: The highest sequence number whose outcome was dropped; -1 while there is none.
        merged: Pushes merged.
        gave_bytes: Records of samples that it shared, as they came up, once.
        took_bytes: Records of others that were sent to it.
        sent: Version of the newest model sent to it, on whichever connection; -1 before the first.
        life: Who it is and which life of it this is.
        peer: The connection it is on; None while there is none.
    """

    worker: WorkerId
    identity: str
    incarnation: int
    name: str
    last_heard: float
    outcomes: OrderedDict[int, Outcome] = field(default_factory=OrderedDict)
    forgotten: int = -1
    merged: int = 0
    gave_bytes: int = 0
    took_bytes: int = 0
    sent: int = -1
    peer: Peer | None = None
    life: tuple[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.life = self.identity, self.incarnation

    def record(self, sequence: int, outcome: Outcome) -> None:
        """Remember what became of a push."""
        self.outcomes[sequence] = outcome
        while len(self.outcomes) > WINDOW:
            dropped, _ = self.outcomes.popitem(last=False)
            self.forgotten = max(self.forgotten, dropped)

    def is_old(self, sequence: int) -> bool:
        """Return whether ``sequence`` may have been answered and forgotten, in whatever order pushes came."""
        return sequence <= self.forgotten and sequence not in self.outcomes


class Members:
    """The members of one server.

    Args:
        lease_s: Silence after which a member is dropped, in seconds.
    """

    def __init__(self, *, lease_s: float) -> None:
        self._lease_s = lease_s
        self._live: dict[str, Member] = {}
        self._departed: OrderedDict[tuple[str, int], Member] = OrderedDict()
        self._numbers: OrderedDict[str, WorkerId] = OrderedDict()
        self._next = 0

    def __len__(self) -> int:
        """Return how many members there are."""
        return len(self._live)

    def all(self) -> list[Member]:
        """Return the members in worker order."""
        return sorted(self._live.values(), key=lambda member: member.worker)

    def get(self, identity: str) -> Member | None:
        """Return the live member of that identity."""
        return self._live.get(identity)

    def join(self, identity: str, incarnation: int, name: str, now: float) -> tuple[Member, bool]:
        """Let a worker in; return its member and whether it is new (it was not a live member in this life).

        A newer incarnation takes the place of the older one, which the caller has dropped before.
        """
        member = self._live.get(identity)
        if member is not None:
            assert member.incarnation == incarnation
            member.last_heard = now
            return member, False
        # Each life has a memory of its own, so that one that was frozen while another came and went repeats nothing.
        member = self._departed.pop((identity, incarnation), None)
        if member is None:
            member = Member(self._number(identity), identity, incarnation, name, now)
        member.last_heard = now
        self._live[identity] = member
        return member, True

    def leave(self, member: Member) -> None:
        """Let a member go; what became of its pushes is remembered for a while."""
        del self._live[member.identity]
        self._departed[member.life] = member
        while len(self._departed) > MAX_DEPARTED:
            self._departed.popitem(last=False)

    def expired(self, now: float) -> list[Member]:
        """Return the members whose lease has ended."""
        return [member for member in self.all() if now - member.last_heard > self._lease_s]

    # A worker keeps its number as long as it is remembered at all.
    def _number(self, identity: str) -> WorkerId:
        number = self._numbers.pop(identity, None)
        if number is None:
            number = WorkerId(self._next)
            self._next += 1
        self._numbers[identity] = number
        while len(self._numbers) > MAX_DEPARTED + len(self._live) + 1:
            self._numbers.popitem(last=False)
        return number
