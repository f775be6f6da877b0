"""The emulator's process: ``python -m aiops.lab.wan.carrier``, told what to do in lines of JSON.

It hears a `Job`, answers `Ready`, and from then on hears "begin", "reset", and "counters", which it answers with
`Counters`; so it does at its end. It ends with its stdin, and takes with it whoever is left in the namespaces: a parent
that has been killed can end nobody any more.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
from types import FrameType

import msgspec

from aiops.lab.wan.counters import Job, Ready
from aiops.lab.wan.emulator import Emulator
from aiops.lab.wan.namespace import end_all
from aiops.lab.wan.tun import open_tun

# Above everything that is measured, beneath the kernel's own threads. Under four busy processes packets are 0.05-0.1 ms
# late with it, and 3.5 ms without.
PRIORITY = 50

STDIN = 0
_PR_SET_TIMERSLACK = 29


class _End(BaseException):
    """Raised where a signal or the end of stdin finds the loop."""


class Commands:
    """What the owner says, line by line.

    Args:
        emulator: Who does it.
    """

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._rest = b""

    def hear(self) -> None:
        """Read what there is and do it."""
        data = os.read(STDIN, 65536)
        if not data:
            raise _End
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line == b"begin":
                self._emulator.begin()
            elif line == b"reset":
                self._emulator.reset()
            elif line == b"counters":
                say(self._emulator.counters())


def say(message: msgspec.Struct) -> None:
    """Write a line to the owner."""
    os.write(sys.stdout.fileno(), msgspec.json.encode(message) + b"\n")


def be_prompt() -> int:
    """Take a real-time priority and exact timers where the system grants them; return the priority, 0 for none."""
    # Nothing in the loop makes cycles, and a collection among thousands of waiting packets takes milliseconds.
    gc.disable()
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except OSError:
        return 0
    return PRIORITY


def stop(_number: int, _frame: FrameType | None) -> None:
    """End the loop on a signal."""
    raise _End


def main() -> None:
    """Do what stdin says until it ends."""
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Unbuffered: what follows the line is left to be waited for.
    with open(STDIN, "rb", buffering=0, closefd=False) as stdin:
        job = msgspec.json.decode(stdin.readline(), type=Job)
    descriptors = (job.server, *job.workers)
    namespaces = [os.open(f"/proc/{job.owner}/fd/{fd}", os.O_RDONLY) for fd in descriptors]
    try:
        tuns = list[int]()
        if job.links:
            trains = all(link.takes_trains() for link in job.links)
            tuns = [
                open_tun(fd, index - 1 if index else "server", trains=trains)
                for index, fd in enumerate(namespaces)
            ]
        emulator = Emulator(tuns, job.links, seed=job.seed)
        emulator.listen(STDIN, Commands(emulator).hear)
        say(Ready(priority=be_prompt()))
        try:
            emulator.run()
        except _End:
            # Nobody may be there any more to hear it.
            with contextlib.suppress(OSError):
                say(emulator.counters())
    finally:
        end_all(namespaces)


if __name__ == "__main__":
    main()
