"""A ring of memory that two processes share, one writing and one reading: sans-IO, and trusting no number of a peer.

The ring carries records: a cache line with a length, then that many bytes, up to the next line. A record never wraps,
so whoever reads gets whole, aligned views, and may use them in place. How far the peer is comes from outside, as
counts (:meth:`RingReader.came`, :meth:`RingWriter.freed`): nothing but bytes and lengths lies in the memory.
"""

from __future__ import annotations

import struct

from aiops.errors import RemoteProtocolError
from aiops.kernels import copy_bytes

# What records begin at: no two processes write to one line, and every view is aligned for whole vector registers.
LINE_BYTES = 64

# The longest record: its two ends cost 10 us of processor time, and rounds of 100 MB took 1.15 times as long with
# records of 256 KiB. With its length it is a power of two, so that records tile the ring.
RECORD_BYTES = 1024 * 1024 - LINE_BYTES

_LENGTH = struct.Struct("<Q")


def _lines(n: int) -> int:
    return -(-n // LINE_BYTES) * LINE_BYTES


class RingWriter:
    """The writing end.

    Args:
        memory: The whole ring, a multiple of a line, writable, of format 'B'.

    Attributes:
        used: Bytes of the ring that the reader has not given back.
    """

    __slots__ = ("_at", "_memory", "_unannounced", "used")

    def __init__(self, memory: memoryview) -> None:
        assert len(memory) % LINE_BYTES == 0
        self.used = 0
        self._memory = memory
        self._at = 0
        self._unannounced = 0

    def put(self, data: memoryview, most: int = RECORD_BYTES) -> int:
        """Write one record with the beginning of ``data``; return how many bytes that are, 0 if the ring is full."""
        size = len(self._memory)
        if self._at == size - LINE_BYTES and self.used <= size - LINE_BYTES:
            self._record(0)
        room = min(size - self.used, size - self._at) - LINE_BYTES
        n = min(len(data), room, most, RECORD_BYTES)
        if n <= 0:
            return 0
        body = self._at + LINE_BYTES
        copy_bytes(self._memory[body : body + n], data[:n])
        self._record(n)
        return n

    def announce(self) -> int:
        """Return what the reader has yet to be told of, in bytes of the ring; it counts as told from now on."""
        n, self._unannounced = self._unannounced, 0
        return n

    def freed(self, n: int) -> None:
        """Take back what the reader has read.

        Raises:
            RemoteProtocolError: That much is not out.
        """
        if n % LINE_BYTES or n > self.used - self._unannounced:
            raise RemoteProtocolError(f"peer gives {n} bytes of a ring back, it has {self.used}")
        self.used -= n

    # The body is there: its length makes it a record.
    def _record(self, n: int) -> None:
        _LENGTH.pack_into(self._memory, self._at, n)
        total = LINE_BYTES + _lines(n)
        self._at = (self._at + total) % len(self._memory)
        self.used += total
        self._unannounced += total


class RingReader:
    """The reading end.

    Args:
        memory: The whole ring.
    """

    __slots__ = ("_at", "_held", "_memory", "_open", "_record", "_spent", "_unread")

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._at = 0
        # What is left of the record that is being read, and how much of the ring it takes.
        self._record = memory[:0]
        self._open = 0
        # Bytes announced: records to come, records read, and all that are not given back.
        self._unread = 0
        self._spent = 0
        self._held = 0

    def came(self, n: int) -> None:
        """Take note of records that were announced.

        Raises:
            RemoteProtocolError: The ring has no place for so many.
        """
        if n % LINE_BYTES or n > len(self._memory) - self._held:
            raise RemoteProtocolError(
                f"peer announces {n} bytes in a ring of {len(self._memory)}, {self._held} of it used"
            )
        self._unread += n
        self._held += n

    def view(self) -> memoryview:
        """Return the next bytes, in place, until they are taken; empty if there are none.

        Raises:
            RemoteProtocolError: A record has a length that cannot be.
        """
        while not self._record and self._unread:
            self._next()
        return self._record

    def took(self, n: int) -> None:
        """Take note that the first ``n`` bytes of the view are not needed any more."""
        self._record = self._record[n:]
        if not self._record:
            self._close()

    def give_back(self, *, at_least: int = 1) -> int:
        """Return how much of the ring the writer may be given back, 0 if less than ``at_least``; it counts as given."""
        if self._spent < at_least:
            return 0
        n, self._spent = self._spent, 0
        self._held -= n
        return n

    def _next(self) -> None:
        # The peer may change it under our hands: it is read once, and checked.
        (n,) = _LENGTH.unpack_from(self._memory, self._at)
        body = self._at + LINE_BYTES
        if n > min(self._unread - LINE_BYTES, len(self._memory) - body):
            raise RemoteProtocolError(
                f"record of {n} bytes in a ring of {len(self._memory)}, at {self._at}, {self._unread} announced"
            )
        self._open = LINE_BYTES + _lines(n)
        self._unread -= self._open
        self._at = (self._at + self._open) % len(self._memory)
        self._record = self._memory[body : body + n]
        if not n:
            # Only what is too small for a record is left empty: a ring full of nothing would hold the loop up.
            if body < len(self._memory):
                raise RemoteProtocolError(f"empty record at {body - LINE_BYTES}, inside a ring")
            self._close()

    def _close(self) -> None:
        self._spent += self._open
        self._open = 0
