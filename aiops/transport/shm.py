"""Shared memory between a worker and a server on one machine: a byte stream through a ring for each direction.

Small writes and all reads of little go through the loop, bulk through lanes, as with TCP; but a payload is copied once,
and a landing may use it in place. The unix socket that handed the memory over tells when the peer is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NotRequired, TypedDict

from aiops.errors import ConnectionLost, ProtocolError, RemoteProtocolError
from aiops.kernels import copy_bytes
from aiops.transport.base import Receiver
from aiops.transport.handover import Link
from aiops.transport.lane import Lane
from aiops.transport.laned import LANE_BYTES, LanedConnection
from aiops.transport.passage import Drain, Fill, Inlet, Outlet
from aiops.transport.segment import SEGMENT_BYTES
from aiops.wire.reader import Landing

# What the loop takes from a ring before it looks at others.
TURN_BYTES = 512 * 1024

# What a record counts for at least: looking at a small one takes as long as copying so much.
RECORD_COST_BYTES = 8 * 1024


class Options(TypedDict):
    """What both ends of a connection are told; see :class:`ShmConnection`."""

    max_frame_bytes: int
    idle_timeout_s: float
    lanes: NotRequired[Sequence[Lane]]
    send_lane: NotRequired[int]


class ShmConnection(LanedConnection):
    """A connection through shared memory; :mod:`aiops.transport.nearest` makes it.

    Args:
        lanes: See :class:`LanedConnection`.
        send_lane: See :class:`LanedConnection`.
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
        super().__init__(
            receiver,
            max_frame_bytes=max_frame_bytes,
            idle_timeout_s=idle_timeout_s,
            lanes=lanes,
            send_lane=send_lane,
        )
        self.peer = link.peer
        self._link = link
        self._inlet = Inlet(link.inward)
        self._outlet = Outlet(link.outward)
        # What the ring had no room for yet.
        self._pending: deque[memoryview] = deque()
        self._size = 0
        self._hung_up = False
        self._watched: dict[int, Callable[[], None]] = {}

    def start(self) -> None:
        """Begin to hear the peer."""
        if self.closed:
            return
        self._watch(self._link.sock.fileno(), self._gone)
        self._read_or_not()

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""
        self._asked_to_pause = False
        self._look_again()
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
        left, hear = TURN_BYTES, True
        while not (self.closed or self._asked_to_pause or self._incoming):
            if left <= 0:
                self._loop.call_soon(self._take_in)
                return
            if self._hand_over():
                return
            try:
                view = self._inlet.view(hear=hear)
            except ProtocolError as error:
                self.abort(error)
                return
            if not view:
                if self._hung_up:
                    self._hang_up()
                return
            left -= max(self._take(view), RECORD_COST_BYTES)
            # What comes meanwhile rings again: to hear that there is nothing would cost 2 us a message. A peer that is
            # gone rings no more, and all of it has to be heard.
            hear = self._hung_up
        # Whoever reads nothing hears of the end when it cannot write any more either.
        if self._hung_up and self._asked_to_pause and self._paused and not self.closed:
            self._hang_up()

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
        if bulk is None or not self._lanes or bulk[1] < LANE_BYTES:
            return False
        self._drain(*bulk)
        return True

    def _drain(self, landing: Landing, size: int) -> None:
        self._size = size
        done = self._from_lane(self._landed)
        move = Drain(self._inlet, landing, size, done, last=self._hung_up)
        self._begin_incoming(self._lane_of(landing), move)

    def _landed(self, error: Exception | None) -> None:
        self._account()
        self._incoming = None
        if error is not None:
            self._fail(error)
            return
        self._dispatch(self._reader.landed(self._size))
        self._read_or_not()
        self._take_in()

    # The peer is gone. What it has written is still there, and is read first, by who reads it anyway: nobody but a lane
    # may fill a landing that lanes fill.
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
            bulk = self._reader.bulk
            if bulk is not None:
                self._drain(*bulk)
        self._take_in()

    def _hang_up(self) -> None:
        self.abort(ConnectionLost(f"{self.peer} closed the connection {self._where()}"))

    # Writing.

    def _write(self, data: bytes | memoryview) -> None:
        if self._hung_up:
            self._hang_up()
        elif self._takes_lane(data):
            move = Fill(self._outlet, memoryview(data), self._from_lane(self._went))
            self._begin_outgoing(self._own_lane(), move)
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
            self._fail(error)
            return
        self._resume()

    def _backlog(self) -> int:
        waiting = sum(map(len, self._pending)) + self._outgoing_bytes()
        return waiting + self._outlet.ring.used

    # Ending.

    def _stop_moving(self) -> None:
        super()._stop_moving()
        self._pending.clear()

    def _shut(self, *, gently: bool) -> None:
        for fd in list(self._watched):
            self._watch(fd, None)
        self._link.close()
        # Whoever remembers this connection need not keep its memory.
        del self._link, self._inlet, self._outlet
        self._loop.call_soon(self._lost, None)
