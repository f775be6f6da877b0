"""One way of a link, sans-IO: a queue that drops its tail, a line of a rate, and a delay.

Time comes in, as integer nanoseconds of any clock; chance comes from a seed. Who calls keeps the packets.
"""

from __future__ import annotations

import random
from collections import deque

from aiops.lab.wan.link import ETHERNET_BYTES, LinkSpec, Way

# What `enqueue` answers for a packet that never arrives: the queue was full, or it was lost on the line.
DROPPED, LOST = -1, -2

NS = 1e9


class Direction:
    """What happens to the packets of one way.

    Args:
        spec: What the link is like; its changes are left to the caller.
        way: Which way of it this is.
        seed: Of losses and jitter.

    Attributes:
        flying: What is due when, in ns, in order: the caller appends what was accepted and takes what is due.
        dropped: Packets that found the queue full.
        lost: Packets lost on the line.
    """

    __slots__ = (
        "_chance", "_delay", "_free", "_jitter", "_last", "_loss", "_ns_per_byte", "_queue_ns", "_way", "dropped",
        "flying", "lost",
    )  # fmt: skip

    def __init__(self, spec: LinkSpec, way: Way, *, seed: str) -> None:
        self.flying: deque[tuple[int, bytes]] = deque()
        self.dropped = self.lost = 0
        self._way = way
        self._chance = random.Random(seed)
        self._free = self._last = 0
        self._set(spec)

    def enqueue(self, n_bytes: int, now: int) -> int:
        """Take a packet in.

        A packet is lost behind the line, so it has used its time there.

        Args:
            n_bytes: Size of the IP packet.
            now: When it comes, in ns; never earlier than the one before.

        Returns:
            When it arrives at the other end, in ns, never earlier than the one before; or DROPPED; or LOST.
        """
        busy = self._free - now
        line = int((n_bytes + ETHERNET_BYTES) * self._ns_per_byte)
        if busy <= 0:
            self._free = due = now + line
        elif busy + line > self._queue_ns:
            self.dropped += 1
            return DROPPED
        else:
            self._free = due = self._free + line
        if self._loss and self._chance.random() < self._loss:
            self.lost += 1
            return LOST
        due += self._delay
        if self._jitter:
            due += int(self._jitter * (2 * self._chance.random() - 1))
        # A shorter delay, or luck, would let it overtake.
        if due < self._last:
            return self._last
        self._last = due
        return due

    def change(self, spec: LinkSpec, now: int) -> None:
        """Take other numbers from now on.

        What waits leaves the line at the new rate and then takes the new delay; what has left the line arrives as it
        would have.

        Args:
            spec: What the link is like now.
            now: In ns.
        """
        rate, delay = self._ns_per_byte, self._delay
        self._set(spec)
        # The line is busy without a gap until what waits has left it, so all of that stretches alike.
        stretch = self._ns_per_byte / rate
        self._free = now + int(max(0, self._free - now) * stretch)
        moved: list[tuple[int, bytes]] = []
        last = 0
        for due, packet in self.flying:
            waits = due - delay - now
            if waits > 0:
                due = now + int(waits * stretch) + self._delay
            last = max(last, due)
            moved.append((last, packet))
        self.flying.clear()
        self.flying.extend(moved)
        self._last = last

    def _set(self, spec: LinkSpec) -> None:
        self._ns_per_byte = 8 * NS / spec.rate(self._way)
        # Room in the queue, as the time the line takes to send that much.
        self._queue_ns = int(spec.queue(self._way) * self._ns_per_byte)
        self._delay = int(spec.delay_s * NS)
        self._jitter = spec.jitter_s * NS
        self._loss = spec.loss
