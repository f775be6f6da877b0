"""What a server inside this process costs: its own CPU time, and what its buffer pool has out.

Both are taken by standing in for methods of the server, which stays so for the rest of the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from aiops.buffers import Block, BufferPool
from aiops.server.admission import AdmittedPush
from aiops.server.members import Member
from aiops.server.peer import Peer
from aiops.server.service import Service
from aiops.transport.memory import MemoryConnection
from aiops.wire.frame import Header, Kind
from aiops.wire.reader import HOLD, Landing
from aiops.wire.session import Event


class Clock:
    """Counts the CPU time of code that may call itself."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def __call__(self, work: Callable[..., Any], *args: Any) -> Any:
        """Return ``work(*args)``."""
        if self._depth:
            return work(*args)
        self._depth, start = 1, time.thread_time()
        try:
            return work(*args)
        finally:
            self.seconds += time.thread_time() - start
            self._depth = 0


class Counted:
    """A coroutine whose own time is counted, and not that of what it waits for."""

    def __init__(self, work: Coroutine[Any, Any, Any], clock: Clock) -> None:
        self._work, self._clock = work, clock

    def __await__(self) -> Generator[Any, Any, Any]:
        """Run it step by step."""
        give: Callable[..., Any] = self._work.send
        args: tuple[Any, ...] = (None,)
        while True:
            try:
                asked = self._clock(give, *args)
            except StopIteration as ended:
                return ended.value
            try:
                give, args = self._work.send, ((yield asked),)
            except BaseException as error:
                give, args = self._work.throw, (error,)


def count_server(clock: Clock) -> None:
    """Count the time of every server of this process from now on."""
    feed, guarded = MemoryConnection._feed, Service._guarded

    def counted_feed(self: MemoryConnection, data: memoryview) -> int:
        if isinstance(self._receiver, Peer):
            return int(clock(feed, self, data))
        return feed(self, data)

    async def counted_guarded(self: Service, work: Coroutine[Any, Any, None]) -> None:
        await Counted(guarded(self, work), clock)

    MemoryConnection._feed = counted_feed  # type: ignore[method-assign]
    Service._guarded = counted_guarded  # type: ignore[method-assign]


class Memory:
    """Tells what a pool holds from what it has out for pushes on their way in, in bytes of payload."""

    def __init__(self) -> None:
        self.held = self.landing = 0
        self._landing = self._out = 0
        take, place, give = BufferPool.take, Peer.place, BufferPool._give_back
        admit = AdmittedPush.__init__

        def took(pool: BufferPool, size_bytes: int) -> Block:
            block = take(pool, size_bytes)
            self._out += size_bytes
            self._look()
            return block

        def gave(pool: BufferPool, block: Block) -> None:
            self._out -= len(block)
            give(pool, block)

        def placed(peer: Peer, header: Header) -> Landing | None:
            # Room for a part of a push is no more than landing from the moment that it is taken.
            coming = header.size if header.kind is Kind.TENSOR else 0
            self._landing += coming
            landing = place(peer, header)
            if landing is HOLD:
                self._landing -= coming
            self.landing = max(self.landing, self._landing)
            return landing

        def admitted(push: AdmittedPush, member: Member, peer: Peer, event: Event) -> None:
            admit(push, member, peer, event)
            self._landing -= push.unseen_bytes(())
            self._look()

        BufferPool.take = took  # type: ignore[method-assign]
        BufferPool._give_back = gave  # type: ignore[method-assign]
        Peer.place = placed  # type: ignore[method-assign]
        AdmittedPush.__init__ = admitted  # type: ignore[method-assign]

    def _look(self) -> None:
        self.held = max(self.held, self._out - self._landing)
