"""The client below tensors: one life of a worker, and its verbs on flat vectors as awaitable tickets."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Codec
from aiops.errors import LocalProtocolError
from aiops.transport.lane import Lane
from aiops.types import TensorSpec, Version
from aiops.wire.frame import Kind
from aiops.wire.message import Advice, Policy, Push, Query
from aiops.wire.table import Table
from aiops.worker.bucket import check_out
from aiops.worker.count import whole
from aiops.worker.fragment import Fragment
from aiops.worker.link import Link
from aiops.worker.mirror import Mirror
from aiops.worker.pace import QueryRequest
from aiops.worker.pusher import Pusher
from aiops.worker.request import InitRequest, PullRequest, StatusRequest
from aiops.worker.spare import Spares
from aiops.worker.ticket import Snapshot, Ticket


class FlatClient:
    """One worker's connection to a parameter server, for callers that keep a flat vector themselves.

    It is entered with ``async with``. All methods belong to the loop it was entered on.

    Args:
        make_link: Makes the line to the server, on the running loop.
        make_codec: Builds the codec that the server names.
        lanes: The transport's threads, which end when this client leaves.

    Attributes:
        version: Version of the newest parameters received.
        clock: Local steps pushed so far.
        n_data: Training samples that this worker has, told with every push; 0 where it does not say.
    """

    def __init__(
        self,
        make_link: Callable[[], Link],
        make_codec: Callable[[str], Codec],
        lanes: Sequence[Lane] = (),
    ) -> None:
        self.version = Version(0)
        self.clock = 0
        self.n_data = 0
        self._make_link = make_link
        self._make_codec = make_codec
        self._lanes = lanes
        self._table: Table | None = None
        # A client that is entered again is the same life of the worker, so that its numbers go on.
        self._sequences = itertools.count(1)
        self._link: Link
        self._keeper: asyncio.Task[None]
        self._mirror: Mirror
        # What the newest model says, where the server's policy changes.
        self._policy: Policy | None = None
        self._codecs: dict[str, Codec] = {}
        self._pusher: Pusher
        self._spares: Spares
        self._pushing: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            ConnectFailed: No server answered within the connect timeout.
            Busy: The server had no place within the connect timeout.
            Rejected: The server turned this worker away.
        """
        loop = asyncio.get_running_loop()
        self._link = self._make_link()
        # Owned by this object: cancelled and awaited in __aexit__.
        self._keeper = loop.create_task(self._link.run(), name="aiops link")
        try:
            welcome = await self._link.greeted()
            codec = self._make_codec(welcome.policy.codec)
            # Where models come whole there is no need for a copy of the last one.
            down = welcome.policy.down
            changes = None if down == "dense" else self._make_codec(down)
            self._mirror = Mirror(changes, self._make_codec)
            self._policy = None
            self._codecs = {welcome.policy.codec: codec}
        except BaseException:
            try:
                await self._link.leave()
            finally:
                await self._end(self._keeper)
            raise
        self.version = Version(welcome.version)
        self._pusher = Pusher(
            self._link, codec, self._make_codec("dense"), self._sequences, self._mirror
        )
        self._pushing = loop.create_task(self._pusher.run(), name="aiops pushes")
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Leave: the server waits for this worker no longer.

        A push that is not answered by then may be merged or not, and its ticket fails with ConnectionLost, as all
        open ones do: await what matters before leaving.
        """
        await self.leave()

    async def leave(self) -> None:
        """Say goodbye and close, as at the end of ``async with``; idempotent, never raises."""
        self._pusher.stop()
        try:
            await self._link.leave()
        finally:
            self._pusher.close()
            await self._end(self._pushing, self._keeper)

    @property
    def worker(self) -> int:
        """This worker's number."""
        return self._link.greeting.worker

    @property
    def policy(self) -> Policy:
        """What the server decided for its workers, as of the newest model received where it says so with each."""
        return self._policy or self._link.greeting.policy

    @property
    def received_bytes(self) -> int:
        """Bytes received over the present connection; 0 while there is none."""
        return self._link.received_bytes

    @property
    def connections(self) -> int:
        """Connections made so far; more than one means that the link was mended."""
        return self._link.connections

    @property
    def table(self) -> Table:
        """The agreed key table; raises LocalProtocolError before :meth:`init`."""
        if self._table is None:
            raise LocalProtocolError("call init first: no tensors are agreed with the server")
        return self._table

    async def init_flat(
        self, specs: Sequence[TensorSpec], fill: Callable[[Table, NDArray[np.float32]], None]
    ) -> Snapshot:
        """Agree on the tensors, for callers that keep a flat vector themselves.

        Args:
            specs: The tensors, in order.
            fill: Writes this worker's parameters into a flat vector when the server asks for them.
        """
        request = InitRequest(tuple(specs), fill, mirror=self._mirror)
        self._link.submit(request)
        snapshot = await request.ticket
        assert request.table is not None
        self._table = request.table
        self._spares = Spares(request.table.size)
        self._pusher.agree(self._table)
        self.version = snapshot.version
        self._policy = snapshot.policy
        return snapshot

    def pull_flat(self, out: NDArray[np.float32] | None = None) -> Ticket[Snapshot]:
        """Ask for the newest parameters as a flat vector, into ``out`` if given.

        ``out`` (float32, contiguous, shape (table.size,)) is on loan until the ticket is done.
        """
        check_out(self.table, out)
        landing = self._spares.take() if out is None else out
        request = PullRequest(self.table, landing, mirror=self._mirror)
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
        checked: bool = False,
        fragment: Fragment | None = None,
    ) -> Ticket[Snapshot]:
        """Push a flat vector, and get the model back if ``want``; for callers that keep one themselves.

        ``update`` (float32, shape (table.size,)) is on loan until the ticket is done, since it may have to be sent
        again; ``out`` (the same shape) takes the model. ``checked`` leaves the search for NaN and infinity to the
        server. ``fragment`` says that ``update`` and ``out``, which must be given, are of that part of the model alone.
        The rest is that of :meth:`push`.

        Raises:
            LocalProtocolError: A count is none.
        """
        table = self.table if fragment is None else fragment.table
        steps = _count("n_steps", n_steps)
        # Counts and losses may be numpy's, which the wire does not know.
        message = Push(
            sequence=0,  # numbered when its turn comes
            base=_count("base", self.version if base is None else base),
            clock=self.clock + steps,
            n_samples=_count("n_samples", n_samples),
            n_steps=steps,
            loss=float(loss),
            parts=len(table.buckets),
            want=want,
            step_s=step_s,
            sync_s=sync_s,
            n_data=_count("n_data", self.n_data),
            fragment=None if fragment is None else fragment.number,
        )
        ticket = self._pusher.put(
            table,
            message,
            update,
            self._spares.take() if want and out is None else out,
            checked=checked,
            fragment=fragment,
            codec=None if self._policy is None else self._codec(self._policy.codec),
        )
        self.clock = message.clock
        if want:
            ticket.then(self._received)
        return ticket

    def ask(self, query: Query, tell: Callable[[Advice | None], None]) -> None:
        """Ask how far this round goes, where the policy says so (``policy.query``); returns at once.

        Args:
            query: The question.
            tell: Called on the loop with the answer, or with None when there will be none.
        """
        self._link.submit(QueryRequest(query, tell))

    def report(self, query: Query) -> None:
        """Tell the server that this worker begins, or that its push does; without a connection nobody hears it."""
        self._link.post(Kind.QUERY, query)

    async def status(self) -> dict[str, Any]:
        """Return the server's state as plain values."""
        request = StatusRequest()
        self._link.submit(request)
        return await request.ticket.map(msgspec.json.Decoder(dict[str, Any]).decode)

    def residuals(self) -> dict[int, NDArray[np.float32]]:
        """Return what compression left behind, by key; the arrays are this client's, do not change them."""
        return {key: rest for key, rest in self._pusher.residuals.items() if rest is not None}

    def restore_residuals(self, residuals: Mapping[int, NDArray[np.float32]]) -> None:
        """Go on from saved residuals; they are copied.

        Raises:
            LocalProtocolError: A key or a size is not the table's.
        """
        self._pusher.restore(residuals)

    # Whoever cancels this waits for the tasks all the same, which have been cancelled by then.
    async def _end(self, *tasks: asyncio.Task[None]) -> None:
        for task in tasks:
            task.cancel()
        try:
            # A bug's exception is not lost: it failed every open ticket.
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for lane in self._lanes:
                lane.close()

    def _codec(self, name: str) -> Codec:
        if name not in self._codecs:
            self._codecs[name] = self._make_codec(name)
        return self._codecs[name]

    def _received(self, snapshot: Snapshot) -> None:
        if snapshot.policy is not None and snapshot.version >= self.version:
            self._policy = snapshot.policy
        self.version = max(self.version, snapshot.version)


def _count(name: str, value: int) -> int:
    number = whole(value)
    if number is None:
        raise LocalProtocolError(f"{name} is {value!r}, it must be a whole number >= 0")
    return number
