"""How many bytes of pushes may be on their way in at once, and who waits until there is room for its own.

A push takes room for all of it when it is announced, and gives it back when it is added up, so that no two of them can
wait for each other half received. Whoever finds too little waits in line: its connection is not read, and it is told
now and then that the server is alive.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from aiops.errors import RemoteProtocolError
from aiops.server.peer import Peer, most_bytes
from aiops.wire.frame import Header, Kind
from aiops.wire.message import Ping, Push
from aiops.wire.table import Table

if TYPE_CHECKING:
    from aiops.server.service import Service

T = TypeVar("T")

# Signs of life in an idle timeout for those who wait: one of them may be late.
SIGNS = 3


class Room(Generic[T]):
    """So many bytes, first come, first served; a large one waits for all before it, and nobody overtakes it.

    Args:
        most_bytes: How many there are. Somebody who wants more than that has them alone.

    Attributes:
        used_bytes: How many are taken.
        peak_bytes: The most that ever were.
    """

    def __init__(self, most_bytes: int) -> None:
        self.used_bytes = self.peak_bytes = 0
        self._most = most_bytes
        self._taken: dict[T, int] = {}
        self._line: OrderedDict[T, int] = OrderedDict()

    def __contains__(self, who: T) -> bool:
        """Return whether somebody has room."""
        return who in self._taken

    @property
    def waiting(self) -> list[T]:
        """Who stands in line, the first of them first."""
        return list(self._line)

    def ask(self, who: T, size: int) -> bool:
        """Return whether ``who`` has room for ``size`` bytes now; if not, it stands in line for them."""
        if who in self._taken:
            return True
        if not self._line and self._fits(size):
            self._take(who, size)
            return True
        self._line.setdefault(who, size)
        return False

    def leave(self, who: T) -> None:
        """Give room, or the place in line, back; nothing happens where there is none."""
        self._line.pop(who, None)
        self.used_bytes -= self._taken.pop(who, 0)

    def admit(self) -> Iterator[T]:
        """Give room to those in line, in their order, as long as there is enough, and yield them."""
        while self._line:
            who, size = next(iter(self._line.items()))
            if not self._fits(size):
                return
            del self._line[who]
            self._take(who, size)
            yield who

    def _fits(self, size: int) -> bool:
        return not self._taken or self.used_bytes + size <= self._most

    def _take(self, who: T, size: int) -> None:
        self._taken[who] = size
        self.used_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)


@dataclass(slots=True)
class _Half:
    """A connection's push that is not whole: its request, what it has room for, and how much of that is to come."""

    request: int
    size: int
    left: int


class Landings:
    """All pushes of a service that are on their way into a sum.

    Args:
        service: Whose they are; its configuration says how many bytes of them there may be, and None lets all in.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        most, config = service.config.landing_bytes, service.config
        self._room: Room[tuple[Peer, int]] | None = None if most is None else Room(most)
        self._every_s = min(config.heartbeat_s, config.idle_timeout_s / SIGNS)
        # The push of each connection that is landing, or waits to.
        self._half: dict[Peer, _Half] = {}
        # The most that a push can have, of this table.
        self._table: Table | None = None
        self._most = 0
        self._timer: asyncio.TimerHandle | None = None
        self._admitting = False

    def may_land(self, peer: Peer, header: Header, message: Push) -> bool:
        """Return whether a bucket of an announced push may come in; False has it wait until reading is resumed.

        Raises:
            RemoteProtocolError: The push has more bytes than it said, or begins inside another one of its connection.
        """
        room, request = self._room, header.request
        if room is None:
            return True
        half = self._half.get(peer)
        if half is None:
            half = self._half[peer] = self._announced(peer, request, message)
        elif half.request != request:
            # It could wait for room that only the end of the first one makes.
            raise RemoteProtocolError(
                f"push of request {request} begins before that of request {half.request} is whole"
            )
        if header.size > half.left:
            raise RemoteProtocolError(
                f"push of request {request} has more than the {half.size} bytes that it said"
            )
        if not room.ask((peer, request), half.size):
            self._service.counters["pushes_waited"] += 1
            self._hear(peer)
            if self._timer is None:
                self._timer = self._loop.call_later(self._every_s, self._assure)
            return False
        half.left -= header.size
        return True

    def whole(self, origin: tuple[Peer, int]) -> None:
        """Take note that a push is here: it keeps its room, and its connection may bring another one."""
        half = self._half.get(origin[0])
        if half is not None and half.request == origin[1]:
            del self._half[origin[0]]

    def done(self, origin: tuple[Peer, int]) -> None:
        """Take the room of a push back: it is added up, or answered otherwise, or held for another round."""
        if self._room is not None and origin in self._room:
            self._room.leave(origin)
            self._admit_soon()

    def lost(self, peer: Peer) -> None:
        """Take back what a connection has not brought to its end."""
        half = self._half.pop(peer, None)
        if half is not None and self._room is not None:
            self._room.leave((peer, half.request))
            self._admit_soon()

    def report(self) -> dict[str, object]:
        """Return how much is landing and how many wait, as plain values; nothing where there is no limit."""
        room, most = self._room, self._service.config.landing_bytes
        if room is None:
            return {}
        return {
            "landing": {
                "bytes": room.used_bytes,
                "peak_bytes": room.peak_bytes,
                "limit_bytes": most,
                "waiting": len(room.waiting),
            }
        }

    def _announced(self, peer: Peer, request: int, message: Push) -> _Half:
        assert self._room is not None
        if (peer, request) in self._room:
            raise RemoteProtocolError(f"request {request} is used again before it is answered")
        # One that does not say may have all that there can be, and nobody more.
        table = self._service.store.require()
        if table is not self._table:
            self._table = table
            self._most = sum([most_bytes(bucket.size) for bucket in table.buckets])
        size = min(message.payload_bytes or self._most, self._most)
        return _Half(request, size, size)

    # Later than what made room: whoever is let in may be whole at once, and let the next one in.
    def _admit_soon(self) -> None:
        if not self._admitting:
            self._admitting = True
            self._loop.call_soon(self._admit)

    def _admit(self) -> None:
        self._admitting = False
        assert self._room is not None
        for peer, _ in self._room.admit():
            self._hear(peer)
            # Each by itself, so that what is wrong with one of them is none of the others' business.
            self._loop.call_soon(peer.connection.resume_reading)

    # Whoever waits is silent because nobody reads it: its lease begins anew, the last time when it is let in.
    def _hear(self, peer: Peer) -> None:
        if peer.member is not None:
            peer.member.last_heard = self._loop.time()

    # A worker whose bytes are not taken gives the connection up unless it hears something; and only what is sent tells
    # whether somebody whose bytes are not read is there at all.
    def _assure(self) -> None:
        self._timer = None
        assert self._room is not None
        for peer, _ in self._room.waiting:
            self._hear(peer)
            peer.post(Kind.PING, Ping())
        if self._room.waiting:
            self._timer = self._loop.call_later(self._every_s, self._assure)
