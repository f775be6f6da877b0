"""The client: push, pull and sync of named tensors as awaitable tickets, over a link that mends itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Codec
from aiops.errors import ConfigError
from aiops.policy.stream import InjectionRule
from aiops.transport.lane import Lane
from aiops.types import Version
from aiops.wire.record import Records
from aiops.wire.table import Table
from aiops.worker.bucket import check_start, flat_of, landing_of, pack, specs_of, unpack
from aiops.worker.flat import FlatClient
from aiops.worker.link import Link
from aiops.worker.sharer import Sharer, Shipment
from aiops.worker.ticket import Ticket

Tensors = dict[str, NDArray[Any]]


class Client(FlatClient):
    """One worker's connection to a parameter server; use it as ``async with``.

    Made by :func:`aiops.connect`. All methods belong to the loop it was entered on.
    """

    def __init__(
        self,
        make_link: Callable[[], Link],
        make_codec: Callable[[str], Codec],
        lanes: Sequence[Lane] = (),
        *,
        make_injection: Callable[[str], InjectionRule],
    ) -> None:
        super().__init__(make_link, make_codec, lanes)
        self._make_injection = make_injection
        self._sharer: Sharer | None = None

    async def __aenter__(self) -> Self:
        """Connect; see :meth:`FlatClient.__aenter__`."""
        self._sharer = None
        return await super().__aenter__()

    async def init(self, params: Mapping[str, object] | None = None) -> Tensors:
        """Agree on the tensors: the first worker seeds the parameters, later ones receive them.

        Args:
            params: Arrays by name, numpy's or others' that numpy can read through DLPack or the buffer protocol, in
                float32, float16 or float64; copied. Of torch's tensors those in bfloat16 or on a GPU go as
                ``t.float().cpu()``. None receives whatever the server has, waiting for the first worker if need be.

        Returns:
            The parameters to start from, as :meth:`pull` returns them.

        Raises:
            ShapeMismatch: The tensors are not those that were agreed.
            NotFinite: A parameter is NaN or infinite.
        """
        given = params or {}

        def fill(table: Table, flat: NDArray[np.float32]) -> None:
            pack(table, given, flat)

        check_start(given)
        snapshot = await self.init_flat(specs_of(given), fill)
        return unpack(self.table, snapshot.flat)

    def push(
        self,
        update: Mapping[str, object],
        *,
        base: int | None = None,
        n_samples: int = 1,
        n_steps: int = 1,
        loss: float = math.nan,
        copy: bool = True,
    ) -> Ticket[Version]:
        """Send an update up; returns at once.

        Args:
            update: What is to be added to the parameters, in arrays as :meth:`init` takes them (params - base after
                local steps, or minus the learning rate times a gradient); finite, and the caller's again at once,
                unless ``copy`` is False.
            base: Version it was computed from; the newest received unless given.
            n_samples: Training samples behind it.
            n_steps: Local steps behind it.
            loss: Mean training loss over those steps.
            copy: False lends the update's memory until the ticket is done, instead of copying it: it must not change
                meanwhile. It must be laid out as :meth:`empty` does it. NaN and infinity are then found by the server,
                which refuses the push as a whole.

        Returns:
            A ticket for the version that the update became part of.

        Raises:
            ShapeMismatch: The tensors are not the agreed ones.
            NotFinite: The update holds NaN or infinity; nothing is sent.
            LocalProtocolError: ``base``, ``n_samples`` or ``n_steps`` is no whole number >= 0.
            Busy: Too many pushes wait already.
        """
        flat = self._flat(update, copy=copy)
        ticket = self.push_flat(
            flat,
            base=base,
            n_samples=n_samples,
            n_steps=n_steps,
            loss=loss,
            want=False,
            checked=not copy,
        )
        return ticket.map(lambda snapshot: snapshot.version)

    def pull(self, *, out: Tensors | None = None) -> Ticket[Tensors]:
        """Ask for the newest parameters; returns at once.

        Args:
            out: Where they go: tensors laid out as :meth:`empty` does it, such as an earlier result; on loan until the
                ticket is done. If that fails they may hold anything.

        Returns:
            A ticket for arrays by name, all of one version, the caller's to keep: ``out``, or float32 tensors that are
            views of one vector and others converted (bfloat16 comes as float32).

        Raises:
            ShapeMismatch: ``out`` is not laid out like that, or read-only.
        """
        table, flat = self.table, self._landing(out)
        return self.pull_flat(flat).map(lambda snapshot: out or unpack(table, snapshot.flat))

    def empty(self) -> Tensors:
        """Return arrays of undefined values for all tensors, for updates that are sent without a copy.

        They are views of one float32 vector in the order of the agreed table; write into them, and do not put other
        arrays in their place.

        Raises:
            LocalProtocolError: Nothing is agreed yet.
            ShapeMismatch: A tensor is not float32: it is converted on the way, and nothing can be lent.
        """
        tensors = unpack(self.table, self._spares.take())
        flat_of(self.table, tensors, "what empty() makes")
        return tensors

    def sync(
        self,
        update: Mapping[str, object],
        *,
        base: int | None = None,
        n_samples: int = 1,
        n_steps: int = 1,
        loss: float = math.nan,
        copy: bool = True,
        out: Tensors | None = None,
    ) -> Ticket[Tensors]:
        """Send an update up and get the model that contains it, in one round trip; returns at once.

        The arguments are those of :meth:`push` and :meth:`pull`, the result is that of :meth:`pull`. Nothing is copied
        with ``update = ps.empty()`` once, and then ``params = await ps.sync(update, copy=False, out=params)``.
        """
        table, landing = self.table, self._landing(out)
        ticket = self.push_flat(
            self._flat(update, copy=copy),
            base=base,
            n_samples=n_samples,
            n_steps=n_steps,
            loss=loss,
            out=landing,
            checked=not copy,
        )
        return ticket.map(lambda snapshot: out or unpack(table, snapshot.flat))

    async def share(
        self, samples: NDArray[Any], labels: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Trade a batch for its first samples and what other workers gave of theirs, where the server says so.

        Donors are drawn by the server; a worker that is one gives some of what it keeps. It waits until all donors
        of the round have given, are gone, or wait for their model, but no longer than a lease. Workers share equally
        often between two pushes, or the last calls bring less. The first call after joining brings nothing yet. Push
        with ``n_samples=len(labels)`` of what comes back.

        Args:
            samples: Shape (n, ...), integers or floats, the same shape and dtype on every worker unless n is 0.
            labels: Shape (n,), whole numbers.

        Returns:
            Samples and labels (int64), in memory of their own. :attr:`shared` tells how many are this worker's.

        Raises:
            ConfigError: It is no such batch, or the server shares no samples; nothing is sent.
            LocalProtocolError: Another call is under way.
            ShapeMismatch: Others' samples look different.
            Refused: The server did not take what this worker gave, which may be too large; nobody waits for it.
            TransportError: The line to the server is lost for good.
        """
        records = Records.of(samples, labels)
        if self._sharer is None:
            name = self.policy.injection
            if not name:
                raise ConfigError("the server shares no samples, start it with an injection")
            self._sharer = Sharer(self._link, self._make_injection(name))
        mixed = await self._sharer.share(records, self.worker)
        return mixed.samples, mixed.labels

    @property
    def shared(self) -> Shipment | None:
        """What the last :meth:`share` came to; None before the first."""
        return None if self._sharer is None else self._sharer.last

    def _flat(self, update: Mapping[str, object], *, copy: bool) -> NDArray[np.float32]:
        if not copy:
            return flat_of(self.table, update, "update")
        table = self.table
        flat = self._spares.take()
        pack(table, update, flat)
        return flat

    def _landing(self, out: Tensors | None) -> NDArray[np.float32] | None:
        return None if out is None else landing_of(self.table, out)
