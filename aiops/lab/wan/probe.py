"""Measures the links of a WAN with ordinary TCP connections, all links at once, as a run will use them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from aiops.errors import DeadlineExceeded
from aiops.lab.wan.base import Wan
from aiops.lab.wan.gate import (
    LinkCheck,
    Verdict,
    check_lateness,
    check_link,
    late_between,
    line_rate,
)
from aiops.lab.wan.link import LinkSpec
from aiops.transport.congestion import choose, in_force

# A sender that takes no loss for a sign of congestion measures the line and not itself.
PROBE = "bbr"

# How long a transfer takes. Half of it is slow start and getting over what that has overfilled: what is lost in it
# holds up what came behind, for 18 round trips of 50 ms at 100 Mbit/s.
TRANSFER_S = 2.0
ROUND_TRIPS = 60

PINGS = 15
CHUNK = bytes(64 * 1024)
READ_BYTES = 256 * 1024

# A connection whose first packets are lost is made after 1, 3 or 7 s; a lost ping is sent again after 0.2 s and more.
CONNECTING_S = 15.0
PINGING_S = 60.0


@dataclass(frozen=True, slots=True)
class Probe:
    """A connection over one link, by its two ends."""

    worker: int
    near: socket.socket
    far: socket.socket


async def examine(wan: Wan, *, transfer_s: float = TRANSFER_S) -> Verdict:
    """Set every link to what it begins with, measure it and judge it; changes come after the next `Wan.begin` only.

    Takes about twice ``transfer_s`` and a second; twice that where the run's congestion control is not the one that
    links are measured with.

    Args:
        wan: Its links must be idle.
        transfer_s: How long a transfer takes at least; shorter is less exact.

    Raises:
        DeadlineExceeded: A link lets nothing through.
    """
    await wan.reset()
    specs = [link.at(0.0) for link in wan.links]
    before = await wan.counters()
    congestion = None if wan.kind == "relay" else PROBE
    probed_with, links = await measure(wan, specs, congestion=congestion, transfer_s=transfer_s)
    own = list[LinkCheck]()
    after = await wan.counters()
    if wan.congestion != probed_with and wan.kind != "relay":
        _, own = await measure(wan, specs, congestion=None, transfer_s=transfer_s)
    reasons = [
        reason for spec, link in zip(specs, links, strict=True) for reason in check_link(spec, link)
    ]
    late_s = cores = None
    if before is not None and after is not None:
        late_s = late_between(before, after)
        cores = (after.cpu_s - before.cpu_s) / (after.elapsed_s - before.elapsed_s)
        if reason := check_lateness(late_s):
            reasons.append(reason)
    return Verdict(
        label=wan.label,
        congestion=wan.congestion,
        probed_with=probed_with,
        links=links,
        own=own,
        late_s=late_s,
        cores=cores,
        reasons=reasons,
    )


async def measure(
    wan: Wan, specs: Sequence[LinkSpec], *, congestion: str | None, transfer_s: float
) -> tuple[str, list[LinkCheck]]:
    """Measure every link; return the congestion control that did it, and what was measured.

    Args:
        wan: Its links must be idle.
        specs: What they should be like, which decides how long it takes at least.
        congestion: The congestion control to measure with, where the kernel has it; None for the run's own.
        transfer_s: How long a transfer takes at least.

    Raises:
        DeadlineExceeded: A link lets nothing through.
    """
    took_s = max(transfer_s, ROUND_TRIPS * max(spec.round_trip_s() for spec in specs))
    async with _probes(wan, congestion) as probes:
        used = in_force(probes[0].near)
        # In lockstep they would wait for each other in this loop.
        gap_s = max(spec.round_trip_s() for spec in specs) / len(specs)
        trips = await asyncio.gather(*(_ping(p, after_s=p.worker * gap_s) for p in probes))
        up = await asyncio.gather(*(_carry(p.near, p.far, took_s) for p in probes))
    # What a transfer has left on its way ends with its connection.
    async with _probes(wan, congestion) as probes:
        down = await asyncio.gather(*(_carry(p.far, p.near, took_s) for p in probes))
    return used, [
        LinkCheck(worker=worker, up_bits_s=up_bits_s, down_bits_s=down_bits_s, round_trip_s=trip_s)
        for worker, (up_bits_s, down_bits_s, trip_s) in enumerate(zip(up, down, trips, strict=True))
    ]


@contextlib.asynccontextmanager
async def _probes(wan: Wan, congestion: str | None) -> AsyncIterator[list[Probe]]:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(wan.socket("server"))
        _prepare(door, congestion)
        door.bind((wan.server_host, 0))
        door.listen(len(wan.links))
        port = door.getsockname()[1]
        probes = []
        for worker in range(len(wan.links)):
            near = stack.enter_context(wan.socket(worker))
            _prepare(near, congestion)
            with _deadline("connecting", worker, CONNECTING_S):
                async with asyncio.timeout(CONNECTING_S):
                    await loop.sock_connect(near, await wan.address_for(worker, port))
                    far, _ = await loop.sock_accept(door)
            stack.enter_context(far)
            far.setblocking(False)
            _prepare(far, congestion)
            probes.append(Probe(worker, near, far))
        yield probes


def _prepare(sock: socket.socket, congestion: str | None) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # What is on its way when a transfer is cut short ends at once.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if congestion is not None:
        choose(sock, congestion)


@contextlib.contextmanager
def _deadline(what: str, worker: int, waited_s: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise DeadlineExceeded(what, peer=f"worker {worker}", waited_s=waited_s) from None


async def _ping(probe: Probe, *, after_s: float) -> float:
    await asyncio.sleep(after_s)
    # uvloop's clock counts in milliseconds.
    loop, clock = asyncio.get_running_loop(), time.perf_counter
    trips = []
    with _deadline("a round trip", probe.worker, PINGING_S):
        async with asyncio.timeout(PINGING_S):
            for _ in range(PINGS):
                start = clock()
                await loop.sock_sendall(probe.near, b"?")
                await loop.sock_recv(probe.far, 1)
                await loop.sock_sendall(probe.far, b"!")
                await loop.sock_recv(probe.near, 1)
                trips.append(clock() - start)
    # What is above the smallest is somebody's lateness, which is judged by itself.
    return min(trips)


# Send for so long, and return the rate of the second half.
async def _carry(source: socket.socket, sink: socket.socket, took_s: float) -> float:
    arrivals = list[tuple[float, int]]()
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(_send(source))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(took_s):
                await _receive(sink, arrivals)
        sending.cancel()
    return line_rate(arrivals)


async def _send(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await loop.sock_sendall(sock, CHUNK)


async def _receive(sock: socket.socket, arrivals: list[tuple[float, int]]) -> None:
    loop = asyncio.get_running_loop()
    buffer, total = bytearray(READ_BYTES), 0
    while n_bytes := await loop.sock_recv_into(sock, buffer):
        total += n_bytes
        arrivals.append((time.perf_counter(), total))
