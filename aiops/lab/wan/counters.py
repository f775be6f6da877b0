"""What the emulator counted, as it says it in one line of JSON."""

from __future__ import annotations

import msgspec

from aiops.lab.wan.link import LinkSpec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What the emulator is told first.

    Attributes:
        owner: Process id of who holds the network namespaces.
        server: The owner's descriptor of the server's namespace.
        workers: Its descriptors of the workers' namespaces, in their order.
        links: What their links are like; none to guard the namespaces only, where the kernel emulates.
        seed: Of losses and jitter.
    """

    owner: int
    server: int
    workers: list[int]
    links: list[LinkSpec]
    seed: int


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What it answers when every interface is up.

    Attributes:
        priority: Its real-time priority; 0 where the system denies one, and it is late when the machine is busy.
    """

    priority: int


class WayCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What one way of a link carried.

    Attributes:
        packets: IP packets delivered; a train of packets that the kernel hands over as one counts as one.
        n_bytes: Their bytes, with one header for a train.
        dropped: Packets that found the queue full.
        lost: Packets lost on the line, by chance; then there are no trains.
        late_s: How much later than they were due packets were delivered, on average.
        late_p99_s: All but a hundredth of them were not later than that; in steps of 16 us.
    """

    packets: int
    n_bytes: int
    dropped: int
    lost: int
    late_s: float
    late_p99_s: float


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What the emulator counted since it was started.

    Attributes:
        up: By worker: to the server.
        down: By worker: from the server.
        cpu_s: Processor time it used.
        elapsed_s: How long it has run.
    """

    up: list[WayCounters]
    down: list[WayCounters]
    cpu_s: float
    elapsed_s: float

    @property
    def packets(self) -> int:
        """All packets delivered."""
        return sum(way.packets for way in [*self.up, *self.down])

    @property
    def late_s(self) -> float:
        """Mean lateness over all packets."""
        total = sum(way.packets * way.late_s for way in [*self.up, *self.down])
        return total / self.packets if self.packets else 0.0

    @property
    def late_p99_s(self) -> float:
        """The largest of the ways' 99th percentiles."""
        return max((way.late_p99_s for way in [*self.up, *self.down]), default=0.0)


class Lateness:
    """Gathers how late packets are, in ns, as counts: cheap enough to do for every one."""

    # 2^14 ns is 16 us; what is later than 64 ms is counted as that.
    SHIFT = 14
    BINS = 4096

    __slots__ = ("counts", "n_bytes", "packets", "total")

    def __init__(self) -> None:
        self.counts = [0] * self.BINS
        self.packets = self.n_bytes = self.total = 0

    def add(self, late: int, n_bytes: int) -> None:
        """Count a packet that was delivered ``late`` ns after it was due."""
        self.packets += 1
        self.n_bytes += n_bytes
        self.total += late
        self.counts[min(late >> self.SHIFT, self.BINS - 1)] += 1

    def percentile_s(self, share: float) -> float:
        """Return how late at most the given share of the packets was, in seconds."""
        left = share * self.packets
        for index, count in enumerate(self.counts):
            left -= count
            if count and left <= 0:
                return float((index + 1) << self.SHIFT) / 1e9
        return 0.0
