"""The door that every measured library has, and the driver behind it.

A peer is one server process and some worker processes. In a round each worker pushes ``n_bytes`` of float32, the server
sums what all pushed, and each worker gets the sum. Worker r pushes the value r + 1, so that the first sum tells whether
the library did the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.metadata
import importlib.util
import itertools
import signal
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.errors import AiopsError
from aiops.sync.thread import loop_factory

Round: TypeAlias = Callable[[], float]
"""One push, sum and pull; returns one value of the sum."""

AsyncRound: TypeAlias = Callable[[], Awaitable[float]]
Connected: TypeAlias = AbstractContextManager[Round] | AbstractAsyncContextManager[AsyncRound]

HOST = "127.0.0.1"
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Skipped(AiopsError):
    """A peer cannot run here; the message says what is missing."""


class WrongSum(AiopsError):
    """A peer's first round did not return what its workers pushed."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What one set of processes is started for.

    Attributes:
        n_bytes: What one worker pushes in a round, a multiple of 4.
        n_workers: Worker processes.
        layout: How ours cuts those bytes into tensors: "one", "resnet50", or a number of equal ones.
        one_way: Only the way up, answered by one byte; for transports.
        merging: Whether our transport's server merges what comes while it comes, as ours does; for one worker.
        congestion: TCP congestion control that C sockets and our transport ask for; "-" leaves it to them.
        lanes: Threads of our transport for bulk; without one everything happens on the loop.
        segment_bytes: What a lane sends at a time; 0 leaves it.
        scratch: Directory for what is built for this run.
    """

    n_bytes: int
    n_workers: int = 1
    layout: str = "one"
    one_way: bool = False
    merging: bool = False
    congestion: str = "-"
    lanes: int = 1
    segment_bytes: int = 0
    scratch: str = ""

    @property
    def n_values(self) -> int:
        """float32 values that one worker pushes."""
        return self.n_bytes // 4

    @property
    def total(self) -> float:
        """The sum of what all workers push, in every element."""
        return self.n_workers * (self.n_workers + 1) / 2

    def update(self, rank: int) -> NDArray[np.float32]:
        """Return what worker ``rank`` pushes."""
        return np.full(self.n_values, rank + 1, np.float32)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured in one turn.

    Attributes:
        median_s: Seconds per round, the median.
        best_s: The fastest round.
        start_s: When the first round began, by the clock that all processes of a machine share.
        end_s: When the last one was over.
    """

    median_s: float
    best_s: float
    start_s: float = 0.0
    end_s: float = 0.0


class Peer(Protocol):
    """One library, seen from the benchmark."""

    @property
    def name(self) -> str:
        """What it is called in tables."""

    @property
    def spins(self) -> bool:
        """Whether its processes poll while they have nothing to do, so that they must be stopped between turns."""

    def versions(self) -> str:
        """Return what is measured, with its version.

        Raises:
            Skipped: It is not installed.
        """

    def serve(self, case: Case) -> None:
        """Announce an address and serve until killed."""

    def connect(self, case: Case, address: str, rank: int) -> Connected:
        """Return the way to a round for worker ``rank``, to be entered."""


def package(name: str, *, module: str = "") -> str:
    """Return a package's name and version.

    Raises:
        Skipped: It is not installed, or its module is not.
    """
    try:
        found = importlib.util.find_spec(module or name) is not None
        version = importlib.metadata.version(name)
    except (ImportError, ValueError):
        found, version = False, ""
    if not found:
        raise Skipped(f"{name} is not installed")
    return f"{name} {version}"


def announce(address: str) -> None:
    """Tell whoever measures where this server is."""
    print(address, flush=True)  # noqa: T201 -- the pipe to the parent


def free_port() -> str:
    """Return a port that nobody has now, for libraries that must be told one."""
    with socket.create_server((HOST, 0)) as free:
        return str(free.getsockname()[1])


def end_with_parent() -> None:
    """See to it that this process is gone when its parent is, where the system offers that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def work(peer: Peer, case: Case, address: str, rank: int) -> None:
    """Be worker ``rank``: connect, say "ready", then do as many rounds as each line on stdin asks for."""
    connected = peer.connect(case, address, rank)
    if isinstance(connected, AbstractAsyncContextManager):
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_work_async(connected, case))
        return
    with connected as do_round:
        _check(do_round(), case)
        _say("ready")
        for line in sys.stdin:
            ends = [time.monotonic()]
            for _ in range(int(line)):
                do_round()
                ends.append(time.monotonic())
            _say(_sample(ends))


async def _work_async(connected: AbstractAsyncContextManager[AsyncRound], case: Case) -> None:
    async with connected as do_round:
        _check(await do_round(), case)
        _say("ready")
        # The loop goes on while nobody asks: it may have heartbeats to send.
        while line := await asyncio.to_thread(sys.stdin.readline):
            ends = [time.monotonic()]
            for _ in range(int(line)):
                await do_round()
                ends.append(time.monotonic())
            _say(_sample(ends))


def _check(value: float, case: Case) -> None:
    if value != case.total:
        raise WrongSum(f"the first round gave {value:g}, the workers pushed {case.total:g}")


# From when the first round began and when each was over.
def _sample(ends: list[float]) -> Sample:
    times = [end - start for start, end in itertools.pairwise(ends)]
    return Sample(
        median_s=statistics.median(times), best_s=min(times), start_s=ends[0], end_s=ends[-1]
    )


def _say(message: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def pieces(size: int, largest: int) -> Iterator[slice]:
    """Cut ``size`` into slices of at most ``largest``."""
    return (slice(at, min(at + largest, size)) for at in range(0, size, largest))
