"""What the server's tests share: a worker driven by hand, threads that wait, and a model of one value."""

import asyncio
import math

import numpy as np

from aiops.sim.cluster import Cluster
from aiops.types import DTYPE_IDS, TensorSpec
from aiops.wire.frame import Kind
from aiops.wire.message import Choose, Hello, Init, Leave, Pull, Push, Seed
from aiops.wire.reader import Landing
from aiops.wire.session import Role, Session

ONES = np.ones(4, np.float32)

# More values than go through on the loop, so that pushes are checked and merged by the shard's thread.
MANY = 300_000

LEASE = {"lease_s": 5.0, "heartbeat_s": 1.0}


def cluster(n=4, **spec):
    """A server whose model is ``n`` zeros."""
    return Cluster(params={"w": np.zeros(n, np.float32)}, **spec)


def value(house):
    """Return the value that all parameters have."""
    (only,) = set(house.server.params()["w"].tolist())
    return only


def count(house, name):
    return house.server.status()["counters"].get(name, 0)


async def settle():
    """Let what was sent arrive: a connection that is aborted takes its last bytes with it."""
    await asyncio.sleep(0.1)


class Hand:
    """One connection of one worker; every verb returns the event that the server answers with.

    Attributes:
        connection: The live link, to be cut or to post bytes on.
        session: The protocol state, which numbers requests.
        pings: Signs of life that the server has sent.
        lost: Done when the connection is over.
    """

    def __init__(self):
        self.session = Session(Role.WORKER)
        self.events = asyncio.Queue()
        self.pings = 0
        self.lost = asyncio.get_running_loop().create_future()

    # What the transport wants of a receiver.

    def place(self, header):
        self.session.admit(header)
        return Landing(memoryview(bytearray(header.size)))

    def frame_received(self, frame):
        event = self.session.receive(frame)
        if event is not None and event.kind is Kind.PING:
            self.pings += 1
        elif event is not None:
            self.events.put_nowait(event)

    def connection_lost(self, error):
        self.session.close()
        self.lost.set_result(error)
        self.events.put_nowait(None)

    # What a test says.

    async def hello(self, identity="hand", incarnation=1, *, token=None, name=""):
        hello = Hello(0, "test", 0, identity, incarnation, token, name)
        self.connection.post(self.session.send(Kind.HELLO, hello))
        return await self.events.get()

    async def ask(self, kind, body):
        number = self.session.next_request()
        self.connection.post(self.session.send(kind, body, request=number))
        return await self.events.get()

    async def pull(self):
        return await self.ask(Kind.PULL, Pull())

    async def init(self, *specs):
        await self.send_init(*specs)
        return await self.events.get()

    async def send_init(self, *specs):
        """Ask for the table, and let the question arrive."""
        init = Init(tuple(TensorSpec(*spec) for spec in specs))
        number = self.session.next_request()
        self.connection.post(self.session.send(Kind.INIT, init, request=number))
        await settle()

    async def seed(self, request, *parts):
        head = self.session.send(Kind.SEED, Seed(len(parts)), request=request)
        await self.connection.send([(head, ()), *self.tensors(request, parts)])
        return await self.events.get()

    async def push(self, sequence, *parts, **options):
        """Send a push and return its answer; see :meth:`send_push`."""
        await self.send_push(sequence, *parts, **options)
        return await self.events.get()

    async def send_push(
        self,
        sequence,
        *parts,
        base=0,
        n_samples=1,
        n_steps=1,
        loss=math.nan,
        want=False,
        step_s=0.0,
        sync_s=0.0,
        number=None,
        split=False,
        holds=None,
        fragment=None,
        payload_bytes=0,
        choice=None,
    ):
        """Send a push; ``parts`` are arrays (key = position) or dicts of key, data, codec, dtype."""
        number = self.session.next_request() if number is None else number
        push = Push(
            sequence=sequence,
            base=base,
            clock=0,
            n_samples=n_samples,
            n_steps=n_steps,
            loss=loss,
            parts=len(parts),
            want=want,
            step_s=step_s,
            sync_s=sync_s,
            holds=holds,
            fragment=fragment,
            payload_bytes=payload_bytes,
            choice=choice,
        )
        head = self.session.send(Kind.PUSH, push, request=number)
        frames = [(head, ()), *self.tensors(number, parts)]
        for group in [[frame] for frame in frames] if split else [frames]:
            await self.connection.send(group)
        return number

    async def choose(self, *parts, lead=None):
        """Ask for the positions of the round, or send some; see :meth:`send_push`."""
        await self.send_choose(*parts, lead=lead)
        return await self.events.get()

    async def send_choose(self, *parts, lead=None):
        number = self.session.next_request()
        choose = Choose(bool(parts) if lead is None else lead, len(parts))
        head = self.session.send(Kind.CHOOSE, choose, request=number)
        await self.connection.send([(head, ()), *self.tensors(number, parts)])

    def tensors(self, number, parts):
        for position, part in enumerate(parts):
            given = part if isinstance(part, dict) else {"data": part}
            data = memoryview(np.ascontiguousarray(given["data"]).view(np.uint8).data)
            head = self.session.tensor(
                number,
                given.get("key", position),
                len(data),
                codec=given.get("codec", 1),
                dtype=given.get("dtype", DTYPE_IDS["float32"]),
                version=0,
            )
            yield head, (data,)

    async def leave(self):
        self.send_leave()
        return await self.events.get()

    def send_leave(self):
        self.connection.post(self.session.send(Kind.LEAVE, Leave()))

    def send_pull(self):
        number = self.session.next_request()
        self.connection.post(self.session.send(Kind.PULL, Pull(), request=number))


class Threads:
    """Stands in for the merger's threads: what goes there is done when the test says so."""

    def __init__(self, monkeypatch):
        self.waiting = []
        monkeypatch.setattr("aiops.server.merger.Merger._in_thread", self.in_thread)

    async def in_thread(self, _, work, *args):
        gate = asyncio.get_running_loop().create_future()
        self.waiting.append(gate)
        await gate
        return work(*args)

    async def go(self, n=1):
        while len(self.waiting) < n:  # noqa: ASYNC110 -- virtual time: it costs nothing
            await asyncio.sleep(0.01)
        gates, self.waiting = self.waiting, []
        for gate in gates:
            gate.set_result(None)
        await asyncio.sleep(0.01)
