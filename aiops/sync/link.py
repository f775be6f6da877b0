"""A training loop's link to a server, over a background thread.

:class:`Link` is what an integration with a framework builds on; it sees parameters as two functions, one that fills a
flat vector and one that takes it over, and knows no framework.
"""

from __future__ import annotations

import atexit
import logging
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from aiops.errors import AiopsError, ConfigError, ConnectionLost
from aiops.sync.flight import Flight
from aiops.sync.start import start
from aiops.sync.thread import LoopThread
from aiops.types import TensorSpec
from aiops.worker.client import Client
from aiops.worker.count import whole
from aiops.worker.machine import Move, Overlap, Rule, Vector
from aiops.worker.meter import Meter
from aiops.worker.pace import pace_of
from aiops.worker.streaming import Streaming
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
        rule: How an overlapped worker merges; the server's unless given. The bootstrap is the server's always.

    ``gather`` runs on the background thread once, while this constructor waits: when this worker seeds the server.

    Attributes:
        meter: What was measured: steps, rounds, waits, overlap ratio.
        overlap: Whether local steps go on while a synchronization is under way.
        done: Whether the server says that training is over; the parameters then are the final model.

    Raises:
        ConfigError: The rule or the parameters do not go with what the server says.
        ConnectFailed, Rejected, ShapeMismatch, NotFinite: As :meth:`aiops.Client.init`.
    """

    # Whether what trains the parameters adds the machine's proximal term to its steps.
    holds = False

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
        self.overlap = client.policy.overlap
        try:
            self._machine = start(client, snapshot, rule, exact=exact, holds=self.holds)
        except ConfigError:
            self.close(flush=False)
            raise
        self._x = snapshot.flat
        self._load()
        # Under ESync the server is asked how long a round is.
        self._pace = pace_of(client.policy, snapshot.version)
        out = np.empty_like(self._x)
        self._flight = Flight(self._thread, client, self._machine, out, pace=self._pace)
        self._since = time.perf_counter()
        self.meter = Meter(self._since)
        # A script that forgets to close still says goodbye, or a blocking round would wait for its lease.
        atexit.register(_close_at_exit, weakref.ref(self))

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
        pushes and waits for the merged model; under ESync that one after which the server says so.

        Args:
            n_samples: Samples in this step's batch, on this worker.
            loss: Its mean loss, if at hand; reading it from the device is the caller's cost.

        Returns:
            Whether a new global model was adopted, which is the moment to evaluate it. Always False once ``done``.

        Raises:
            ConfigError: ``n_samples`` is no whole number, or less than 1.
            Refused: The server declined the last push (:class:`NotFinite` names the tensor). That progress is lost; the
                loop may go on, it begins anew from the newest model.
            TransportError: The line to the server is lost for good, or closed; the parameters stay as they are.
        """
        samples = whole(n_samples, 1)
        if samples is None:
            raise ConfigError(
                f"n_samples is {n_samples!r}, a step has a whole number of them, at least 1"
            )
        self._check_open()
        if self.done:
            return False
        correction = self._machine.correction
        if correction is not None:
            self._correct(correction)
        now = time.perf_counter()
        self.meter.stepped(self._since, now)
        move = self._machine.stepped(n_samples=samples, loss=loss)
        if self._pace is not None:
            move = self._pace.stepped(now - self._since, now)
        adopted = self._boundary(move)
        if self._pace is not None and not self.done:
            self._flight.ask(self._pace)
        self._since = time.perf_counter()
        return adopted

    def close(self, *, flush: bool = True, timeout_s: float = CLOSE_S) -> None:
        """Leave the training; idempotent.

        Args:
            flush: Push what is not yet pushed, and load the newest global model into the module. What the server
                cannot merge within the timeout (the other workers are slower) is not waited for.
            timeout_s: How long other workers are waited for; then the newest model is loaded as it is.
        """
        if self._thread.closed:
            return
        try:
            if flush and not self.done:
                self._scatter(self._flight.finish(self._push, timeout_s))
        except AiopsError as error:
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
        """Return the server's state as plain values.

        Raises:
            TransportError: The line to the server is lost for good, or closed.
        """
        self._check_open()
        return self._thread.run(self._client.status())

    async def _start(self, specs: Sequence[TensorSpec]) -> Snapshot:
        await self._client.__aenter__()
        try:
            return await self._client.init_flat(specs, lambda _, flat: self._gather(flat))
        except BaseException:
            await self._client.leave()
            raise

    # Add the machine's correction to the live parameters; who can add in place does better.
    def _correct(self, correction: Vector) -> None:
        self._gather(self._x)
        self._x += correction
        self._scatter(self._x)

    def _check_open(self) -> None:
        if self._thread.closed:
            raise ConnectionLost("the link is closed")

    def _boundary(self, move: Move) -> bool:
        self._flight.check()
        if move is Move.COMPUTE:
            return False
        if isinstance(self._machine, Streaming):
            return self._turn(self._machine, move)
        if move is Move.WAIT:
            self._wait()
        if self._machine.mail is not None:
            return self._arrive()
        self._push()
        if self.overlap:
            return False
        self._wait()
        return self._arrive()

    # Of a model in fragments there may be more than one thing to do; say whether one was adopted.
    def _turn(self, machine: Streaming, move: Move) -> bool:
        version = machine.version
        while move is not Move.COMPUTE and not self.done:
            if move is Move.PUSH:
                self._push()
            elif move is Move.WAIT:
                self._wait()
            else:
                self.meter.arrived(machine.mail_at)
                self._gather(self._x)
                self.done = machine.adopt(self._x).done
                self._scatter(machine.model if self.done else self._x)
            move = machine.move()
        return machine.version > version

    # A model is here: the next push and the adoption are one pass (overlapped), or computing goes on from it.
    def _arrive(self) -> bool:
        mail = self._machine.mail
        assert mail is not None
        self.meter.arrived(self._machine.mail_at)
        self.done = mail.done
        if mail.done:
            self._scatter(mail.flat)
        elif self.overlap:
            self._push()
        else:
            self._machine.adopt(self._x)
            self._load()
            if self._pace is not None:
                self._pace.enter(mail.version, mail.max_steps)
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
            self._flight.push(update, self.meter)

    def _load(self) -> None:
        self._scatter(self._x)
        # A model in fragments is exact.
        if not self._exact and isinstance(self._machine, Overlap):
            self._gather(self._x)
            self._machine.rebase(self._x)

    # Stand still until the model is here, and say so: overlapped workers without a largest number of steps never do.
    def _wait(self) -> None:
        start = time.perf_counter()
        self._flight.wait(None)
        self.meter.waited(start, time.perf_counter())


def _close_at_exit(link: weakref.ref[Link]) -> None:
    live = link()
    if live is not None:
        live.close(flush=False)
