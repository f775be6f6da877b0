"""Child processes that speak one line of JSON at a time, and that are gone when their owner is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Self

import msgspec

from aiops.errors import AiopsError, DeadlineExceeded

# How long a child may take to end after it was asked.
ENDING_S = 2.0

# One line of a child: a result with its spans is a few hundred kB.
LINE_BYTES = 64 * 1024 * 1024


class ChildFailed(AiopsError):
    """A child process ended before its work was done; the message holds the end of what it wrote to stderr."""


class Child:
    """A ``python -m`` process with pipes; use it as ``async with``.

    Args:
        module: The module to run.
        arguments: Its arguments.
        name: What it is called in messages.
        threads: Threads that numeric libraries may use in it.
        prefix: A command that runs the one behind it in its own place, such as ``nice -n 10``.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        name: str,
        threads: int = 1,
        prefix: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._command = [*prefix, sys.executable, "-m", module, *arguments]
        self._environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
        self._process: asyncio.subprocess.Process
        self._errors = bytearray()
        self._listener: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        """Start it."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
            env=self._environment,
            # Ctrl-C reaches the parent alone, which then ends its children in order.
            start_new_session=True,
        )
        # Owned by this object: ends with the pipe, awaited in __aexit__.
        self._listener = asyncio.get_running_loop().create_task(self._listen(), name=self.name)
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Ask it to end, and see to it that it does, with whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(ENDING_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        finally:
            # Processes of its own hold its pipes open, and nobody else would end them.
            self.signal(signal.SIGKILL)
        await self._listener

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to whatever it has started."""
        # It leads a session of its own, so its group has its number for as long as anybody is left in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def say(self, line: bytes) -> None:
        """Write a line to it.

        Raises:
            ChildFailed: It has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()
        except OSError:
            raise await self._failed() from None

    async def hear(self, timeout_s: float) -> bytes:
        """Return its next line.

        Raises:
            ChildFailed: It has ended.
            DeadlineExceeded: It says nothing for so long.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise DeadlineExceeded("a line", peer=self.name, waited_s=timeout_s) from None
        if not line:
            raise await self._failed()
        return line.rstrip(b"\n")

    async def _failed(self) -> ChildFailed:
        code = await self._process.wait()
        await asyncio.shield(self._listener)
        told = self._errors.decode(errors="replace").strip().splitlines()
        return ChildFailed(f"{self.name} ended with {code}: {told[-1] if told else 'no message'}")

    # Its stderr is read all the time, lest it block; the end is kept.
    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            self._errors += data
            del self._errors[:-16384]


def say(message: object) -> None:
    """Write one line of JSON to whoever owns this process."""
    sys.stdout.write(msgspec.json.encode(message).decode() + "\n")
    sys.stdout.flush()


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
