"""What the transport tests share: a receiver that remembers, and grounds to play on (a transport on a loop)."""

import asyncio
import contextlib
import itertools
from dataclasses import dataclass

import numpy as np

from aiops.buffers import BufferPool
from aiops.transport import nearest, tcp
from aiops.transport.lane import Lane
from aiops.transport.memory import MemoryNetwork
from aiops.transport.stream import StreamConnection
from aiops.wire.frame import Header, Kind, frame_bytes
from aiops.wire.reader import Landing
from tests.certificates import contexts

MIB = 1024 * 1024
LIMIT = 256 * MIB

# A deadline that no test means to reach.
IDLE_S = 30.0
OPTIONS = {"max_frame_bytes": LIMIT, "idle_timeout_s": IDLE_S}


class Inbox:
    """A receiver that keeps what it gets, in pooled memory; its waits are for conditions, never for time."""

    def __init__(self):
        self.pool = BufferPool()
        self.placed = []
        self.frames = []
        self.losses = []
        self.skip = False
        self.make = Landing
        self.on_place = lambda header: None
        self.on_frame = lambda frame: None
        self._changed = asyncio.Event()

    def place(self, header):
        self.placed.append(header)
        self.on_place(header)
        if self.skip:
            return None
        block = self.pool.take(header.size)
        return self.make(block.view, block)

    def frame_received(self, frame):
        self.frames.append(frame)
        self._changed.set()
        self.on_frame(frame)

    def connection_lost(self, error):
        self.losses.append(error)
        self._changed.set()

    async def until(self, condition):
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def received(self, count):
        await self.until(lambda: len(self.frames) >= count or self.losses)
        assert len(self.frames) >= count, self.losses

    async def lost(self):
        await self.until(lambda: self.losses)
        return self.losses[0]

    @property
    def kinds(self):
        return [frame.header.kind for frame in self.frames]

    @property
    def keys(self):
        return [frame.header.key for frame in self.frames]

    @property
    def requests(self):
        return [frame.header.request for frame in self.frames]

    @property
    def payloads(self):
        return [bytes(frame.payload) for frame in self.frames]

    def release(self):
        for frame in self.frames:
            frame.release()


@dataclass
class End:
    """One end of a connection and who hears what comes in there."""

    connection: StreamConnection
    inbox: Inbox

    def stop_inside_a_frame(self):
        """Read no further than into the next bulk payload."""
        self.inbox.on_place = lambda header: self.connection.pause_reading()


class Ground:
    """A transport on a loop; ``pair`` is how a test gets two connected ends, and called it makes the loop."""

    def __init__(self, transport, make_loop):
        self.transport = transport
        self._make_loop = make_loop

    def __call__(self):
        return self._make_loop()

    def network(self):
        if self.transport == "memory":
            return MemoryNet()
        if self.transport == "tls":
            return TcpNet(contexts=contexts())
        make = ShmNet if self.transport.startswith("shm") else TcpNet
        return make(lanes=2 if self.transport.endswith("with lanes") else 0)

    @contextlib.asynccontextmanager
    async def pair(self, *, limit=LIMIT, idle_s=IDLE_S, **links):
        """Connect two ends; afterwards each has been lost exactly once and has nothing on loan."""
        network, near, far = self.network(), Inbox(), Inbox()
        made = []
        options = {"max_frame_bytes": limit, "idle_timeout_s": idle_s}
        await network.listen(lambda: far, made=lambda *accepted: made.append(accepted), **options)
        dialled = await network.connect(lambda: near, **options, **links)
        await until(lambda: made)
        ((receiver, accepted),) = made
        assert receiver is far
        ends = End(dialled, near), End(accepted, far)
        try:
            yield ends
        finally:
            await network.listener.close()
            for end in ends:
                end.connection.abort()
            for end in ends:
                await end.inbox.lost()
                end.inbox.release()
                assert len(end.inbox.losses) == 1
                assert end.inbox.pool.outstanding == 0
            network.close()


class TcpNet:
    """TCP over loopback, with mutual TLS or without, on a port that the system chooses."""

    def __init__(self, lanes=0, contexts=(None, None)):
        self._contexts = contexts
        self._lanes = [
            [Lane(f"{end} {number}") for number in range(lanes)] for end in ("near", "far")
        ]

    async def listen(self, make_receiver, *, port=0, **options):
        options = {"lanes": self._lanes[1], "tls": self._contexts[0], **options}
        self.listener = await tcp.listen("127.0.0.1", port, make_receiver, **options)
        return self.listener

    async def connect(self, make_receiver, **options):
        options = {"lanes": self._lanes[0], "tls": self._contexts[1], **options}
        return await tcp.connect(self.listener.addresses, make_receiver, **options)

    def close(self):
        for lane in itertools.chain(*self._lanes):
            lane.close()


class ShmNet(TcpNet):
    """Shared memory, at the door beside a TCP port that the system chooses."""

    async def listen(self, make_receiver, *, port=0, **options):
        options = {"lanes": self._lanes[1], **options}
        self.listener = await nearest.listen("127.0.0.1", port, make_receiver, **options)
        return self.listener

    async def connect(self, make_receiver, **options):
        options = {"lanes": self._lanes[0], **options}
        return await nearest.connect_shared(self.listener.addresses[0], make_receiver, **options)


class MemoryNet:
    """A network in memory with one name."""

    def close(self):
        """Nothing outlives it."""

    def __init__(self):
        self._network = MemoryNetwork()

    async def listen(self, make_receiver, *, port=None, **options):
        self.listener = await self._network.listen("server", make_receiver, **options)
        return self.listener

    async def connect(self, make_receiver, **options):
        return await self._network.connect("server", make_receiver, **options)


@contextlib.asynccontextmanager
async def accepting(host="127.0.0.1", *, listen=tcp.listen, **options):
    """Listen, on TCP unless told; give the address, and the list of what was accepted as (inbox, connection)."""
    accepted = []
    listener = await listen(
        host, 0, Inbox, made=lambda *made: accepted.append(made), **{**OPTIONS, **options}
    )
    try:
        yield listener.addresses[0], accepted
    finally:
        await listener.close()
        for inbox, connection in accepted:
            connection.abort()
            await inbox.lost()
            inbox.release()
            assert inbox.pool.outstanding == 0


def tensor(key, *views, request=1):
    """Return a TENSOR frame whose payload is all the views."""
    views = [memoryview(view).cast("B") for view in views]
    return Header(Kind.TENSOR, 1, 1, request, key, 0, sum(map(len, views))).pack(), views


def ping(number=0, *, size=1):
    """Return a small control frame with a number on it; nobody looks at its payload."""
    return frame_bytes(Kind.PING, bytes([number % 251]) * size, request=number)


def filled(size, value):
    return np.full(size, value, np.uint8)


def bulk(key, mib=64):
    """Return a TENSOR frame that no kernel and no window holds; its zeros cost no memory."""
    return tensor(key, np.zeros(mib * MIB, np.uint8))


async def until(condition):
    """Let the loop turn until something is so that no event tells of."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def stalled(connection):
    """Wait until nothing leaves any more: it may not write, and has not written for a while."""
    before = -1
    while not connection._paused or connection.sent_bytes != before:
        before = connection.sent_bytes
        await asyncio.sleep(0.02)
