"""Rounds of ours and of other libraries: worker processes push, a server process sums, the workers get the sum.

Once in a network of its own where everybody has the same congestion control, and once as it comes out of the box.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiops.bench.campaign import Contender
from aiops.bench.machine import congestion
from aiops.bench.network import DEFAULT, SAME, possible
from aiops.bench.peers.base import Case
from aiops.bench.peers.table import peer
from aiops.bench.run import Bench
from aiops.bench.suites import goals

SUITE = "peers"
SIZES = {"100 MB": 100_000_000, "16 MB": 16_000_000, "1 MB": 1_000_000, "4 KB": 4096}
WORKERS = (1, 2, 4)
KEYS = (
    "ours", "readme", "sockets", "loop", "gloo", "zmq", "rpc", "grpc-stream", "grpc-unary", "flower", "streams",
    "hivemind",
)  # fmt: skip

# Where bytes matter most: hivemind's peers take 20 s to find each other, and what a copy costs shows there.
SELDOM, SELDOM_CASES = {"hivemind", "readme"}, {("100 MB", 1, SAME), ("16 MB", 1, SAME)}
QUICK_LEAVES_OUT = {"hivemind", "flower", "rpc"}

# Small enough for one event loop to be the better C server.
SMALL_BYTES = 65_536


async def run(bench: Bench) -> None:
    """Measure every size with every number of workers, then the large ones out of the box."""
    if bench.quick:
        await compare(bench, "16 MB", 1, SAME, passes=3)
        await compare(bench, "4 KB", 1, SAME, passes=3)
        return
    for size in SIZES:
        for n_workers in WORKERS:
            await compare(bench, size, n_workers, SAME, passes=7)
    if possible(SAME) and congestion() != SAME:
        for size in ("100 MB", "16 MB"):
            await compare(bench, size, 1, DEFAULT, passes=7)


async def compare(bench: Bench, size: str, n_workers: int, network: str, *, passes: int) -> None:
    """Measure all peers that are installed in one case."""
    case = bench.case(SIZES[size], n_workers)
    often = (size, n_workers, network) in SELDOM_CASES
    keys = [key for key in KEYS if often or key not in SELDOM]
    if case.n_bytes < SMALL_BYTES:
        keys.insert(keys.index("sockets") + 1, "epoll")
    if bench.quick:
        keys = [key for key in keys if key not in QUICK_LEAVES_OUT]
    name = f"{size}, {workers(n_workers)}"
    taking_part = contenders(bench.available(SUITE, keys), size, case, network)
    await bench.compete(SUITE, name, taking_part, passes=passes, bound=peer("sockets").name)


def contenders(keys: Iterable[str], size: str, case: Case, network: str) -> list[Contender]:
    """Return the peers with the goals that their rows have."""
    asked = (size, case.n_workers)
    return [
        Contender(
            peer(key).name, key, case, network,
            goal=goals.of_round(*asked, key, network), thrifty=goals.thrifty(*asked, key, network),
        )
        for key in keys
    ]  # fmt: skip


def workers(count: int) -> str:
    """Return a number of workers in words."""
    return f"{count} worker{'s' if count > 1 else ''}"
