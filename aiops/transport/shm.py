"""Shared memory between a worker and a server on one machine: a byte stream through a ring for each direction.

Small writes and all reads of little go through the loop, bulk through lanes, as with TCP; but a payload is copied once,
and a landing may use it in place. The unix socket that handed the memory over tells when the peer is gone.
"""

from __future__ import annotations

import contextlib
import selectors
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import NotRequired, TypedDict

from aiops.errors import ConnectionLost, ProtocolError, RemoteProtocolError
from aiops.kernels import copy_bytes
from aiops.transport.base import Receiver
from aiops.transport.handover import Bell, Link, Way
from aiops.transport.lane import Done, Lane
from aiops.transport.ring import RECORD_BYTES, RingReader, RingWriter
from aiops.transport.stream import SEGMENT_BYTES, StreamConnection
from aiops.wire.reader import Landing

# From here on a payload goes through a lane. Below, waking another thread costs more than moving the bytes.
LANE_BYTES = 1024 * 1024

# What the loop takes from a ring before it looks at others.
TURN_BYTES = 512 * 1024

# A reader gives room back in pieces of this part of a ring: the writer is never stuck for less, and news cost.
PIECES = 4


class Options(TypedDict):
    """What both ends of a connection are told; see :class:`ShmConnection`."""

    max_frame_bytes: int
    idle_timeout_s: float
    lanes: NotRequired[Sequence[Lane]]
    send_lane: NotRequired[int]


class Outlet:
    """A ring to write to, and the bells that go with it."""

    def __init__(self, way: Way) -> None:
        self.ring = RingWriter(way.memory)
        self.freed = way.freed
        self._came = way.came

    def put(self, data: memoryview, most: int = RECORD_BYTES) -> int:
        """Write a record of at most ``most`` bytes and tell the peer; return its size, 0 if there is no room for one."""
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

    def view(self) -> memoryview:
        """Return the next bytes in place; empty if the peer has written no more."""
        view = self.ring.view()
        if not view:
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

    events = selectors.EVENT_READ

    def __init__(self, outlet: Outlet, view: memoryview, done: Done) -> None:
        self.sock: Bell = outlet.freed.dup()
        self.left = len(view)
        self.over = False
        self.done = done
        self._outlet = outlet
        self._view = view

    def step(self) -> bool:
        """Write one record."""
        n = self._outlet.put(self._view[len(self._view) - self.left :])
        self.left -= n
        return n > 0


class Drain:
    """Bytes from a ring into a landing, on a lane."""

    events = selectors.EVENT_READ

    def __init__(self, inlet: Inlet, landing: Landing, size: int, done: Done) -> None:
        self.sock: Bell = inlet.came.dup()
        self.left = size
        self.over = False
        self.done = done
        self._inlet = inlet
        self._landing = landing

    def step(self) -> bool:
        """Let the landing take one record."""
        view = self._inlet.view()[: self.left]
        if not view:
            return False
        self._landing.take(view)
        self._inlet.took(len(view))
        self.left -= len(view)
        return True


