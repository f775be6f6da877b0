"""What connections with lanes share, whatever carries their bytes: which lane is at work, and what it has moved."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence

from aiops.errors import AiopsError, ConnectionLost
from aiops.transport.base import Receiver, translated
from aiops.transport.lane import Done, Lane, Move
from aiops.transport.segment import SEGMENT_BYTES
from aiops.transport.stream import StreamConnection
from aiops.wire.reader import Landing

# From here on a payload goes through a lane. Below, waking another thread costs more than moving the bytes: measure
# with `aiops bench round`.
LANE_BYTES = 1024 * 1024


class LanedConnection(StreamConnection):
    """A connection whose bulk payloads may go through lanes.

    A subclass brings ``_read_or_not`` (take bytes on the loop exactly while nobody asked to pause and no lane does) and
    makes the moves.

    Args:
        lanes: Threads for bulk payloads; without them everything happens on the loop. What comes in says which of them
            takes it.
        send_lane: Number of the lane that sends.
    """

    def __init__(
        self,
        receiver: Receiver,
        *,
        max_frame_bytes: int,
        idle_timeout_s: float,
        lanes: Sequence[Lane] = (),
        send_lane: int = 0,
    ) -> None:
        super().__init__(receiver, max_frame_bytes=max_frame_bytes, idle_timeout_s=idle_timeout_s)
        self._lanes = lanes
        self._send_lane = send_lane
        self._segment_bytes = sys.maxsize if lanes else SEGMENT_BYTES
        # The lane at work on each direction, and how much of the incoming move is accounted for.
        self._incoming: tuple[Lane, Move] | None = None
        self._outgoing: tuple[Lane, Move] | None = None
        self._due = 0
        self._asked_to_pause = False

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

    def _read_or_not(self) -> None:
        raise NotImplementedError

    # The lane that takes a payload in, and the one that sends.
    def _lane_of(self, landing: Landing) -> Lane:
        return self._lanes[landing.lane % len(self._lanes)]

    def _own_lane(self) -> Lane:
        return self._lanes[self._send_lane % len(self._lanes)]

    def _takes_lane(self, data: bytes | memoryview) -> bool:
        return bool(self._lanes) and len(data) >= LANE_BYTES and isinstance(data, memoryview)

    def _begin_incoming(self, lane: Lane, move: Move) -> None:
        self._incoming, self._due = (lane, move), move.left
        self._read_or_not()
        self._start(lane, move)

    def _begin_outgoing(self, lane: Lane, move: Move) -> None:
        self._outgoing = (lane, move)
        self._pause()
        self._start(lane, move)

    def _start(self, lane: Lane, move: Move) -> None:
        try:
            lane.start(move)
        except OSError as error:
            self._fail(error)

    # End the connection with what has stopped a lane.
    def _fail(self, error: Exception) -> None:
        if isinstance(error, EOFError):
            self.abort(ConnectionLost(f"{self.peer} closed the connection {self._where()}"))
            return
        self.abort(translated(error, f"connection to {self.peer} was lost {self._where()}"))
        if not isinstance(error, AiopsError | OSError):
            # A bug of the receiver's, as in what it does with a frame: the loop reports it.
            raise error

    # Bytes that the outgoing lane has yet to move.
    def _outgoing_bytes(self) -> int:
        return 0 if self._outgoing is None else self._outgoing[1].left

    # Note what the incoming lane has moved since somebody last looked.
    def _account(self) -> None:
        if self._incoming is not None:
            left = self._incoming[1].left
            if left != self._due:
                self._heard(self._due - left)
                self._due = left

    def _stop_moving(self) -> None:
        for moving in (self._incoming, self._outgoing):
            if moving is not None:
                lane, move = moving
                lane.stop(move)
        self._account()
        self._incoming = self._outgoing = None

    # A lane tells the loop, unless the connection has ended meanwhile and nobody waits to hear.
    def _from_lane(self, heard: Callable[[Exception | None], None]) -> Done:
        def on_loop(error: Exception | None) -> None:
            if not self.closed:
                heard(error)

        def tell(error: Exception | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(on_loop, error)

        return tell
