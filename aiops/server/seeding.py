"""The start of a run: the first worker seeds the parameters, later ones receive them.

While one worker is seeding the others wait; if it goes away before it is done, the next in line takes over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aiops.codec.base import DENSE
from aiops.errors import Busy, NotFinite, Refused, ShapeMismatch
from aiops.kernels import first_nonfinite
from aiops.server.answer import handed
from aiops.server.peer import Peer, whole_table
from aiops.server.store import Store
from aiops.server.table import check_same
from aiops.types import Key, TensorSpec, Version
from aiops.wire.frame import Kind
from aiops.wire.message import Ack, Agreed, Init
from aiops.wire.session import Event

# Requests of one connection that may wait for the first parameters: each holds its tensors' names.
MAX_WAITING = 4


@dataclass(frozen=True, slots=True)
class _Waiting:
    peer: Peer
    request: int
    specs: tuple[TensorSpec, ...]


class Seeding:
    """Decides who seeds, and serves everybody else afterwards.

    Args:
        store: Where the parameters go.
        answer: Sends a peer the newest model in answer to a request.
    """

    def __init__(self, store: Store, answer: Callable[[Peer, int], None]) -> None:
        self._store = store
        self._answer = answer
        self._seeder: _Waiting | None = None
        self._line: deque[_Waiting] = deque()

    def init(self, peer: Peer, event: Event) -> None:
        """A worker shows its tensors; none at all asks for whatever is there."""
        assert isinstance(event.body, Init)
        waiting = _Waiting(peer, event.request, event.body.tensors)
        if self._store.seeded:
            self._serve(waiting)
        elif self._seeder is None and waiting.specs:
            self._appoint(waiting)
        elif sum(other.peer is peer for other in self._line) < MAX_WAITING:
            self._line.append(waiting)
        else:
            peer.refuse(
                event.request, Busy(f"{MAX_WAITING} requests wait for the first parameters")
            )

    def seed(self, peer: Peer, event: Event) -> None:
        """Take the first parameters."""
        seeder = self._seeder
        try:
            if seeder is None or seeder.peer is not peer or seeder.request != event.request:
                raise Refused("nobody asked this worker for parameters")
            self._load(event)
        except Refused as error:
            peer.refuse(event.request, error)
            if seeder is not None and seeder.peer is peer:
                self._next()
            return
        finally:
            event.release()
        self._seeder = None
        handed(self._store, peer, Version(0))
        peer.post(Kind.ACK, Ack(0, 0), event.request)
        line, self._line = self._line, deque()
        for waiting in line:
            self._serve(waiting)

    def lost(self, peer: Peer) -> None:
        """Forget a peer whose connection is over."""
        self._line = deque(waiting for waiting in self._line if waiting.peer is not peer)
        if self._seeder is not None and self._seeder.peer is peer:
            self._next()

    @property
    def seeder(self) -> Peer | None:
        """Whose parameters are awaited."""
        return None if self._seeder is None else self._seeder.peer

    def _appoint(self, waiting: _Waiting) -> None:
        try:
            table = self._store.agree(waiting.specs)
        except Refused as error:
            waiting.peer.refuse(waiting.request, error)
            return
        self._seeder = waiting
        waiting.peer.send_table(Agreed(table, seed=True), waiting.request)

    def _next(self) -> None:
        self._seeder = None
        self._store.forget()
        spectators: list[_Waiting] = []
        while self._line and self._seeder is None:
            waiting = self._line.popleft()
            if waiting.specs:
                self._appoint(waiting)
            else:
                spectators.append(waiting)
        self._line.extendleft(reversed(spectators))

    def _serve(self, waiting: _Waiting) -> None:
        table = self._store.require()
        try:
            if waiting.specs:
                check_same(table, waiting.specs)
        except ShapeMismatch as error:
            waiting.peer.refuse(waiting.request, error)
            return
        waiting.peer.send_table(Agreed(table, seed=False), waiting.request)
        self._answer(waiting.peer, waiting.request)

    def _load(self, event: Event) -> None:
        table = self._store.table
        assert table is not None
        if not whole_table([part.header.key for part in event.parts], table):
            raise ShapeMismatch(
                f"seed has {len(event.parts)} parts, one for each of {len(table.buckets)} keys is due"
            )
        values = {}
        for part in event.parts:
            key, size = Key(part.header.key), table.buckets[part.header.key].size
            if part.header.codec != DENSE or len(part.payload) != 4 * size:
                raise ShapeMismatch(
                    f"seed of key {key} has {len(part.payload)} bytes in codec {part.header.codec}, "
                    f"{4 * size} bytes of dense float32 are due"
                )
            values[key] = np.frombuffer(part.payload, np.float32)
            position = first_nonfinite(values[key])
            if position >= 0:
                raise NotFinite(f"seed holds NaN or infinity in {self._store.where(key, position)}")
        self._store.load(values)
