"""Bytes to frames: the parser says where the bytes go.

Two verbs, those of ``asyncio.BufferedProtocol`` without asyncio: :meth:`FrameReader.get_buffer` hands out memory,
:meth:`FrameReader.buffer_updated` says how much of it was filled. Bulk payloads land in the memory that the owner
chose; everything small passes through one staging buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from aiops.kernels import copy_bytes
from aiops.wire.frame import (
    CONTROL_BYTES,
    HEADER_BYTES,
    Frame,
    Header,
    Kind,
    Loan,
    check_magic,
    parse_header,
)

# Room for the largest control frame behind the leftovers of another.
STAGE_BYTES = 2 * (CONTROL_BYTES + HEADER_BYTES)

# One receive call fills at most this much: it stays in the second-level cache for whoever reads it next.
CHUNK_BYTES = 256 * 1024

# The kernel copies to where this divides the offset, or it may take four times as long: 100 MB received at offsets that
# were 9 or 23 above it took 34 ms of CPU time, at any multiple 8 to 9 (AMD EPYC, rep movsb).
ALIGN_BYTES = 64

# A piece this small is not worth a call of its own to get there.
LEAST_ALIGNED_BYTES = 32 * 1024

# What nobody finds in a cache any more when the last of it has come.
UNCACHED_BYTES = 8 * 1024 * 1024

BULK = frozenset({Kind.TENSOR, Kind.INIT, Kind.TABLE})

NOTHING = memoryview(b"")


class Landing:
    """Where one bulk payload goes, from front to back: memory that the owner of the stream chose.

    A subclass may look at the bytes while they are hot, or take them in pieces. A transport with lanes calls
    :meth:`room` and :meth:`filled`, or :meth:`take`, from one of them; everything else happens on the loop.

    Args:
        payload: Exactly the payload's size, writable, of format 'B'.
        loan: What is released when nobody needs the payload any more; None where nobody has to be told.
        lane: Which of the transport's lanes fills it; every number will do.
    """

    __slots__ = ("_at", "lane", "loan", "payload")

    def __init__(self, payload: memoryview, loan: Loan | None = None, *, lane: int = 0) -> None:
        self.payload = payload
        self.loan = loan
        self.lane = lane
        self._at = 0

    def room(self, most: int = CHUNK_BYTES) -> memoryview:
        """Return writable memory for at most ``most`` bytes that come next; never empty while some are due."""
        return self.payload[self._at : aligned(self._at, min(self._at + most, len(self.payload)))]

    def filled(self, n: int) -> None:
        """Take note that the first ``n`` bytes of the last room were written."""
        self._at += n

    def take(self, view: memoryview) -> None:
        """Take the bytes that come next from where they lie, which is theirs until this returns: copy them, or better.

        A transport that has them in memory already calls it instead of :meth:`room` and :meth:`filled`.
        """
        bypass = len(self.payload) >= UNCACHED_BYTES
        while view:
            room = self.room()
            n = min(len(room), len(view))
            copy_bytes(room[:n], view[:n], bypass=bypass)
            self.filled(n)
            view = view[n:]

    def give_up(self) -> None:
        """Hear that the rest will not come; ends the loan."""
        if self.loan is not None:
            self.loan.release()
            self.loan = None


def aligned(start: int, end: int) -> int:
    """Return where to stop first on the way from one offset to another: before a long way, where it is aligned."""
    odd = -start % ALIGN_BYTES
    return start + odd if odd and end - start >= LEAST_ALIGNED_BYTES else end


# What an owner says who has no memory for a payload now, but will.
HOLD = Landing(NOTHING)

Place: TypeAlias = Callable[[Header], "Landing | None"]
"""Chooses the memory of a bulk payload; None has the payload read and dropped, at no memory at all.

