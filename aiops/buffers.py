"""Pooled memory and loans: every byte in flight has an owner.

A :class:`Block` is memory that somebody may still be reading; it goes back to its pool when the last loan ends. What
lives here knows no frame, no tensor name and no event loop. Not thread-safe: a pool belongs to one loop thread.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A cache line and the widest vector register: kernels never straddle at the start of a block.
ALIGN_BYTES = 64

# Blocks are cut in pages so that buckets of nearly the same size share free blocks.
PAGE_BYTES = 4096


class Block:
    """A piece of pooled memory with a count of its loans.

    A block starts with one loan, the taker's. ``lend`` adds one, ``release`` ends one; with the last release the
    memory returns to the pool and must not be touched any more.

    Attributes:
        view: The memory as a writable memoryview of format 'B', of exactly the size that was asked for.
    """

    __slots__ = ("_loans", "_memory", "_pool", "view")

    def __init__(self, memory: memoryview, pool: BufferPool, size_bytes: int) -> None:
        self._memory = memory
        self._pool = pool
        self._loans = 1
        self.view = memory[:size_bytes]

    def lend(self) -> Block:
        """Add a loan and return the block itself."""
        if self._loans == 0:
            raise RuntimeError("block was released, it cannot be lent")
        self._loans += 1
        return self

    def release(self) -> None:
        """End one loan; the last one gives the memory back to the pool."""
        if self._loans == 0:
            raise RuntimeError("block was released more often than it was lent")
        self._loans -= 1
        if self._loans == 0:
            self._pool._give_back(self)

    def float32(self) -> NDArray[np.float32]:
        """Return the memory as float32, shape (bytes / 4,); valid while a loan is held."""
        return np.frombuffer(self.view, np.float32)

    def __len__(self) -> int:
        """Return the size in bytes."""
        return len(self.view)


class BufferPool:
    """Hands blocks out and keeps them for reuse.

    Args:
        keep_bytes: How much free memory is kept for reuse; what comes back beyond it is given to the system.

    Attributes:
        outstanding: Blocks that are out on loan.
        outstanding_bytes: What they hold, in whole pages.
        peak_bytes: The most that was ever out at once, in whole pages.
    """

    __slots__ = (
        "_free",
        "_free_bytes",
        "_keep_bytes",
        "outstanding",
        "outstanding_bytes",
        "peak_bytes",
    )

    def __init__(self, *, keep_bytes: int = 1 << 30) -> None:
        self._keep_bytes = keep_bytes
        self._free: dict[int, list[memoryview]] = {}
        self._free_bytes = 0
        self.outstanding = 0
        self.outstanding_bytes = 0
        self.peak_bytes = 0

    def take(self, size_bytes: int) -> Block:
        """Return a block of ``size_bytes`` bytes of undefined content, aligned to 64 bytes, with one loan.

        Raises:
            MemoryError: The system has no such memory; nothing is taken.
        """
        assert size_bytes >= 0
        # Even an empty block fills a page, so that what is kept for reuse is bounded by its bytes.
        capacity = (-(-size_bytes // PAGE_BYTES) or 1) * PAGE_BYTES
        spare = self._free.get(capacity)
        if spare:
            memory = spare.pop()
            self._free_bytes -= capacity
        else:
            memory = _aligned(capacity)
        self.outstanding += 1
        self.outstanding_bytes += capacity
        if self.outstanding_bytes > self.peak_bytes:
            self.peak_bytes = self.outstanding_bytes
        return Block(memory, self, size_bytes)

    def _give_back(self, block: Block) -> None:
        memory = block._memory
        capacity = len(memory)
        self.outstanding -= 1
        self.outstanding_bytes -= capacity
        if self._free_bytes + capacity <= self._keep_bytes:
            self._free.setdefault(capacity, []).append(memory)
            self._free_bytes += capacity


def _aligned(size_bytes: int) -> memoryview:
    try:
        raw = np.empty(size_bytes + ALIGN_BYTES, np.uint8)
    except ValueError:
        # What no address space can hold is a ValueError to numpy.
        raise MemoryError(f"no system has a block of {size_bytes} bytes") from None
    skip = -raw.ctypes.data % ALIGN_BYTES
    return raw[skip : skip + size_bytes].data
