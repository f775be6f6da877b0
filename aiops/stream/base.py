"""What a stream is to a worker: records that arrive whether or not anybody reads them.

A source knows bytes and cursors; it knows no sample, no batch and no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a stream.

    Attributes:
        cursor: Where the stream goes on after this record and all that were handed out before it. Only the source that
            made it can read it; it is text, so that it goes into any checkpoint.
        key: What the producer filed it under (a label, a device); may be empty.
        value: The sample, as the producer wrote it. The reader's own.
        time_s: When it happened, in seconds of the producer's clock.
        fault: Why the source could make no sense of it; empty where it could. Such a record's value is empty.
    """

    cursor: str
    key: bytes
    value: bytes
    time_s: float
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits at a source to be read.

    Attributes:
        n_records: Records that have arrived and that were handed to nobody yet.
        n_bytes: Bytes of their values; estimated from those read so far where the server does not tell.
    """

    n_records: int
    n_bytes: int


class StreamSource(Protocol):
    """An async iterator of records that are read at least once.

    A record is done when it is acknowledged. What was handed out and not acknowledged is handed out again to who reads
    next: after a restart of the worker, of the server, or of both. So a worker that trains, writes a checkpoint with
    the last record's cursor in it, and only then acknowledges that cursor, loses no record; those between the last
    acknowledgement and the end of the worker come twice, which :class:`aiops.stream.dedup.Dedup` counts.

    One task reads. The others may be called from any task of the same loop.

    Attributes:
        name: The stream, for people; without its secrets.
    """

    name: str

    @property
    def cursor(self) -> str:
        """The newest cursor that was acknowledged, or the one that it was opened with; empty before."""

    @property
    def lost(self) -> int:
        """Records that the server threw away before they were read, as far as it tells."""

    @property
    def reconnects(self) -> int:
        """How often the server went away and came back."""

    def __aiter__(self) -> StreamSource:
        """Return itself."""

    async def __anext__(self) -> Record:
        """Wait for the next record, however long the stream is silent, paused, or out of reach for a while.

        A wait that is cancelled loses no record.

        Raises:
            StopAsyncIteration: The stream has ended, or the source was closed.
            ConnectionLost: The server did not come back in the time that it was given.
        """

    def rate(self) -> float:
        """Return how fast records arrive at the source, smoothed, in records/s; 0 before the first look.

        It is the stream's rate and not the reader's. A server is looked at every second while somebody reads, or waits
        in a pause.
        """

    async def backlog(self) -> Backlog:
        """Return what waits at the source now.

        Raises:
            ConnectionLost: The server does not answer.
        """

    async def ack(self, cursor: str) -> None:
        """Declare everything up to and including that record done; older cursors than the last change nothing.

        It does not wait for a server that is out of reach: what that has not heard is repeated when it is back, and
        a worker that ends before has the records handed out again.

        Raises:
            ConfigError: No record of that cursor was handed out.
        """

    def pause(self) -> None:
        """Hand out nothing until :meth:`resume`: the records wait at the source. Idempotent."""

    def resume(self) -> None:
        """Hand out records again. Idempotent."""

    async def aclose(self) -> None:
        """End the iteration, of a reader that waits too, and let go of the server. Idempotent."""
