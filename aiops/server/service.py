"""The asyncio shell of a server: executes what the engine decides and feeds the results back.

One task owns everything (:meth:`Service.run`); sweeps, checks, merges and answers are its children.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from aiops.buffers import BufferPool
from aiops.codec.base import Codec
from aiops.config import ServerConfig
from aiops.errors import Busy, Refused
from aiops.policy.base import Place
from aiops.server.admission import AdmittedPush, check_parts
from aiops.server.engine import (
    Action,
    Answer,
    Decline,
    Engine,
    Joined,
    Left,
    Merge,
    Merged,
    MergeFailed,
    Pushed,
)
from aiops.server.engine import Event as EngineEvent
from aiops.server.handshake import Handshake
from aiops.server.members import Member, Members, Taken
from aiops.server.peer import Peer, Reply
from aiops.server.seeding import Seeding
from aiops.server.status import report
from aiops.server.store import Store
from aiops.types import Key, TensorSpec, Version
from aiops.wire.frame import Kind
from aiops.wire.message import Ack, Bye, Model, Ping, Push, Report
from aiops.wire.session import Event
from aiops.wire.table import Table

log = logging.getLogger("aiops.server")

T = TypeVar("T")

# A pass over so many bytes takes well under a millisecond and stays on the loop; more goes to a shard's own thread.
INLINE_BYTES = 1024 * 1024

# How long goodbyes may take before connections are cut.
GRACE_S = 0.5

# How often leases and handshakes are looked at, in a lease.
SWEEPS_PER_LEASE = 8


class Service:
    """A parameter server without its sockets.

    Args:
        config: What it is told.
        place: Which shard holds which key.
        codecs: How payloads are read, by wire id.
        library: Version of this library, for the handshake.
        rounds: Versions after which workers are told that training is over; None is never.

    Attributes:
        counters: What happened so far, by name.
        pool: Where payloads and snapshots live.
        peers: The open connections.
        ready: Set once the service runs.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        place: Place,
        codecs: Mapping[int, Codec],
        library: str,
        rounds: int | None = None,
    ) -> None:
        self.config = config
        self.rounds = rounds
        self.counters: Counter[str] = Counter()
        self.pool = BufferPool()
        self.engine = Engine(
            config.sync, config.weights, config.work, min_workers=config.min_workers
        )
        self.members = Members(lease_s=config.lease_s)
        self.store = Store(
            self.pool, shards=config.shards, bucket_bytes=config.bucket_bytes, place=place
        )
        self.peers: set[Peer] = set()
        self.ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._codecs = codecs
        self._seeding = Seeding(self.store, self._send_model)
        self._handshake = Handshake(self, library)
        self._pending: dict[tuple[str, int], AdmittedPush] = {}
        self._actions: deque[Action] = deque()
        self._acting = False
        self._versions = asyncio.Condition()
        self._stopping = asyncio.Event()
        self._reason = ""
        self._failure: BaseException | None = None
        self._tasks: asyncio.TaskGroup
        self._threads: list[ThreadPoolExecutor] = []

    async def run(self) -> None:
        """Serve until :meth:`stop`; a bug of ours ends it with its exception."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                sweeper = self._tasks.create_task(self._sweep(), name="sweep")
                self.ready.set()
                await self._stopping.wait()
                sweeper.cancel()
                for peer in list(self.peers):
                    self._tasks.create_task(peer.bye(self._reason), name="bye")
        finally:
            for thread in self._threads:
                thread.shutdown()
            for push in self._pending.values():
                push.release()
            self._pending.clear()
            self.store.close()
        if self._failure is not None:
            raise self._failure

    def stop(self, reason: str) -> None:
        """Say goodbye to every worker and end :meth:`run`."""
        self._reason = self._reason or reason
        self._stopping.set()

    def cut(self) -> None:
        """Abort the connections that did not take their goodbye in time."""
        for peer in list(self.peers):
            peer.connection.abort()

    def fail(self, error: BaseException) -> None:
        """Take the server down with this exception."""
        log.critical("server ends, this is a bug: %r", error)
        self._failure = self._failure or error
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

    async def version_after(self, version: int) -> int:
        """Wait until more than ``version`` rounds are closed; return how many are."""
        async with self._versions:
            await self._versions.wait_for(lambda: self.engine.version > version)
        return self.engine.version

    # Connections.

    def make_peer(self) -> Peer:
        """Return the receiver of a new connection."""
        return Peer(self, self.pool)

    def adopt(self, peer: Peer) -> None:
        """Take a new connection in."""
        self.peers.add(peer)
        self._tasks.create_task(peer.write(), name=f"write to {peer.connection.peer}")

    @property
    def table(self) -> Table | None:
        """The agreed key table."""
        return self.store.table

    def lost(self, peer: Peer, error: Exception | None) -> None:
        """Note that a connection is over; its member keeps its lease."""
        self.peers.discard(peer)
        self._seeding.lost(peer)
        if peer.member is not None and peer.member.peer is peer:
            peer.member.peer = None
            peer.member.last_heard = max(peer.member.last_heard, peer.connection.last_heard)
            log.info("worker %d is disconnected: %s", peer.member.worker, error or "closed")

    def close(self, peer: Peer) -> None:
        """Close a connection once what is posted on it has left."""
        self._tasks.create_task(peer.connection.close(), name="close")

    def drop(self, member: Member, reason: str) -> None:
        """End a membership: whoever waits for this worker waits no longer."""
        self.members.leave(member)
        self.counters[f"left_{reason}"] += 1
        log.info("worker %d leaves: %s", member.worker, reason)
        peer, member.peer = member.peer, None
        if peer is not None and reason != "left":
            peer.member = None
            peer.connection.abort()
        self.feed(Left(member.worker))

    def dispatch(self, peer: Peer, event: Event) -> None:
        """Act on a whole message."""
        if event.kind is Kind.HELLO or peer.member is None:
            self._handshake.greet(peer, event)
            return
        peer.member.last_heard = self._loop.time()
        match event.kind:
            case Kind.PUSH:
                self._push(peer, event)
            case Kind.PULL:
                self._send_model(peer, event.request)
            case Kind.INIT:
                self._seeding.init(peer, event)
            case Kind.SEED:
                self._seeding.seed(peer, event)
            case Kind.PING:
                peer.post(Kind.PONG, Ping())
            case Kind.STATUS:
                peer.post(Kind.REPORT, Report(report(self)), event.request)
            case Kind.LEAVE:
                self.drop(peer.member, "left")
                peer.post(Kind.BYE, Bye("left"))
            case Kind.BYE | Kind.PONG:
                pass
            case _:
                raise AssertionError(f"session let {event.kind!r} through")

    # Pushes.

    def _push(self, peer: Peer, event: Event) -> None:
        assert peer.member is not None
        member = peer.member
        push = AdmittedPush(member, peer, event)
        sequence = push.message.sequence
        waiting = self._pending.get((member.identity, sequence))
        if waiting is not None or sequence in member.outcomes or member.is_old(sequence):
            self.counters["pushes_repeated"] += 1
            push.release()
            if waiting is not None:
                waiting.peer, waiting.request = peer, event.request
            else:
                self._repeat(push)
            return
        self._pending[member.identity, sequence] = push
        if push.size_bytes <= INLINE_BYTES:
            self._enter(push, self._verdict(push))
        else:
            self._tasks.create_task(self._check(push), name="check")

    async def _check(self, push: AdmittedPush) -> None:
        self._enter(push, await self._in_thread(0, self._verdict, push))

    def _verdict(self, push: AdmittedPush) -> Refused | None:
        try:
            check_parts(push, self.store, self._codecs)
        except Refused as error:
            return error
        return None

    def _enter(self, push: AdmittedPush, error: Refused | None) -> None:
        message = push.message
        if error is not None:
            self._act([Decline(push, error)])
            return
        self.counters["pushes"] += 1
        self.feed(
            Pushed(
                push.member.worker,
                push,
                base=Version(message.base),
                n_samples=message.n_samples,
                n_steps=message.n_steps,
                loss=message.loss,
                step_s=message.step_s,
                sync_s=message.sync_s,
            )
        )

    # A push that was answered before: say the same again.
    def _repeat(self, push: AdmittedPush) -> None:
        match push.member.outcomes.get(push.message.sequence):
            case Taken() as taken:
                self._confirm(push, taken)
            case Refused() as error:
                push.peer.refuse(push.request, error)
            case _:
                late = f"push {push.message.sequence} was answered long ago"
                push.peer.refuse(push.request, Refused(late))

    def _confirm(self, push: AdmittedPush, taken: Taken) -> None:
        if push.message.want:
            self._send_model(push.peer, push.request, taken)
        else:
            push.peer.post(Kind.ACK, Ack(taken.version, taken.staleness), push.request)

    def _send_model(self, peer: Peer, request: int, taken: Taken | None = None) -> None:
        try:
            self.store.require()
        except Refused as error:
            peer.refuse(request, error)
            return
        if peer.connection.closed or peer.member is None:
            return
        version = self.engine.version
        work = self.engine.work_of(peer.member.worker)
        model = Model(
            version=version,
            staleness=taken.staleness if taken else 0,
            n_merged=taken.n_merged if taken else 0,
            parts=len(self.store.require().buckets),
            done=self.rounds is not None and version >= self.rounds,
            min_steps=work.min_steps,
            max_steps=work.max_steps,
        )
        head = peer.session.send(Kind.MODEL, model, request=request)
        reply = self.store.model(peer.session, request, version)
        peer.queue(Reply([(head, ()), *reply.frames], reply.loans))

    # The engine's hands.

    def feed(self, event: EngineEvent) -> None:
        """Tell the engine what happened and do what it says."""
        self._act(self.engine.handle(event, self._loop.time()))

    # Actions may feed the engine again; they are done in order all the same, without recursion.
    def _act(self, actions: Sequence[Action]) -> None:
        self._actions.extend(actions)
        if self._acting:
            return
        self._acting = True
        try:
            while self._actions:
                match self._actions.popleft():
                    case Merge(handles, weights):
                        self._merge([_push(handle) for handle in handles], weights)
                    case Answer(handle, _, version, staleness, n_merged):
                        push = _push(handle)
                        taken = Taken(version, staleness, n_merged)
                        self._close(push, taken)
                        self._confirm(push, taken)
                    case Decline(handle, error):
                        push = _push(handle)
                        self.counters[f"refused_{type(error).__name__}"] += 1
                        # Busy says nothing about the push itself: sent again, it may well be taken.
                        self._close(push, None if isinstance(error, Busy) else error)
                        push.peer.refuse(push.request, error)
        finally:
            self._acting = False

    def _close(self, push: AdmittedPush, outcome: Taken | Refused | None) -> None:
        self._pending.pop((push.member.identity, push.message.sequence), None)
        if outcome is not None:
            push.member.record(push.message.sequence, outcome)
        push.release()

    def _merge(self, pushes: Sequence[AdmittedPush], weights: Sequence[float]) -> None:
        jobs = self.store.begin(
            [push.parts for push in pushes], weights, self.config.server_lr
        )
        size = sum(shard.size_bytes for shard, _ in jobs) * (len(pushes) + 2)
        if size <= INLINE_BYTES:
            for _, job in jobs:
                job.run()
            self._finish(pushes, self.store.finish(jobs))
            return

        async def merge() -> None:
            async with asyncio.TaskGroup() as group:
                for shard, job in jobs:
                    group.create_task(self._in_thread(shard.shard, job.run))
            self._finish(pushes, self.store.finish(jobs))

        self._tasks.create_task(merge(), name="merge")

    def _finish(self, pushes: Sequence[AdmittedPush], error: Refused | None) -> None:
        if error is not None:
            self.feed(MergeFailed(error))
            return
        for push in pushes:
            push.member.merged += 1
            push.release()
        self.counters["pushes_merged"] += len(pushes)
        self.feed(Merged())
        self._tasks.create_task(self._announce(), name="announce")

    async def _announce(self) -> None:
        async with self._versions:
            self._versions.notify_all()

    # One thread per shard: the loop never computes long, and a shard's numbers have one writer.
    async def _in_thread(self, shard: int, work: Callable[..., T], *args: object) -> T:
        while len(self._threads) <= shard:
            name = f"aiops-shard-{len(self._threads)}"
            self._threads.append(ThreadPoolExecutor(1, thread_name_prefix=name))
        return await self._loop.run_in_executor(self._threads[shard], work, *args)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.config.lease_s / SWEEPS_PER_LEASE)
            now = self._loop.time()
            for peer in list(self.peers):
                if peer.member is not None:
                    heard = max(peer.member.last_heard, peer.connection.last_heard)
                    peer.member.last_heard = heard
                else:
                    self._handshake.hurry(peer, now)
            for member in self.members.expired(now):
                self.drop(member, "lease")


def _push(handle: object) -> AdmittedPush:
    assert isinstance(handle, AdmittedPush)
    return handle
