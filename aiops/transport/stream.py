"""The part of a connection that every byte stream shares: who sends when, loans, and how it ends.

A subclass brings three things: ``_write`` (take bytes), ``_backlog`` (how many of them the peer has yet to take) and
``_shut`` (end the link, and all use of memory on loan). It reports back through ``_pause``, ``_resume``, ``_filled``
and ``_lost``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence

from aiops.errors import AiopsError, ConnectionLost, DeadlineExceeded, ProtocolError
from aiops.transport.base import Outgoing, Receiver
from aiops.transport.segment import SEGMENT_BYTES, STAGED_BYTES, segments
from aiops.wire.frame import Frame
from aiops.wire.reader import FrameReader

# Control frames that may wait for a frame boundary: far more than one peer's pings and answers.
MAX_POSTED_BYTES = 1024 * 1024


class StreamConnection:
    """A connection over an ordered byte stream.

    Args:
        receiver: Who gets the frames.
        max_frame_bytes: Largest payload accepted from the peer.
        idle_timeout_s: How long a send may wait without the peer taking a byte.
    """

    # How large the views are that the transport takes at a time.
    _segment_bytes = SEGMENT_BYTES

    def __init__(self, receiver: Receiver, *, max_frame_bytes: int, idle_timeout_s: float) -> None:
        self.peer = "unknown peer"
        self.closed = False
        self.patient = False
        self.sent_bytes = 0
        self._received_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._last_heard = self._loop.time()
        self._receiver = receiver
        self._reader = FrameReader(receiver.place, max_frame_bytes=max_frame_bytes)
        self._idle_timeout_s = idle_timeout_s
        self._posted: deque[bytes] = deque()
        self._posted_bytes = 0
        # Senders queue here, so that one message's frames are never mixed with another's.
        self._turn = asyncio.Lock()
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        # When the wait began and for how many bytes, and the timer that looks after it. One timer serves all waits of
        # an idle timeout: a wait for every write takes longer to arm and to disarm than to wait.
        self._since, self._before = 0.0, 0
        self._watchdog: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        # Said goodbye, which the peer may never read.
        self._parting = False
        self._over = self._loop.create_future()

    @property
    def received_bytes(self) -> int:
        """Bytes received so far."""
        return self._received_bytes

    @property
    def last_heard(self) -> float:
        """When bytes last came in, in seconds of the loop's clock."""
        return self._last_heard

    async def send(self, frames: Sequence[Outgoing]) -> None:
        """Send frames in order; see :class:`aiops.transport.base.Connection`."""
        try:
            async with self._turn:
                self._check()
                await self._flush_posted()
                await self._send(frames)
        finally:
            self._pump()

    def send_now(self, frames: Sequence[Outgoing]) -> bool:
        """Send a small message at once, if nothing is in its way; see the protocol."""
        if self._paused or self._posted or self._turn.locked() or self.closed:
            return False
        pieces: list[bytes | memoryview] = []
        for head, views in frames:
            pieces.append(head)
            pieces += views
        if sum(map(len, pieces)) > STAGED_BYTES:
            return False
        self._put(b"".join(pieces))
        return True

    def post(self, frame: bytes) -> None:
        """Send a small frame at the next frame boundary; see the protocol."""
        if self.closed:
            return
        self._posted.append(frame)
        self._posted_bytes += len(frame)
        self._pump()
        if self._posted_bytes > MAX_POSTED_BYTES:
            unread = f"{self._posted_bytes} bytes of control frames wait, {MAX_POSTED_BYTES} may"
            self.abort(ConnectionLost(f"{self.peer} does not read: {unread}"))

    async def close(self) -> None:
        """Send what is posted, then end the connection."""
        try:
            try:
                async with self._turn:
                    await self._flush_posted()
                    await self._drained()
            except AiopsError:
                # The connection is over already, and its receiver hears why.
                pass
            if not self.closed:
                self._end(None)
                self._shut(gently=True)
            await self._left()
        except asyncio.CancelledError:
            self.abort(ConnectionLost(f"closing the connection to {self.peer} was cancelled"))
            raise

    def abort(self, error: Exception | None = None) -> None:
        """End the connection at once, in the middle of a goodbye too."""
        if not self.closed:
            self._end(error or ConnectionLost(f"connection to {self.peer} was aborted"))
        elif not self._parting:
            return
        self._parting = False
        self._shut(gently=False)

    def pause_reading(self) -> None:
        """Stop taking bytes from the peer; see the protocol."""
        raise NotImplementedError

    def _write(self, data: bytes | memoryview) -> None:
        raise NotImplementedError

    def _backlog(self) -> int:
        raise NotImplementedError

    def _shut(self, *, gently: bool) -> None:
        raise NotImplementedError

    # Whatever other thread uses memory on loan must not do so any more.
    def _stop_moving(self) -> None:
        return

    def _pause(self) -> None:
        self._paused = True

    def _resume(self) -> None:
        self._paused = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._pump()

    def _filled(self, n: int) -> None:
        if not self.closed:
            self._heard(n)
            self._parse(n)

    def _parse(self, n: int) -> None:
        self._dispatch(self._reader.buffer_updated(n))
        if self._reader.held and not self.closed:
            self.pause_reading()

    # Ask the receiver again for memory that it did not have; a subclass does before it reads on.
    def _look_again(self) -> None:
        if self._reader.held and not self.closed:
            self._parse(0)

    def _heard(self, n: int) -> None:
        self._received_bytes += n
        self._last_heard = self._loop.time()

    def _dispatch(self, frames: Iterator[Frame]) -> None:
        try:
            for frame in frames:
                self._receiver.frame_received(frame)
        except ProtocolError as error:
            self.abort(error)
        except Exception as error:
            # A bug of the receiver's: nothing can be trusted to be in step any more, and the loop reports it.
            self.abort(error)
            raise

    # The link is gone; ``error`` is how, unless this end has already said so.
    def _lost(self, error: Exception | None) -> None:
        if not self.closed:
            self._end(error)
        self._parting = False
        if not self._over.done():
            self._over.set_result(None)
            self._receiver.connection_lost(self._error)

    # Wait for the end, and for a goodbye that does not leave no longer than for any other byte.
    async def _left(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._idle_timeout_s):
                await asyncio.shield(self._over)
        self.abort()
        await asyncio.shield(self._over)

    # Where in the stream of frames the peer stopped, for people.
    def _where(self) -> str:
        return "in the middle of a frame" if self._reader.mid_frame else "between frames"

    def _end(self, error: Exception | None) -> None:
        self.closed = True
        self._error = error
        self._stop_moving()
        self._reader.close()
        self._posted.clear()
        self._posted_bytes = 0
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _check(self) -> None:
        if not self.closed:
            return
        if isinstance(self._error, AiopsError):
            raise self._error
        raise ConnectionLost(f"connection to {self.peer} is closed") from self._error

    async def _send(self, frames: Sequence[Outgoing]) -> None:
        left = total = sum(len(head) + sum(map(len, views)) for head, views in frames)
        lent = False
        try:
            for data, ends_frame in segments(frames, self._segment_bytes):
                lent = isinstance(data, memoryview)
                self._put(data)
                left -= len(data)
                await self._drained()
                lent = False
                if ends_frame:
                    await self._flush_posted()
        except BaseException:
            # Half a message cannot be unsent, and the caller's memory cannot be asked back from the transport. Copies
            # that make up the whole message go out by themselves.
            if 0 < left < total or lent:
                self.abort(ConnectionLost(f"send to {self.peer} was cancelled halfway"))
            raise

    def _put(self, data: bytes | memoryview) -> None:
        self.sent_bytes += len(data)
        self._write(data)

    def _put_posted(self) -> None:
        frame = self._posted.popleft()
        self._posted_bytes -= len(frame)
        self._put(frame)

    # Between frames and with room in the kernel, what is posted leaves at once; a sender flushes at its boundaries.
    def _pump(self) -> None:
        while self._posted and not self._paused and not self._turn.locked():
            self._put_posted()

    async def _flush_posted(self) -> None:
        while self._posted:
            self._put_posted()
            await self._drained()

    # Wait until the kernel has taken everything written; only lack of progress runs the deadline down. Looking once
    # per idle timeout, it finds a peer that stopped after one timeout at the earliest and two at the latest.
    async def _drained(self) -> None:
        while self._paused and not self.closed:
            self._since, self._before = self._loop.time(), self._backlog()
            self._waiter = self._loop.create_future()
            if self._watchdog is None:
                self._arm()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._check()

    # An idle timeout after some wait began, which may have ended by now: end the connection if in all of it not a byte
    # of what was waiting has gone.
    def _look_after(self) -> None:
        self._watchdog = None
        if self._waiter is None or self.closed:
            return
        if self._loop.time() >= self._since + self._idle_timeout_s:
            alive = self.patient and self.last_heard > self._since
            if self._paused and not alive and self._backlog() >= self._before:
                idle_s, came = self._idle_timeout_s, self.received_bytes
                return self.abort(
                    DeadlineExceeded("sending", peer=self.peer, waited_s=idle_s, moved_bytes=came)
                )
            self._since, self._before = self._loop.time(), self._backlog()
        self._arm()

    def _arm(self) -> None:
        self._watchdog = self._loop.call_at(self._since + self._idle_timeout_s, self._look_after)