With :data:`HOLD` the stream stops before the payload: no more bytes may be read, until the same is asked again.
"""


class FrameReader:
    """Parses a stream of frames; sans-IO.

    Args:
        place: Asked for the memory of every TENSOR, INIT and TABLE payload once the size has passed the limits. It
            may raise RemoteProtocolError to end the stream before memory is taken.
        max_frame_bytes: Largest payload accepted.

    Attributes:
        held: Whether the owner has no memory for the payload that is next. ``buffer_updated(0)`` asks again.
    """

    __slots__ = (
        "_closed",
        "_end",
        "_header",
        "_landing",
        "_left",
        "_max",
        "_place",
        "_stage",
        "held",
    )

    def __init__(self, place: Place, *, max_frame_bytes: int) -> None:
        self._place = place
        self._max = max_frame_bytes
        self._closed = False
        self.held = False
        self._stage = memoryview(bytearray(STAGE_BYTES))
        self._end = 0
        # The bulk frame that is being received, and how many bytes of its payload are missing.
        self._header: Header | None = None
        self._landing: Landing | None = None
        self._left = 0

    def get_buffer(self, hint: int) -> memoryview:
        """Return writable memory for the next bytes; never empty, except while it is held."""
        if self._landing is not None:
            return self._landing.room()
        return self._stage[self._end :]

    @property
    def bulk(self) -> tuple[Landing, int] | None:
        """The landing that the next bytes belong to, and how many they are; None between bulk payloads."""
        return None if self._landing is None else (self._landing, self._left)

    def buffer_updated(self, n: int) -> Iterator[Frame]:
        """Take note of ``n`` bytes written to the last buffer, and yield the frames they complete.

        Each frame is yielded before the next one is looked at, so that what it means (a push announces its parts)
        is known when the next one's memory is chosen. The iterator must be run to its end; after :meth:`close`, which
        the taker of a frame may call, that is at once.

        Raises:
            RemoteProtocolError: The bytes are not frames of ours; the stream is over.
        """
        if self._landing is not None:
            self._landing.filled(n)
            yield from self.landed(n)
            return
        stage, end = self._stage, self._end + n
        self._end, self.held = end, False
        start = 0
        while start < end and not self._closed:
            if self._header is None:
                body = start + HEADER_BYTES
                if body > end:
                    # Two bytes tell a stranger, who may wait for our answer before sending 32.
                    if end - start >= 2:
                        check_magic(bytes(stage[start : start + 2]))
                    break
                header = parse_header(stage, self._max, start)
                if header.kind not in BULK:
                    if end - body < header.size:
                        break
                    start = body + header.size
                    yield Frame(header, memoryview(bytes(stage[body:start])), None)
                    continue
                landing = self._place(header)
                if landing is HOLD:
                    self.held = True
                    break
                self._landing = landing
                self._header, self._left, start = header, header.size, body
            start = self._unstage(start)
            if self._left:
                break
            yield self._finish()
        # The beginning of the next frame moves to the front, at most once per call: there is always room for its rest.
        left = end - start
        if start and left:
            stage[:left] = stage[start:end]
        self._end = left

    def landed(self, n: int) -> Iterator[Frame]:
        """Take note of ``n`` bytes that the landing has taken in by itself, and yield the frame if it is whole."""
        self._left -= n
        if not self._left:
            yield self._finish()

    def close(self) -> None:
        """Give up the payload that is half received, if any, end its loan, and take no further one."""
        self._closed = True
        if self._landing is not None:
            self._landing.give_up()
            self._landing = None

    @property
    def mid_frame(self) -> bool:
        """Whether the stream stands inside a frame."""
        return self._header is not None or self._end > 0

    # Move what is staged of a bulk payload to its place, or drop it; returns where in the stage the rest begins.
    def _unstage(self, start: int) -> int:
        landing, end = self._landing, min(start + self._left, self._end)
        self._left -= end - start
        if landing is None:
            return end
        while start < end:
            room = landing.room()
            n = min(len(room), end - start)
            room[:n] = self._stage[start : start + n]
            landing.filled(n)
            start += n
        return end

    def _finish(self) -> Frame:
        header, landing = self._header, self._landing
        assert header is not None
        self._header = self._landing = None
        if landing is None:
            return Frame(header, NOTHING, None)
        # A lane's thread may know the landing for some milliseconds more. The payload's owner may use it again before,
        # so it is not held there: else one round in three took fresh memory for a model (2 cores, 2.8 MB).
        payload, landing.payload = landing.payload, NOTHING
        return Frame(header, payload, landing.loan)
