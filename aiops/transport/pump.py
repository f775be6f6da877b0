"""Pumps: bytes between sockets and memory, several jobs in turn, until their owner has to decide something.

The compiled one (``src_ext/pump.pyx``) does so without the interpreter. A call for each 256 KiB took 10 us of Python
around it, and its lock once more, for which the loop waits: with four workers that push 100 MB on two cores, an eighth
of all CPU time. The twin here is for tests, and for systems without the other.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from aiops.kernels import COMPILED
from aiops.wire.reader import NOTHING

Told = tuple[int, int, int]
"""A descriptor, how many bytes were moved since it was last told of, and an ``errno``: 0 for none, or :data:`END`."""


# The error of a job whose peer has closed.
END = -1


class Selectable(Protocol):
    """What can be watched: a socket, or anything else with a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def close(self) -> None:
        """Close it."""


@dataclass(slots=True, eq=False)
class _Job:
    sock: socket.socket | None
    sends: bool
    ready: bool = True
    memory: memoryview = NOTHING
    moved: int = 0
    error: int = 0


class PurePump:
    """Moves bytes for one thread; only :meth:`halt` may be called from others.

    Args:
        woken: A socket whose bytes are news from other threads: they end a :meth:`run`, and are dropped.
        most_bytes: What one call moves at most, before the other jobs have their turn.
        stay_s: How long a run that has moved something takes at most; only then is it known how much.
    """

    def __init__(self, woken: socket.socket, *, most_bytes: int, stay_s: float) -> None:
        self._woken = woken
        self._most = most_bytes
        self._stay_s = stay_s
        self._jobs: dict[int, _Job] = {}
        self._halted = False

    def begin(self, sock: Selectable, *, sends: bool) -> int:
        """Watch something non-blocking, for room if ``sends``, else for bytes.

        Returns:
            Its descriptor, by which it is known until :meth:`end`.
        """
        fd = sock.fileno()
        self._jobs[fd] = _Job(sock if isinstance(sock, socket.socket) else None, sends)
        return fd

    def offer(self, fd: int, memory: memoryview) -> None:
        """Say where the next bytes go or come from, in place of what was said before; a loan until :meth:`end`.

        Where there is none, the owner moves bytes and hears when that may go.
        """
        job = self._jobs[fd]
        if memory and memory.readonly and not job.sends:
            raise BufferError("memory to receive into is read-only")
        job.memory = memory

    def again(self, fd: int) -> None:
        """Let the owner hear once more, whatever the descriptor says."""
        self._jobs[fd].ready = True

    def end(self, fd: int) -> None:
        """Forget a descriptor and its memory."""
        del self._jobs[fd]

    def halt(self) -> None:
        """End a run after the call that it is in, and the next ones at once, until :meth:`resume`."""
        self._halted = True

    def resume(self) -> None:
        """Let runs go on."""
        self._halted = False

    def run(self) -> list[Told]:
        """Move bytes until some memory is used up, a descriptor fails, another thread has news, or time is up.

        Returns:
            What was done and not told before; the job that the run ended for, or else all.
        """
        end = None
        while not self._halted:
            told = self._turns()
            if told:
                return told
            left_s = None
            if any(job.moved for job in self._jobs.values()):
                # The time spent waiting for the first bytes does not count.
                end = end or time.monotonic() + self._stay_s
                left_s = end - time.monotonic()
            if (left_s is not None and left_s <= 0) or self._look(left_s):
                break
        return [self._told(fd, job) for fd, job in self._jobs.items() if job.moved]

    # One call for each who can go on; ends with the first who has to hear of something.
    def _turns(self) -> list[Told]:
        for fd in [fd for fd, job in self._jobs.items() if job.ready]:
            # Whoever had a turn is last in the next.
            job = self._jobs[fd] = self._jobs.pop(fd)
            if self._step(job):
                return [self._told(fd, job)]
            if self._halted:
                break
        return []

    # One call; returns whether the owner has to hear of something.
    def _step(self, job: _Job) -> bool:
        wanted = min(len(job.memory), self._most)
        if job.sock is None or not wanted:
            job.ready = False
            return True
        try:
            sock, memory = job.sock, job.memory
            n = sock.send(memory[:wanted]) if job.sends else sock.recv_into(memory, wanted)
        except (BlockingIOError, InterruptedError):
            job.ready = False
            return False
        except OSError as error:
            job.error = error.errno or errno.EIO
            return True
        if not n:
            job.error = END
            return True
        job.memory = job.memory[n:]
        job.moved += n
        # Less than was wanted: there is no more at present, and trying would cost a call that says so.
        job.ready = n == wanted
        return not job.memory

    # Ask who can go on; returns whether there was news.
    def _look(self, timeout_s: float | None) -> bool:
        waiting = {fd: job for fd, job in self._jobs.items() if not job.ready}
        if self._halted or len(waiting) < len(self._jobs):
            timeout_s = 0
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for fd, job in waiting.items():
                selector.register(fd, selectors.EVENT_WRITE if job.sends else selectors.EVENT_READ)
            for key, _ in selector.select(timeout_s):
                if key.fd in waiting:
                    waiting[key.fd].ready = True
                else:
                    self._woken.recv(4096)
                    return True
        return False

    def _told(self, fd: int, job: _Job) -> Told:
        moved, job.moved = job.moved, 0
        return fd, moved, job.error


__all__ = ["END", "Pump", "PurePump", "Selectable", "Told"]

if TYPE_CHECKING or (COMPILED and find_spec("aiops.transport._pump")):
    from aiops.transport._pump import Pump
else:
    Pump = PurePump
