"""The asyncio shell of a server: connections and members come and go, messages find their way.

One task owns everything (:meth:`Service.run`); sweeps, checks, merges and answers are its children.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from aiops.buffers import BufferPool
from aiops.codec.base import DENSE, Codec
from aiops.config import ServerConfig
from aiops.policy.base import Place
from aiops.server.advice import make_engine
from aiops.server.answer import send_model
from aiops.server.autopilot import Autopilot
from aiops.server.event import Event as EngineEvent
from aiops.server.event import Left
from aiops.server.handshake import Handshake
from aiops.server.landing import Landings
from aiops.server.members import Member, Members
from aiops.server.merger import Merger
from aiops.server.peer import Peer
from aiops.server.seeding import Seeding
from aiops.server.sharing import Sharing
from aiops.server.status import report
from aiops.server.store import Store
from aiops.server.streaming import make_arrivals
from aiops.server.sweep import sweep
from aiops.server.threads import Threads
from aiops.server.waiters import Waiters
from aiops.transport.lane import Lane
from aiops.types import Key, TensorSpec, WorkerId
from aiops.wire.frame import Header, Kind
from aiops.wire.message import Ping, Push, Report
from aiops.wire.reader import HOLD, Landing
from aiops.wire.session import Event
from aiops.wire.table import Table

log = logging.getLogger("aiops.server")

# How long goodbyes may take before connections are cut.
GRACE_S = 0.5


class Service:
    """A parameter server without its sockets.

    Args:
        config: What it is told.
        place: Which shard holds which key.
        codecs: How payloads are read, by wire id.
        library: Version of this library, for the handshake.
        rounds: Versions after which workers are told that training is over; None is never.
        lanes: The transport's threads, one per shard; none where the loop does everything.

    Attributes:
        counters: What happened so far, by name.
        pool: Where payloads and snapshots live.
        peers: The open connections.
        ready: Set once the service runs.
        autopilot: What turns improvements on by itself; None where nothing does.
        landings: How much may be on its way in.
        waiters: Who waits for a version.
        handshake: How workers come in.
        sharing: The samples that workers share.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        place: Place,
        codecs: Mapping[int, Codec],
        library: str,
        rounds: int | None = None,
        lanes: Sequence[Lane] = (),
    ) -> None:
        self.config = config
        self.rounds = rounds
        self.counters: Counter[str] = Counter()
        self.pool = BufferPool()
        self.engine = make_engine(
            config.sync,
            config.weights,
            config.work,
            min_workers=config.min_workers,
            needs_data=config.needs_data,
            fold=config.fold == "arrival",
        )
        self.members = Members(lease_s=config.lease_s)
        self.store = Store(
            self.pool,
            shards=config.shards,
            bucket_bytes=config.chunk_bytes,
            place=place,
            rules=config.rules,
            down=None if config.down.wire_id == DENSE else config.down,
            fragments=config.fragments,
            chunks=config.chunks,
        )
        self.autopilot = (
            None if config.topk is None else Autopilot(self, config.automatic, config.topk)
        )
        self.waiters = Waiters(self.engine)
        self.peers: set[Peer] = set()
        self.ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.landings = Landings(self)
        self._threads = Threads()
        self._arrivals = make_arrivals(self, codecs, lanes, self._threads)
        self._merger = Merger(self, codecs, self._arrivals, self._threads)
        self._seeding = Seeding(self.store, functools.partial(send_model, self))
        self.handshake = Handshake(self, library)
        self.sharing = Sharing(self, config.injection, self._merger.waits)
        self.wants = self.sharing.wants
        self._stopping = asyncio.Event()
        self._reason = ""
        self._failure: BaseException | None = None
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Serve until :meth:`stop`; a bug of ours ends it with its exception."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                sweeper = self._tasks.create_task(self._guarded(sweep(self)), name="sweep")
                self.ready.set()
                await self._stopping.wait()
                sweeper.cancel()
                for peer in list(self.peers):
                    self.spawn(peer.bye(self._reason), "bye")
        finally:
            # Only a cancelled service has connections left here.
            self._stopping.set()
            self.cut()
            try:
                for peer in list(self.peers):
                    await peer.connection.close()
            finally:
                self._threads.close()
                self._arrivals.close()
                self._merger.close()
                self.sharing.close()
                self.store.close()
                self.waiters.end()
        if self._failure is not None:
            raise self._failure

    def spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        """Run a child task; a bug in it takes the server down."""
        self._tasks.create_task(self._guarded(work), name=name)

    def stop(self, reason: str) -> None:
        """Say goodbye to every worker and end :meth:`run`."""
        self._reason = self._reason or reason
        self._stopping.set()

    def cut(self) -> None:
        """Abort the connections that did not take their goodbye in time."""
        for peer in list(self.peers):
            peer.connection.abort()

    def fail(self, error: BaseException) -> None:
        """Take the server down with this exception, or the first one of a group."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        log.critical("server ends, this is a bug: %r", error, exc_info=error)
        if self._failure is None:
            self._failure = error
            self._loop.call_later(GRACE_S, self.cut)
        self.stop("server failed")

    def seed(self, specs: Sequence[TensorSpec], flat: NDArray[np.float32]) -> None:
        """Start from these parameters instead of the first worker's.

        Args:
            specs: The tensors, in the order of the flat vector.
            flat: float32, shape (sum of sizes,), finite; copied.

        Raises:
            ShapeMismatch: The tensors cannot be held.
        """
        table = self.store.agree(specs)
        self.store.load(
            {Key(i): flat[b.start : b.stop] for i, b in enumerate(table.buckets)},
        )

    # Connections.

    def make_peer(self) -> Peer:
        """Return the receiver of a new connection."""
        return Peer(self, self.pool, part=self._arrivals.part)

    def adopt(self, peer: Peer) -> None:
        """Take a new connection in, or turn it away at the end."""
        if self._stopping.is_set():
            peer.connection.abort()
            return
        self.peers.add(peer)
        self.spawn(peer.write(), f"write to {peer.connection.peer}")

    @property
    def table(self) -> Table | None:
        """The agreed key table."""
        return self.store.table

    def lost(self, peer: Peer, error: Exception | None) -> None:
        """Note that a connection is over; its member keeps its lease."""
        self.peers.discard(peer)
        if peer.member is not None and peer.member.peer is peer:
            peer.member.peer = None
            peer.member.last_heard = max(peer.member.last_heard, peer.connection.last_heard)
            log.info("worker %d is disconnected: %s", peer.member.worker, error or "closed")
        self._arrivals.lost(peer)
        self.landings.lost(peer)
        self._merger.lost(peer)
        self._seeding.lost(peer)
        self.sharing.lost(peer)

    def land(self, peer: Peer, header: Header, message: Push) -> Landing | None:
        """Choose where a bucket of a push goes; None leaves it to the peer, HOLD has it wait."""
        if not self.landings.may_land(peer, header, message):
            return HOLD
        return self._arrivals.land(peer, header, message)

    def close(self, peer: Peer) -> None:
        """Say goodbye on a connection and close it once that has left."""
        self.spawn(peer.bye("left"), "close")

    def drop(self, member: Member, reason: str) -> None:
        """End a membership: whoever waits for this worker waits no longer."""
        self.members.leave(member)
        self.counters[f"left_{reason}"] += 1
        log.info("worker %d leaves: %s", member.worker, reason)
        peer, member.peer = member.peer, None
        if peer is not None and reason != "left":
            peer.connection.abort()
        self.store.left(member.worker)
        self.sharing.left(member.worker)
        self.feed(Left(member.worker))

    def dispatch(self, peer: Peer, event: Event) -> None:
        """Act on a whole message."""
        if event.kind is Kind.HELLO or peer.member is None:
            self.handshake.greet(peer, event)
            return
        peer.member.last_heard = self._loop.time()
        match event.kind:
            case Kind.PUSH:
                self._merger.push(peer, event)
            case Kind.PULL:
                send_model(self, peer, event.request)
            case Kind.INIT:
                self._seeding.init(peer, event)
            case Kind.SEED:
                self._seeding.seed(peer, event)
            case Kind.PING:
                peer.post(Kind.PONG, Ping())
            case Kind.STATUS:
                peer.post(Kind.REPORT, Report(report(self)), event.request)
            case Kind.QUERY:
                self._merger.ask(peer, event)
            case Kind.CHOOSE:
                self._merger.choose(peer, event)
            case Kind.SHARE:
                self.sharing.share(peer, event)
            case Kind.LEAVE if peer.member.peer is peer:
                self.drop(peer.member, "left")
                self.close(peer)
            case Kind.LEAVE | Kind.BYE | Kind.PONG:
                pass
            case _:
                raise AssertionError(f"session let {event.kind!r} through")

    def leads(self, worker: WorkerId) -> bool:
        """Return whether a worker's next push is to choose its round's positions."""
        return self._merger.leads(worker)

    def feed(self, event: EngineEvent) -> None:
        """Tell the engine what happened and do what it says."""
        self._merger.feed(event)

    async def _guarded(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:
            self.fail(error)
