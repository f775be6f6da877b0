"""The links between TUN interfaces: one process carries the packets of all of them, no sooner than they are due.

One loop of system calls: what is due is written, then what has come is read and queued, then it sleeps until either
happens. It knows nothing of processes and namespaces; `aiops.lab.wan.carrier` is its process.
"""

from __future__ import annotations

import heapq
import os
import select
import time
from collections.abc import Callable, Sequence

from aiops.lab.wan.address import FIRST_OCTET
from aiops.lab.wan.counters import Counters, Lateness, WayCounters
from aiops.lab.wan.direction import Direction
from aiops.lab.wan.link import WAYS, LinkSpec
from aiops.lab.wan.tun import HEADER_BYTES, LARGEST_BYTES, line_bytes

# Packets read of one interface before others have their turn; deliveries wait meanwhile, for 0.1 ms at most.
READS = 16

# How long an interface that is down is left alone: asked at once it would answer EIO for ever.
DOWN_NS = 20_000_000

IPV4 = 0x4
DESTINATION = HEADER_BYTES + 19  # where the last octet of an IPv4 packet's destination stands

# What the heap's entries mean besides a direction's number.
CHANGE, INTERFACE = -1, -2


class Emulator:
    """Carries packets between the server's interface and the workers'.

    Args:
        tuns: Descriptors that do not block: of the server's TUN first, then of each worker's; none if there is nothing
            to carry.
        links: What each worker's link is like.
        seed: Of losses and jitter.
    """

    def __init__(self, tuns: Sequence[int], links: Sequence[LinkSpec], *, seed: int) -> None:
        self._links = links
        server, workers = tuns[:1], tuns[1:]
        self._directions = [
            Direction(link, way, seed=f"{seed}/{index}/{way}")
            for index, link in enumerate(links)
            for way in WAYS
        ]
        # Of directions 2k and 2k + 1, worker k's way up and down.
        self._sinks = [fd for worker in workers for fd in (*server, worker)]
        self._late = [Lateness() for _ in self._directions]
        self._up = {worker: 2 * index for index, worker in enumerate(workers)}
        self._down = {FIRST_OCTET + index: 2 * index + 1 for index in range(len(workers))}
        # When there is what to do next, and what: a direction's number, or one of the meanings above.
        self._heap: list[tuple[int, int]] = []
        self._changes: list[tuple[int, int, LinkSpec]] = []
        self._resting: set[int] = set()
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._start, self._cpu = time.monotonic(), time.process_time()
        for fd in tuns:
            self._poll.register(fd, select.EPOLLIN)

    def listen(self, fd: int, handler: Callable[[], None]) -> None:
        """Have a handler called when there is something to read; what it raises ends :meth:`run`."""
        self._handlers[fd] = handler
        self._poll.register(fd, select.EPOLLIN)

    def begin(self) -> None:
        """Set every link to what it begins with, and its changes to come from now on."""
        self._schedule([link.states() for link in self._links])

    def reset(self) -> None:
        """Set every link to what it begins with, and let no changes come."""
        self._schedule([link.states()[:1] for link in self._links])

    def run(self) -> None:
        """Carry packets until a handler raises."""
        now, heap, handlers = time.monotonic_ns, self._heap, self._handlers
        # An epoll object waits for whole milliseconds; select for it waits for microseconds.
        poll, waiting = self._poll.poll, [self._poll.fileno()]
        while True:
            if heap and heap[0][0] <= now():
                self._deliver()
            events = poll(0)
            if not events:
                left_s = (heap[0][0] - now()) / 1e9 if heap else None
                if left_s is None or left_s > 0:
                    select.select(waiting, (), (), left_s)
                continue
            for fd, _ in events:
                if fd in handlers:
                    handlers[fd]()
                else:
                    self._take(fd)

    def counters(self) -> Counters:
        """Return what was counted so far."""
        ways = [
            WayCounters(
                packets=late.packets,
                n_bytes=late.n_bytes,
                dropped=direction.dropped,
                lost=direction.lost,
                late_s=late.total / late.packets / 1e9 if late.packets else 0.0,
                late_p99_s=late.percentile_s(0.99),
            )
            for direction, late in zip(self._directions, self._late, strict=True)
        ]
        return Counters(
            up=ways[0::2],
            down=ways[1::2],
            cpu_s=time.process_time() - self._cpu,
            elapsed_s=time.monotonic() - self._start,
        )

    def _schedule(self, links: Sequence[Sequence[tuple[float, LinkSpec]]]) -> None:
        now = time.monotonic_ns()
        states = [
            (now + int(at_s * 1e9), index, state)
            for index, link in enumerate(links)
            for at_s, state in link
        ]
        # Latest first: the next one is taken from the end.
        self._changes = sorted(states, key=lambda entry: entry[:2], reverse=True)
        self._change(now)

    # Write everything that is due, the earliest direction first.
    def _deliver(self) -> None:
        now, heap, write = time.monotonic_ns, self._heap, os.write
        t = now()
        while heap and heap[0][0] <= t:
            index = heap[0][1]
            if index < 0:
                heapq.heappop(heap)
                self._act(index, t)
                continue
            direction, sink = self._directions[index], self._sinks[index]
            flying, late = direction.flying, self._late[index]
            while flying and flying[0][0] <= t:
                due, packet = flying.popleft()
                try:
                    write(sink, packet)
                except OSError:
                    # The interface at the other end is down.
                    direction.dropped += 1
                else:
                    t = now()
                    late.add(t - due, len(packet) - HEADER_BYTES)
            if flying:
                heapq.heapreplace(heap, (flying[0][0], index))
            else:
                heapq.heappop(heap)

    # Read what an interface has, and queue it.
    def _take(self, fd: int) -> None:
        read, route = os.read, self._up.get(fd)
        index = route
        t = time.monotonic_ns()
        try:
            for _ in range(READS):
                packet = read(fd, LARGEST_BYTES)
                if route is None:
                    index = self._down.get(packet[DESTINATION])
                if index is None or packet[HEADER_BYTES] >> 4 != IPV4:
                    continue
                direction = self._directions[index]
                due = direction.enqueue(line_bytes(packet), t)
                if due >= 0:
                    if not direction.flying:
                        heapq.heappush(self._heap, (due, index))
                    direction.flying.append((due, packet))
        except (BlockingIOError, IndexError):
            pass  # nothing more, or something shorter than a header
        except OSError:
            self._rest(fd)

    def _rest(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._resting.add(fd)
        heapq.heappush(self._heap, (time.monotonic_ns() + DOWN_NS, INTERFACE))

    def _act(self, what: int, now: int) -> None:
        if what == CHANGE:
            self._change(now)
        else:
            for fd in self._resting:
                self._poll.register(fd, select.EPOLLIN)
            self._resting.clear()

    def _change(self, now: int) -> None:
        while self._changes and self._changes[-1][0] <= now:
            _, link, spec = self._changes.pop()
            for offset, _ in enumerate(WAYS):
                self._directions[2 * link + offset].change(spec, now)
        # What flies may be due at other times.
        entries = [entry for entry in self._heap if entry[1] == INTERFACE]
        entries += [
            (direction.flying[0][0], index)
            for index, direction in enumerate(self._directions)
            if direction.flying
        ]
        if self._changes:
            entries.append((self._changes[-1][0], CHANGE))
        self._heap[:] = entries
        heapq.heapify(self._heap)
