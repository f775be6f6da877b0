"""What is under way between a training loop and a server: begun, waited for and heard of in the loop's thread."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from aiops.errors import ConnectionLost, DeadlineExceeded, Refused
from aiops.sync.thread import LoopThread
from aiops.worker.client import Client
from aiops.worker.machine import Update, Vector
from aiops.worker.meter import Meter
from aiops.worker.pace import Pace
from aiops.worker.step import exchange
from aiops.worker.streaming import Machine, Streaming
from aiops.worker.ticket import Snapshot

log = logging.getLogger("aiops.worker")


class Flight:
    """The one push that is under way at a time, or the pull after a refused one; models go to the machine's mailbox.

    Args:
        thread: Where it is done.
        client: The client, entered there.
        machine: Whose updates are pushed, and who gets the models.
        out: Where models land, float32, shape (n,); this object's from now on.
        pace: How far rounds go, where the server is asked that; it hears when training and every push begin.
    """

    def __init__(
        self,
        thread: LoopThread,
        client: Client,
        machine: Machine,
        out: Vector,
        *,
        pace: Pace | None = None,
    ) -> None:
        self._thread = thread
        self._client = client
        self._machine = machine
        self._out = out
        self._arrived = threading.Event()
        self._flying: Future[None] | None = None
        self._pace = pace
        self._report()

    def push(self, update: Update, meter: Meter) -> None:
        """Send an update off and return at once; its values are on loan until the model is there."""
        self._report()
        self._start(self._exchange(update, meter))

    def ask(self, pace: Pace) -> None:
        """Ask how far the round goes, unless a question is under way; its answer is not waited for."""
        query = pace.query(time.perf_counter())
        if query is not None:
            self._thread.call(
                self._client.ask,
                query,
                lambda advice: pace.answered(query, advice, time.perf_counter()),
            )

    def check(self) -> None:
        """Raise how the last push failed, if it did.

        Raises:
            Refused: The server declined it. Told once: the newest model is on its way.
            TransportError: The line to the server is lost for good, or closed.
        """
        if self._flying is None or not self._flying.done():
            return
        if self._flying.cancelled():
            raise ConnectionLost("the link was closed while a push was under way")
        error = self._flying.exception()
        if error is None:
            return
        if isinstance(error, Refused):
            # The connection is as good as before.
            self._start(self._recover())
        raise error

    def wait(self, deadline: float | None) -> None:
        """Wait until a model is in the mailbox.

        Args:
            deadline: Until when, on ``time.perf_counter``; None waits for as long as it takes.

        Raises:
            DeadlineExceeded: None has come by then.
            Refused, TransportError: As :meth:`check`.
        """
        start = time.perf_counter()
        # The event of an earlier model may still be set, or be set late: the mailbox decides.
        while self._machine.mail is None:
            self.check()
            left_s = None if deadline is None else max(0.0, deadline - time.perf_counter())
            if not self._arrived.wait(left_s):
                waited_s = time.perf_counter() - start
                raise DeadlineExceeded(
                    "the model",
                    peer="the server",
                    waited_s=waited_s,
                    moved_bytes=self._client.received_bytes,
                )
            self._arrived.clear()

    def finish(self, push: Callable[[], None], timeout_s: float) -> Vector:
        """Bring what is not yet pushed into the global model, and return that, float32, shape (n,).

        Args:
            push: Pushes what is not pushed yet.
            timeout_s: How long what is under way is waited for; then the newest model is returned as it is.

        Raises:
            AiopsError: The newest model cannot be had.
        """
        try:
            self._settle(push, time.perf_counter() + timeout_s)
        except DeadlineExceeded as error:
            log.info("closing without the last push merged: %s", error)
        model = None if isinstance(self._machine, Streaming) else self._machine.mail
        if model is None:
            model = self._thread.run(newest(self._client, timeout_s))
        return model.flat

    def _settle(self, push: Callable[[], None], deadline: float) -> None:
        machine = self._machine
        if machine.under_way:
            self.wait(deadline)
        done = machine.mail is not None and machine.mail.done
        # Of a model in fragments the rest stays behind: its turn is another round's.
        if isinstance(machine, Streaming) or done or not machine.n_steps:
            return
        push()
        if machine.under_way:
            self.wait(deadline)

    def _report(self) -> None:
        if self._pace is not None:
            self._thread.call(self._client.report, self._pace.report())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._flying = self._thread.submit(work)
        self._flying.add_done_callback(lambda _: self._arrived.set())

    async def _exchange(self, update: Update, meter: Meter) -> None:
        snapshot, merged = await exchange(self._client, update, self._out, meter)
        self._machine.deliver(snapshot, at=time.perf_counter(), merged=merged)

    # The server would not have the last push: begin anew from whatever it holds now.
    async def _recover(self) -> None:
        snapshot = await self._client.pull_flat(self._out)
        self._machine.deliver(snapshot, at=time.perf_counter(), merged=False)


async def newest(client: Client, patience_s: float) -> Snapshot:
    """Return the newest model, however long it takes, as long as something comes from the server.

    Raises:
        DeadlineExceeded: Nothing came for ``patience_s`` seconds.
    """
    ticket = client.pull_flat()
    while True:
        came = client.received_bytes
        try:
            async with asyncio.timeout(patience_s):
                return await ticket
        except TimeoutError:
            if client.received_bytes == came:
                raise DeadlineExceeded(
                    "the newest model",
                    peer="the server",
                    waited_s=patience_s,
                    moved_bytes=came,
                ) from None
