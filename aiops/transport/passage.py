"""The two ends of a shared ring, each with its bells, and what a lane does at them: no loop, no connection."""

from __future__ import annotations

from aiops.transport.handover import Bell, Way
from aiops.transport.lane import Done
from aiops.transport.ring import RECORD_BYTES, RingReader, RingWriter
from aiops.wire.reader import NOTHING, Landing

# A reader gives room back in pieces of this part of a ring: the writer is never stuck for less, and news cost.
PIECES = 4


class Outlet:
    """A ring to write to, and the bells that go with it."""

    def __init__(self, way: Way) -> None:
        self.ring = RingWriter(way.memory)
        self.freed = way.freed
        self._came = way.came

    def put(self, data: memoryview, most: int = RECORD_BYTES) -> int:
        """Write a record of at most ``most`` bytes and tell the peer; return its size, 0 if there is no room."""
        n = self.ring.put(data, most)
        if not n:
            self.ring.freed(self.freed.heard())
            n = self.ring.put(data, most)
        news = self.ring.announce()
        if news:
            self._came.ring(news)
        return n


class Inlet:
    """A ring to read from, and the bells that go with it."""

    def __init__(self, way: Way) -> None:
        self.ring = RingReader(way.memory)
        self.came = way.came
        self._freed = way.freed
        self._piece = len(way.memory) // PIECES

    def view(self, *, hear: bool = True) -> memoryview:
        """Return the next bytes in place; empty if the peer has written no more, or none that was heard of already."""
        view = self.ring.view()
        if hear and not view:
            self.ring.came(self.came.heard())
            view = self.ring.view()
        return view

    def took(self, n: int) -> None:
        """Take note that the view's first ``n`` bytes are read, and give the peer room for others."""
        self.ring.took(n)
        free = self.ring.give_back(at_least=self._piece)
        if free:
            self._freed.ring(free)


class Fill:
    """Bytes from memory into a ring, on a lane; the memory is on loan until the move is over."""

    sends = False

    def __init__(self, outlet: Outlet, view: memoryview, done: Done) -> None:
        self.sock: Bell = outlet.freed.lent()
        self.left = len(view)
        self.over = False
        self.done = done
        self._outlet = outlet
        self._view = view

    def room(self) -> memoryview:
        """Return nothing: a record is more than its bytes."""
        return NOTHING

    def moved(self, _: int) -> bool:
        """Write one record."""
        n = self._outlet.put(self._view[len(self._view) - self.left :])
        self.left -= n
        return n > 0


class Drain:
    """Bytes from a ring into a landing, on a lane.

    Args:
        inlet: The ring.
        landing: Where they go.
        size: How many.
        last: Whether the peer is gone: an empty ring is the end then.
        done: Whom to tell.
    """

    sends = False

    def __init__(
        self, inlet: Inlet, landing: Landing, size: int, done: Done, *, last: bool = False
    ) -> None:
        self.sock: Bell = inlet.came.lent()
        self.left = size
        self.over = False
        self.done = done
        self._inlet = inlet
        self._landing = landing
        self._last = last

    def room(self) -> memoryview:
        """Return nothing: a landing may use the bytes where they lie."""
        return NOTHING

    def moved(self, _: int) -> bool:
        """Let the landing take one record."""
        view = self._inlet.view()[: self.left]
        if not view:
            if self._last:
                raise EOFError
            return False
        self._landing.take(view)
        self._inlet.took(len(view))
        self.left -= len(view)
        return True
