"""Cutting frames into writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aiops.transport.base import Outgoing
from aiops.wire.reader import ALIGN_BYTES

# One flush per segment keeps the stock loop from moving its whole backlog at each partial send, and bounds what is
# lent to the transport at a time.
SEGMENT_BYTES = 256 * 1024

# What is copied to leave together with its header in one write: one system call instead of two.
STAGED_BYTES = 64 * 1024


def segments(
    frames: Sequence[Outgoing], segment_bytes: int
) -> Iterator[tuple[bytes | memoryview, bool]]:
    """Yield each write, and whether a frame ends with it.

    Small frames are joined; large ones leave with their header and up to 64 KiB in front, then in views of the caller's
    memory.

    Args:
        frames: What is sent.
        segment_bytes: How large a view is at most.
    """
    stage = bytearray()
    for head, views in frames:
        size = len(head) + sum(map(len, views))
        if stage and len(stage) + size > STAGED_BYTES:
            yield bytes(stage), True
            stage = bytearray()
        if size > STAGED_BYTES:
            yield from _large(head, views, segment_bytes)
            continue
        stage += head
        for view in views:
            stage += view
    if stage:
        yield bytes(stage), True


def _large(
    head: bytes, views: Sequence[memoryview], segment_bytes: int
) -> Iterator[tuple[bytes | memoryview, bool]]:
    stage = bytearray()
    rest: list[memoryview] = []
    for view in (memoryview(head), *views):
        room = STAGED_BYTES - len(stage)
        if len(view) > room:
            # What follows is received where the front ends: see there.
            room -= room % ALIGN_BYTES
        stage += view[:room]
        rest += [view[at : at + segment_bytes] for at in range(room, len(view), segment_bytes)]
    yield bytes(stage), False
    for piece in rest[:-1]:
        yield piece, False
    yield rest[-1], True
