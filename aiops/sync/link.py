"""A training loop's link to a server, over a background thread.

:class:`Link` is what an integration with a framework builds on; it sees parameters as two functions, one that fills a
flat vector and one that takes it over, and knows no framework.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import numpy as np

from aiops.errors import AiopsError, ConnectionLost, DeadlineExceeded
from aiops.sync.thread import LoopThread
from aiops.types import TensorSpec
from aiops.worker.client import Client
from aiops.worker.machine import Move, Overlap, Rule, Update, Vector
from aiops.worker.meter import Meter
from aiops.worker.overlap import exchange
from aiops.worker.ticket import Snapshot

log = logging.getLogger("aiops.worker")

# How long closing may wait for the other workers.
CLOSE_S = 10.0


class Link:
    """Keeps the parameters of a training loop in sync with a server; the loop's thread never touches a socket.

    The caller's thread trains and is the only one to write parameters; a background thread does the network. Under an
    overlapped policy (NBSync) the two never wait for each other.

    Args:
        client: The client, not entered yet.
        specs: The tensors, in the order of the flat vector.
        gather: Copies the live parameters into a flat float32 vector of shape (n,).
        scatter: Copies such a vector into the live parameters.
        exact: Whether the parameters hold any float32 value; 16-bit ones do not.
        rule: How an overlapped worker merges; the server's unless given.

    Attributes:
        meter: What was measured: steps, rounds, waits, overlap ratio.
        overlap: Whether local steps go on while a synchronization is under way.
        done: Whether the server says that training is over; the parameters then are the final model.
    """

    def __init__(
        self,
        client: Client,
        specs: Sequence[TensorSpec],
        *,
        gather: Callable[[Vector], None],
        scatter: Callable[[Vector], None],
        exact: bool = True,
        rule: Rule | None = None,
    ) -> None:
        self.done = False
        self._client = client
        self._gather, self._scatter, self._exact = gather, scatter, exact
        self._thread = LoopThread("aiops link")
        try:
            snapshot = self._thread.run(self._start(specs))
        except BaseException:
            self._thread.close()
            raise
        policy = client.policy
        self.overlap = policy.overlap
        self._x, self._new = snapshot.flat, np.empty_like(snapshot.flat)
        self._scatter(self._x)
        if not exact:
            self._gather(self._x)
        if rule is None or not self.overlap:
            rule = Rule(policy.merge, policy.alpha, policy.beta, policy.bootstrap)
        self._machine = Overlap(
            self._x,
            snapshot.version,
            rule,
            min_steps=policy.min_steps,
            max_steps=policy.max_steps,
        )
        self._arrived = threading.Event()
        self._flying: Future[None] | None = None
        self._since = time.perf_counter()
        self.meter = Meter(self._since)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(flush=error is None)

    def __repr__(self) -> str:
        mode = "overlapped" if self.overlap else "blocking"
        return f"<aiops link of worker {self._client.worker}, {mode}, version {self.version}>"

    @property
    def version(self) -> int:
        """Version of the model that the module started its present phase from."""
        return self._machine.version

    @property
    def worker(self) -> int:
        """This worker's number."""
        return self._client.worker

    def step(self, *, n_samples: int = 1, loss: float | None = None) -> bool:
        """Note a local step; call it after ``optimizer.step()``.

        Overlapped: adopts the model if a new one has come, pushes the progress, and returns without waiting for
        the network (unless the server set a largest number of steps, and it is reached). Blocking: every H-th call
        pushes and waits for the merged model.

        Args:
            n_samples: Samples in this step's batch, on this worker.
            loss: Its mean loss, if at hand; reading it from the device is the caller's cost.

        Returns:
            Whether a new global model was adopted, which is the moment to evaluate it.

        Raises:
            AiopsError: The line to the server is lost for good; the module keeps its parameters.
        """
        now = time.perf_counter()
        self.meter.stepped(self._since, now)
        adopted = self._boundary(self._machine.stepped(n_samples=n_samples, loss=loss))
        self._since = time.perf_counter()
        return adopted

    def close(self, *, flush: bool = True, timeout_s: float = CLOSE_S) -> None:
        """Leave the training; idempotent.

        Args:
            flush: Push what is not yet pushed, and load the newest global model into the module. What the server
                cannot merge within the timeout (the other workers are slower) is not waited for.
            timeout_s: How long that may take.
        """
        if self._thread.loop.is_closed():
            return
        try:
            if flush and not self.done:
                self._flush(timeout_s)
        except (AiopsError, TimeoutError) as error:
            log.warning("the module keeps its own parameters, the newest cannot be had: %s", error)
        finally:
            try:
                self._thread.run(self._client.leave())
            finally:
                self._thread.close()

    def restart_meter(self) -> None:
        """Measure from now on, as if the link had just been made."""
        self._since = time.perf_counter()
        self.meter = Meter(self._since)

    def status(self) -> dict[str, Any]:
        """Return the server's state as plain values."""
        return self._thread.run(self._client.status())

    async def _start(self, specs: Sequence[TensorSpec]) -> Snapshot:
        await self._client.__aenter__()
        try:
            return await self._client.init_flat(specs, lambda _, flat: self._gather(flat))
        except BaseException:
            await self._client.leave()
            raise

    def _boundary(self, move: Move) -> bool:
        self._raise_lost()
        if move is Move.COMPUTE:
            return False
        if move is Move.WAIT:
            self._wait()
        if self._machine.mail is not None:
            return self._arrive()
        self._push()
        if self.overlap:
            return False
        self._wait()
        return self._arrive()

    # A model is here: the next push and the adoption are one pass (overlapped), or computing goes on from it.
    def _arrive(self) -> bool:
        mail = self._machine.mail
        assert mail is not None
        self.meter.arrived(self._machine.mail_at)
        if mail.done:
            self.done = True
            self._scatter(mail.flat)
        elif self.overlap:
            self._push()
        else:
            self._machine.adopt(self._x)
            self._load()
        return True

    # Gather the live parameters, let the machine take the progress out and merge, and send it off.
    def _push(self) -> None:
        adopting = self._machine.mail is not None
        self._gather(self._x)
        update = self._machine.push(self._x)
        if adopting:
            self._load()
        if update is not None:
            self.meter.pushing(time.perf_counter(), n_steps=update.n_steps)
            self._flying = self._thread.submit(self._exchange(update))
            self._flying.add_done_callback(lambda _: self._arrived.set())

    def _load(self) -> None:
        self._scatter(self._x)
        if not self._exact:
            self._gather(self._x)
            self._machine.rebase(self._x)

    async def _exchange(self, update: Update) -> None:
        snapshot, merged = await exchange(self._client, update, self._new, self.meter)
        self._machine.deliver(snapshot, at=time.perf_counter(), merged=merged)

    # Stand still until the model is here, and say so: overlapped workers without a largest number of steps never do.
    def _wait(self) -> None:
        start = time.perf_counter()
        self._wait_until(None)
        self.meter.waited(start, time.perf_counter())

    def _wait_until(self, deadline: float | None) -> None:
        start = time.perf_counter()
        # The event of an earlier model may still be set, or be set late: the mailbox decides.
        while self._machine.mail is None:
            self._raise_lost()
            left_s = None if deadline is None else max(0.0, deadline - time.perf_counter())
            if not self._arrived.wait(left_s):
                waited_s = time.perf_counter() - start
                raise DeadlineExceeded("the model", peer="the server", waited_s=waited_s)
            self._arrived.clear()

    def _raise_lost(self) -> None:
        if self._flying is None or not self._flying.done():
            return
        if self._flying.cancelled():
            raise ConnectionLost("the link was closed while a push was under way")
        error = self._flying.exception()
        if error is not None:
            raise error

    # Bring what is not yet pushed into the global model, and the global model into the module.
    def _flush(self, timeout_s: float) -> None:
        deadline = time.perf_counter() + timeout_s
        try:
            if self._machine.under_way:
                self._wait_until(deadline)
            if self._machine.n_steps:
                self._push()
                self._wait_until(deadline)
        except DeadlineExceeded as error:
            log.info("closing without the last push merged: %s", error)
        self._scatter(self._thread.run(self._newest(max(1.0, deadline - time.perf_counter()))))

    async def _newest(self, timeout_s: float) -> Vector:
        async with asyncio.timeout(timeout_s):
            return (await self._client.pull_flat()).flat
