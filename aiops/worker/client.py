"""The client: push, pull and sync as awaitable tickets, over a link that mends itself."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Codec, Residual
from aiops.errors import Busy, LocalProtocolError, NotFinite, Refused
from aiops.types import Version
from aiops.wire.message import Policy, Push
from aiops.wire.table import Table
from aiops.worker.bucket import check_finite, pack, specs_of, unpack
from aiops.worker.link import Link
from aiops.worker.request import InitRequest, PullRequest, PushRequest, StatusRequest
from aiops.worker.ticket import Snapshot, Ticket

# Pushes that may wait behind the one under way; more means that the caller does not await its tickets.
MAX_WAITING = 16

# Encoding so many values takes well under a millisecond and stays on the loop; more goes to a thread.
INLINE_VALUES = 256 * 1024

Tensors = dict[str, NDArray[Any]]


class Client:
    """One worker's connection to a parameter server; use it as ``async with``.

    Made by :func:`aiops.connect`. All methods belong to the loop it was entered on.

    Args:
        make_link: Makes the line to the server, on the running loop.
        make_codec: Builds the codec that the server names.

    Attributes:
        version: Version of the newest parameters received.
        clock: Local steps pushed so far.
    """

    def __init__(
        self, make_link: Callable[[], Link], make_codec: Callable[[str], Codec]
    ) -> None:
        self.version = Version(0)
        self.clock = 0
        self._make_link = make_link
        self._make_codec = make_codec
        self._table: Table | None = None
        self._residuals: dict[int, Residual | None] = {}
        self._codec: Codec
        self._link: Link
        self._keeper: asyncio.Task[None]
        self._sequence = 0
        self._waiting: deque[_Waiting] = deque()
        self._pusher: asyncio.Task[None]
        self._wake: asyncio.Event

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            ConnectFailed: No server answered within the connect timeout.
            Rejected: The server turned this worker away.
        """
        loop = asyncio.get_running_loop()
        self._link = self._make_link()
        self._wake = asyncio.Event()
        # Owned by this object: cancelled and awaited in __aexit__.
        self._keeper = loop.create_task(self._link.run(), name="aiops link")
        try:
            welcome = await self._link.greeted()
            self._codec = self._make_codec(welcome.policy.codec)
        except BaseException:
            await _end(self._keeper)
            raise
        self.version = Version(welcome.version)
        self._pusher = loop.create_task(self._push_in_turn(), name="aiops pushes")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave: the server waits for this worker no longer. Unanswered tickets fail with ConnectionLost."""
        await self.leave()

    async def leave(self) -> None:
        """Say goodbye and close; idempotent, never raises."""
        await self._link.leave()
        await _end(self._pusher)
        await _end(self._keeper)
        for waiting in self._waiting:
            waiting.ticket.fail(LocalProtocolError("the worker left before this push was sent"))
        self._waiting.clear()

    @property
    def worker(self) -> int:
        """This worker's number."""
        assert self._link.welcome is not None
        return self._link.welcome.worker

    @property
    def policy(self) -> Policy:
        """What the server decided for its workers."""
        assert self._link.welcome is not None
        return self._link.welcome.policy

    @property
    def connections(self) -> int:
        """Connections made so far; more than one means that the link was mended."""
        return self._link.connections

    @property
    def table(self) -> Table:
        """The agreed key table.

        Raises:
            LocalProtocolError: :meth:`init` was not called.
        """
        if self._table is None:
            raise LocalProtocolError("call init first: no tensors are agreed with the server")
        return self._table

    async def init(self, params: Mapping[str, object] | None = None) -> Tensors:
        """Agree on the tensors: the first worker seeds the parameters, later ones receive them.

        Args:
            params: Arrays by name, of any float dtype; copied. None receives whatever the server has, waiting for
                the first worker if need be.

        Returns:
            The parameters to start from, as :meth:`pull` returns them.

        Raises:
            ShapeMismatch: The tensors are not those that were agreed.
            NotFinite: A parameter is NaN or infinite.
        """
        given = params or {}

        def fill(table: Table, flat: NDArray[np.float32]) -> None:
            pack(table, given, flat)

        if given:
            for name, value in given.items():
                _check_start(name, value)
        snapshot = await self.init_flat(specs_of(given), fill)
        return unpack(self.table, snapshot.flat)

    async def init_flat(
        self, specs: Any, fill: Callable[[Table, NDArray[np.float32]], None]
    ) -> Snapshot:
        """Agree on the tensors, for callers that keep a flat vector themselves.

        Args:
            specs: The tensors (:class:`aiops.types.TensorSpec`), in order.
            fill: Writes this worker's parameters into a flat vector when the server asks for them.
        """
        request = InitRequest(tuple(specs), fill)
        self._link.submit(request)
        snapshot = await request.ticket
        assert request.table is not None
        self._table = request.table
        self._residuals = {
            key: self._codec.init(bucket.size) for key, bucket in enumerate(self._table.buckets)
        }
        self.version = snapshot.version
        return snapshot

    def push(
        self,
        update: Mapping[str, object],
        *,
        base: int | None = None,
        n_samples: int = 1,
        n_steps: int = 1,
        loss: float = math.nan,
    ) -> Ticket[Version]:
        """Send an update up; returns at once.

        Args:
            update: What is to be added to the parameters, by name (params - base after local steps, or minus the
                learning rate times a gradient); copied, and finite.
            base: Version it was computed from; the newest received unless given.
            n_samples: Training samples behind it.
            n_steps: Local steps behind it.
            loss: Mean training loss over those steps.

        Returns:
            A ticket for the version that the update became part of.

        Raises:
            ShapeMismatch: The tensors are not the agreed ones.
            NotFinite: The update holds NaN or infinity; nothing is sent.
            Busy: Too many pushes wait already.
        """
        flat = self._packed(update)
        ticket = self.push_flat(
            flat, base=base, n_samples=n_samples, n_steps=n_steps, loss=loss, want=False
        )
        return ticket.map(lambda snapshot: snapshot.version)

    def pull(self) -> Ticket[Tensors]:
        """Ask for the newest parameters; returns at once.

        Returns:
            A ticket for arrays by name, all of one version, the caller's to keep: float32 tensors are views of one
            fresh vector, others are converted (bfloat16 comes as float32).
        """
        table = self.table
        return self.pull_flat().map(lambda snapshot: unpack(table, snapshot.flat))

    def sync(
        self,
        update: Mapping[str, object],
        *,
        base: int | None = None,
        n_samples: int = 1,
        n_steps: int = 1,
        loss: float = math.nan,
    ) -> Ticket[Tensors]:
        """Send an update up and get the model that contains it, in one round trip; returns at once.

        The arguments are those of :meth:`push`, the result is that of :meth:`pull`.
        """
        table, flat = self.table, self._packed(update)
        ticket = self.push_flat(flat, base=base, n_samples=n_samples, n_steps=n_steps, loss=loss)
        return ticket.map(lambda snapshot: unpack(table, snapshot.flat))

    def pull_flat(self, out: NDArray[np.float32] | None = None) -> Ticket[Snapshot]:
        """Ask for the newest parameters as a flat vector, into ``out`` if given."""
        request = PullRequest(self.table, out)
        request.ticket.then(self._received)
        self._link.submit(request)
        return request.ticket

    def push_flat(
        self,
        update: NDArray[np.float32],
        *,
        base: int | None = None,
        n_samples: int = 1,
        n_steps: int = 1,
        loss: float = math.nan,
        want: bool = True,
        out: NDArray[np.float32] | None = None,
        step_s: float = 0.0,
        sync_s: float = 0.0,
    ) -> Ticket[Snapshot]:
        """Push a flat vector, and get the model back if ``want``; for callers that keep one themselves.

        ``update`` (float32, shape (table.size,)) is on loan until the ticket is done, since it may have to be sent
        again; ``out`` (the same shape) takes the model.
        """
        table = self.table
        check_finite(table, update, "update")
        if len(self._waiting) >= MAX_WAITING:
            raise Busy(f"{len(self._waiting)} pushes wait to be sent, that is the limit: await their tickets")
        ticket: Ticket[Snapshot] = Ticket()
        message = Push(
            sequence=0,
            base=self.version if base is None else base,
            clock=self.clock + n_steps,
            n_samples=n_samples,
            n_steps=n_steps,
            loss=loss,
            parts=len(table.buckets),
            want=want,
            step_s=step_s,
            sync_s=sync_s,
        )
        self.clock += n_steps
        self._waiting.append(_Waiting(message, update, out, ticket))
        self._wake.set()
        return ticket

    async def status(self) -> dict[str, Any]:
        """Return the server's state as plain values."""
        request = StatusRequest()
        self._link.submit(request)
        report: dict[str, Any] = msgspec.json.decode(await request.ticket)
        return report

    def residuals(self) -> dict[int, NDArray[np.float32]]:
        """Return what compression left behind, by key; the arrays are this client's, do not change them."""
        return {key: rest for key, rest in self._residuals.items() if rest is not None}

    def restore_residuals(self, residuals: Mapping[int, NDArray[np.float32]]) -> None:
        """Go on from saved residuals; they are copied.

        Raises:
            LocalProtocolError: A key or a size is not the table's.
        """
        for key, rest in residuals.items():
            own = self._residuals.get(key)
            if own is None or own.size != rest.size:
                size = "none" if own is None else str(own.size)
                raise LocalProtocolError(f"residual of key {key} has {rest.size} values, {size} due")
        for key, rest in residuals.items():
            self._residuals[key] = np.array(rest, np.float32)

    def _packed(self, update: Mapping[str, object]) -> NDArray[np.float32]:
        flat = np.empty(self.table.size, np.float32)
        pack(self.table, update, flat)
        return flat

    def _received(self, snapshot: Snapshot) -> None:
        self.version = max(self.version, snapshot.version)

    # One push at a time: the next one's residual depends on whether this one was taken.
    async def _push_in_turn(self) -> None:
        while True:
            await self._wake.wait()
            while self._waiting:
                waiting = self._waiting.popleft()
                try:
                    await self._push(waiting)
                except Refused as error:
                    waiting.ticket.fail(error)
            self._wake.clear()

    async def _push(self, waiting: _Waiting) -> None:
        table, update = self.table, waiting.update
        if update.size > INLINE_VALUES:
            encoded = await asyncio.to_thread(self._encode, table, update)
        else:
            encoded = self._encode(table, update)
        self._sequence += 1
        message = msgspec.structs.replace(waiting.message, sequence=self._sequence)
        payload = [arrays for arrays, _ in encoded]
        request = PushRequest(table, message, payload, self._codec, waiting.out)
        self._link.submit(request)
        try:
            snapshot = await request.ticket
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # Nothing was merged, so nothing was sent: the old residuals stay.
            waiting.ticket.fail(error)
            return
        self._residuals = {key: residual for key, (_, residual) in enumerate(encoded)}
        if message.want:
            self._received(snapshot)
        waiting.ticket.version = request.ticket.version
        waiting.ticket.staleness = request.ticket.staleness
        waiting.ticket.bytes = request.ticket.bytes
        waiting.ticket.resolve(snapshot)

    def _encode(self, table: Table, update: NDArray[np.float32]) -> list[Any]:
        encoded = []
        for key, bucket in enumerate(table.buckets):
            try:
                part = update[bucket.start : bucket.stop]
                encoded.append(self._codec.encode(part, self._residuals[key]))
            except NotFinite as error:
                raise NotFinite(f"key {key}: {error}") from None
        return encoded


class _Waiting:
    __slots__ = ("message", "out", "ticket", "update")

    def __init__(
        self,
        message: Push,
        update: NDArray[np.float32],
        out: NDArray[np.float32] | None,
        ticket: Ticket[Snapshot],
    ) -> None:
        self.message = message
        self.update = update
        self.out = out
        self.ticket = ticket


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _check_start(name: str, value: object) -> None:
    array = np.asarray(value)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise NotFinite(f"parameter {name!r} holds NaN or infinity")
