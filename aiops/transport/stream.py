"""The part of a connection that every byte stream shares: cutting frames into writes, and loans.

A subclass brings three things: ``_write`` (take bytes), ``_backlog`` (how many of them the kernel has not taken yet)
and ``_shut`` (end the link). It reports back through ``_pause``, ``_resume``, ``_filled`` and ``_lost``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from aiops.errors import ConnectionLost, DeadlineExceeded, ProtocolError
from aiops.transport.base import Outgoing, Receiver
from aiops.wire.reader import FrameReader

# One flush per segment keeps the stock loop from moving its whole backlog at each partial send, and bounds what is
# lent to the transport at a time.
SEGMENT_BYTES = 256 * 1024

# What is copied to leave together with its header in one write: one system call instead of two.
STAGED_BYTES = 64 * 1024

# Control frames that may wait for a frame boundary: far more than one peer's pings and answers.
MAX_POSTED = 1024


class StreamConnection:
    """A connection over an ordered byte stream.

    Args:
        receiver: Who gets the frames.
        max_frame_bytes: Largest payload accepted from the peer.
        idle_timeout_s: How long a send may wait without the peer taking a byte.
    """

    def __init__(self, receiver: Receiver, *, max_frame_bytes: int, idle_timeout_s: float) -> None:
        self.peer = "unknown peer"
        self.closed = False
        self.received_bytes = 0
        self.sent_bytes = 0
        self._loop = asyncio.get_running_loop()
        self.last_heard = self._loop.time()
        self._receiver = receiver
        self._reader = FrameReader(receiver.place, max_frame_bytes=max_frame_bytes)
        self._idle_timeout_s = idle_timeout_s
        self._posted: deque[bytes] = deque()
        # Senders queue here, so that one message's frames are never mixed with another's.
        self._turn = asyncio.Lock()
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._over = self._loop.create_future()

    async def send(self, frames: Sequence[Outgoing]) -> None:
        """Send frames in order; see :class:`aiops.transport.base.Connection`."""
        async with self._turn:
            self._check()
            whole = True
            data: bytes | memoryview = b""
            try:
                for data, ends in _segments(frames):
                    if whole:
                        await self._flush_posted()
                    whole = ends
                    self._put(data)
                    await self._drained()
                    self._check()
            except asyncio.CancelledError:
                # Half a frame is out, or the transport still holds a view of the caller's memory.
                if not whole or (self._paused and isinstance(data, memoryview)):
                    self.abort(ConnectionLost(f"send to {self.peer} was cancelled inside a frame"))
                raise
            await self._flush_posted()

    def post(self, frame: bytes) -> None:
        """Send a small frame at the next frame boundary; see the protocol."""
        if self.closed:
            return
        if self._turn.locked() or self._paused:
            if len(self._posted) == MAX_POSTED:
                self.abort(ConnectionLost(f"{self.peer} leaves {MAX_POSTED} control frames unread"))
                return
            self._posted.append(frame)
        else:
            self._put(frame)

    async def close(self) -> None:
        """Send what is posted, then end the connection."""
        if not self.closed:
            try:
                async with self._turn:
                    await self._flush_posted()
                    await self._drained()
            except (ConnectionLost, DeadlineExceeded):
                pass
            self._end(None)
            self._shut(gently=True)
        await asyncio.shield(self._over)

    def abort(self, error: Exception | None = None) -> None:
        """End the connection at once."""
        if not self.closed:
            self._end(error or ConnectionLost(f"connection to {self.peer} was aborted"))
            self._shut(gently=False)

    # -- what a subclass brings -----------------------------------------------------------------------------------

    def _write(self, data: bytes | memoryview) -> None:
        raise NotImplementedError

    def _backlog(self) -> int:
        raise NotImplementedError

    def _shut(self, *, gently: bool) -> None:
        raise NotImplementedError

    # -- what a subclass reports ----------------------------------------------------------------------------------

    def _pause(self) -> None:
        self._paused = True

    def _resume(self) -> None:
        self._paused = False
        self._wake()
        while self._posted and not self._paused and not self._turn.locked():
            self._put(self._posted.popleft())

    def _filled(self, n: int) -> None:
        self.received_bytes += n
        self.last_heard = self._loop.time()
        try:
            for frame in self._reader.buffer_updated(n):
                if self.closed:
                    frame.release()
                    continue
                self._receiver.frame_received(frame)
        except ProtocolError as error:
            self.abort(error)

    def _lost(self, error: Exception | None) -> None:
        """Tell that the link is gone; ``error`` as the receiver shall see it."""
        if not self.closed:
            self._end(error)
        if not self._over.done():
            self._over.set_result(None)
            self._receiver.connection_lost(self._error)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _end(self, error: Exception | None) -> None:
        self.closed = True
        self._error = error
        self._reader.close()
        self._posted.clear()
        self._wake()

    def _put(self, data: bytes | memoryview) -> None:
        self.sent_bytes += len(data)
        self._write(data)

    def _check(self) -> None:
        if self.closed:
            raise self._error or ConnectionLost(f"connection to {self.peer} is closed")

    async def _flush_posted(self) -> None:
        while self._posted:
            self._put(self._posted.popleft())
            await self._drained()
            self._check()

    # Wait until the kernel has taken everything written; only lack of progress runs the deadline down.
    async def _drained(self) -> None:
        while self._paused and not self.closed:
            before = self._backlog()
            self._waiter = self._loop.create_future()
            try:
                async with asyncio.timeout(self._idle_timeout_s):
                    await self._waiter
            except TimeoutError:
                if self._backlog() < before:
                    continue
                error = DeadlineExceeded(
                    "sending",
                    peer=self.peer,
                    waited_s=self._idle_timeout_s,
                    moved_bytes=self.received_bytes,
                )
                self.abort(error)
                raise error from None
            finally:
                self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


# Cut frames into writes: small frames are joined, large ones leave with their header and up to 64 KiB in front, then
# in segments that are views of the caller's memory. Yields each write and whether a frame ends with it.
def _segments(frames: Sequence[Outgoing]) -> Iterator[tuple[bytes | memoryview, bool]]:
    stage = bytearray()
    for head, views in frames:
        size = len(head) + sum(map(len, views))
        if stage and len(stage) + size > STAGED_BYTES:
            yield bytes(stage), True
            stage = bytearray()
        if size > STAGED_BYTES:
            yield from _large(head, views)
            continue
        stage += head
        for view in views:
            stage += view
    if stage:
        yield bytes(stage), True


def _large(head: bytes, views: Sequence[memoryview]) -> Iterator[tuple[bytes | memoryview, bool]]:
    pieces = [
        view[at : at + SEGMENT_BYTES] for view in views for at in range(0, len(view), SEGMENT_BYTES)
    ]
    room = STAGED_BYTES - len(head)
    yield head + bytes(pieces[0][:room]), False
    rest = [pieces[0][room:], *pieces[1:]] if len(pieces[0]) > room else pieces[1:]
    for piece in rest[:-1]:
        yield piece, False
    yield rest[-1], True