class ShmConnection(StreamConnection):
    """A connection through shared memory; :mod:`aiops.transport.nearest` makes it.

    Args:
        lanes: Threads for bulk payloads; without them everything happens on the loop. What comes in says which of them
            takes it.
        send_lane: Number of the lane that sends.
    """

    def __init__(
        self,
        receiver: Receiver,
        link: Link,
        *,
        max_frame_bytes: int,
        idle_timeout_s: float,
        lanes: Sequence[Lane] = (),
        send_lane: int = 0,
    ) -> None:
        super().__init__(receiver, max_frame_bytes=max_frame_bytes, idle_timeout_s=idle_timeout_s)
        self.peer = link.peer
        self._link = link
        self._lanes = lanes
        self._send_lane = send_lane
        self._segment_bytes = sys.maxsize if lanes else SEGMENT_BYTES
        self._inlet = Inlet(link.inward)
        self._outlet = Outlet(link.outward)
        # What the ring had no room for yet.
        self._pending: deque[memoryview] = deque()
        # The lane at work on each direction, and how much of the incoming move is accounted for.
        self._incoming: tuple[Lane, Drain] | None = None
        self._outgoing: tuple[Lane, Fill] | None = None
        self._size = self._due = 0
        self._asked_to_pause = False
        self._hung_up = False
        self._watched: dict[int, Callable[[], None]] = {}

    def start(self) -> None:
        """Begin to hear the peer."""
        self._watch(self._link.sock.fileno(), self._gone)
        self._read_or_not()

    @property
    def received_bytes(self) -> int:
        """Bytes received so far."""
        self._account()
        return self._received_bytes

    @property
    def last_heard(self) -> float:
        """When bytes last came in, in seconds of the loop's clock; a lane's are noted when somebody asks."""
        self._account()
        return self._last_heard

    def pause_reading(self) -> None:
        """Stop taking bytes from the peer, once a payload that a lane is at has come."""
        self._asked_to_pause = True
        self._read_or_not()

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""
        self._asked_to_pause = False
        self._read_or_not()
        # What has been heard of before rings no bell.
        self._loop.call_soon(self._take_in)

    def _watch(self, fd: int, heard: Callable[[], None] | None) -> None:
        if heard is None:
            if self._watched.pop(fd, None):
                self._loop.remove_reader(fd)
        elif fd not in self._watched:
            self._watched[fd] = heard
            self._loop.add_reader(fd, heard)

    # Reading.

    def _read_or_not(self) -> None:
        if not self.closed:
            wanted = not self._asked_to_pause and self._incoming is None
            self._watch(self._inlet.came.fileno(), self._take_in if wanted else None)

    # Read what is there, some of it at a time, on the loop or by a lane.
    def _take_in(self) -> None:
        left = TURN_BYTES
        while not (self.closed or self._asked_to_pause or self._incoming):
            if left <= 0:
                self._loop.call_soon(self._take_in)
                return
            if self._hand_over():
                return
            try:
                view = self._inlet.view()
            except ProtocolError as error:
                self.abort(error)
                return
            if not view:
                if self._hung_up:
                    self._hang_up()
                return
            left -= self._take(view)

    def _take(self, view: memoryview) -> int:
        buffer = self._reader.get_buffer(len(view))
        n = min(len(buffer), len(view))
        copy_bytes(buffer[:n], view[:n])
        try:
            self._inlet.took(n)
        except ProtocolError as error:
            self.abort(error)
        self._filled(n)
        return n

    # Give what is missing of a large payload to its lane; the loop reads on when it has come.
    def _hand_over(self) -> bool:
        bulk = self._reader.bulk
        if bulk is None or not self._lanes or bulk[1] < LANE_BYTES or self._hung_up:
            return False
        landing, self._size = bulk
        lane = self._lanes[landing.lane % len(self._lanes)]
        move = Drain(self._inlet, landing, self._size, self._from_lane(self._landed))
        self._incoming, self._due = (lane, move), self._size
        self._read_or_not()
        lane.start(move)
        return True

    def _landed(self, error: Exception | None) -> None:
        self._account()
        self._incoming = None
        if error is not None:
            self.abort(error)
            return
        self._dispatch(self._reader.landed(self._size))
        self._read_or_not()
        self._take_in()

    # Note what the incoming lane has moved since somebody last looked.
    def _account(self) -> None:
        if self._incoming is not None:
            left = self._incoming[1].left
            if left != self._due:
                self._heard(self._due - left)
                self._due = left

    # The peer is gone. What it has written is still there, and is read first, here: it is not much.
    def _gone(self) -> None:
        try:
            said = self._link.sock.recv(1)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said:
            self.abort(RemoteProtocolError(f"{self.peer} writes to a socket that says nothing"))
            return
        self._watch(self._link.sock.fileno(), None)
        self._hung_up = True
        if self._incoming is not None:
            lane, move = self._incoming
            if not lane.stop(move):
                return  # it is at its end, and what follows comes after it
            self._account()
            self._incoming = None
            self._dispatch(self._reader.landed(self._size - move.left))
            self._read_or_not()
        if not self.closed and self._asked_to_pause and self._paused:
            self._hang_up()
        self._take_in()

    def _hang_up(self) -> None:
        self.abort(ConnectionLost(f"{self.peer} closed the connection {self._where()}"))

    # Writing.

    def _write(self, data: bytes | memoryview) -> None:
        if self._hung_up:
            self._hang_up()
        elif self._lanes and len(data) >= LANE_BYTES and isinstance(data, memoryview):
            lane = self._lanes[self._send_lane % len(self._lanes)]
            move = Fill(self._outlet, data, self._from_lane(self._went))
            self._outgoing = (lane, move)
            self._pause()
            lane.start(move)
        elif data:
            self._pending.append(memoryview(data))
            self._put_pending()

    def _put_pending(self) -> None:
        try:
            while self._pending:
                # In pieces, so that the peer reads the first while the last is written.
                n = self._outlet.put(self._pending[0], SEGMENT_BYTES)
                if not n:
                    break
                rest = self._pending.popleft()[n:]
                if rest:
                    self._pending.appendleft(rest)
        except ProtocolError as error:
            self.abort(error)
            return
        if self._pending:
            self._pause()
            self._watch(self._outlet.freed.fileno(), self._has_room)

    def _has_room(self) -> None:
        self._put_pending()
        if not self._pending and not self.closed:
            self._watch(self._outlet.freed.fileno(), None)
            self._resume()

    def _went(self, error: Exception | None) -> None:
        self._outgoing = None
        if error is not None:
            self.abort(error)
            return
        self._resume()

    def _backlog(self) -> int:
        waiting = sum(map(len, self._pending))
        if self._outgoing is not None:
            waiting += self._outgoing[1].left
        return waiting + self._outlet.ring.used

    # Ending.

    def _stop_moving(self) -> None:
        for moving in (self._incoming, self._outgoing):
            if moving is not None:
                lane, move = moving
                lane.stop(move)
        self._account()
        self._incoming = self._outgoing = None
        self._pending.clear()

    # A lane tells the loop, unless the connection has ended meanwhile and nobody waits to hear.
    def _from_lane(
        self, heard: Callable[[Exception | None], None]
    ) -> Callable[[Exception | None], None]:
        def on_loop(error: Exception | None) -> None:
            if not self.closed:
                heard(error)

        def tell(error: Exception | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(on_loop, error)

        return tell

    def _shut(self, *, gently: bool) -> None:
        for fd in list(self._watched):
            self._watch(fd, None)
        self._link.close()
        # Whoever remembers this connection need not keep its memory.
        del self._link, self._inlet, self._outlet
        self._loop.call_soon(self._lost, None)
