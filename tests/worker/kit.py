"""A server played by hand, which does what ours never would, and a link that runs against it."""

import asyncio
import random

import numpy as np

from aiops.transport.memory import Link as Wire
from aiops.transport.memory import MemoryNetwork
from aiops.wire.frame import Kind
from aiops.wire.message import Ack, Agreed, Bye, Model, Ping, Policy, Report, Welcome
from aiops.wire.reader import Landing
from aiops.wire.session import Role, Session
from aiops.wire.table import BucketEntry, Table, TensorEntry
from aiops.worker.link import Identity, Link

START = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.float32)}
ONES = {"w": np.ones((2, 3), np.float32), "b": np.ones(2, np.float32)}

POLICY = Policy(False, 1, None, "dense", "reset", 0.5, 0.5, "fixed")
TABLE = Table(
    (TensorEntry("w", (4,), "float32", 0, 4),), (BucketEntry(0, 2, 0), BucketEntry(2, 4, 0))
)


def same(params, expected):
    assert params.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(params[name], expected[name])


def welcome(worker=0):
    return Welcome(0, "", 0, worker, 20.0, 2.0, 15.0, POLICY, 0)


class Door:
    """The server's end of one connection; ``react(door, event)`` plays the server."""

    def __init__(self, react):
        self.session = Session(Role.SERVER)
        self.heard = []
        self.react = react
        self.lost = asyncio.get_running_loop().create_future()

    def place(self, header):
        self.session.admit(header)
        return Landing(memoryview(bytearray(header.size)))

    def frame_received(self, frame):
        event = self.session.receive(frame)
        if event is not None:
            self.heard.append(event.kind)
            self.react(self, event)

    def connection_lost(self, error):
        self.session.close()
        self.lost.set_result(error)

    def say(self, kind, body, request=0):
        self.connection.post(self.session.send(kind, body, request=request))

    def model(self, request, flat=(1, 2, 3, 4), *, version=7, keys=(0, 1), part_version=7):
        self.say(Kind.MODEL, Model(version, 0, 1, len(keys)), request)
        for key in keys:
            data = np.array(flat, np.float32)[2 * key : 2 * key + 2].tobytes()
            head = self.session.tensor(
                request, key, len(data), codec=1, dtype=1, version=part_version
            )
            self.connection.post(head + data)


def friendly(door, event):
    """Answer like a server that has closed seven rounds."""
    match event.kind:
        case Kind.HELLO:
            door.say(Kind.WELCOME, welcome())
        case Kind.PING:
            door.say(Kind.PONG, Ping())
        case Kind.PULL:
            door.model(event.request)
        case Kind.PUSH:
            door.say(Kind.ACK, Ack(8, 1), event.request)
        case Kind.STATUS:
            door.say(Kind.REPORT, Report('{"version": 7}'), event.request)
        case Kind.INIT:
            door.say(Kind.TABLE, Agreed(TABLE, seed=False), event.request)
            door.model(event.request)
        case Kind.LEAVE:
            door.say(Kind.BYE, Bye("left"))


def instead(kind, act):
    """Be friendly but for one kind of message."""

    def react(door, event):
        if event.kind is kind:
            act(door, event)
        else:
            friendly(door, event)

    return react


class House:
    """Everything a test of the link needs: a network, a server that reacts, and the link.

    Attributes:
        dialled: When each dial happened.
        doors: The server's ends, oldest first.
        up, down: The wires of the next connections.
    """

    def __init__(self, react=friendly, *, listening=True):
        self.network = MemoryNetwork()
        self.react = react
        self.dialled, self.doors = [], []
        self.up, self.down = Wire(), Wire()
        self.max_frame_bytes = 1 << 20
        self.dial = self.connect
        self.listening = listening

    async def open(self):
        def made(door, connection):
            door.connection = connection
            self.doors.append(door)

        self.listener = await self.network.listen(
            "server",
            lambda: Door(lambda door, event: self.react(door, event)),
            max_frame_bytes=1 << 30,
            idle_timeout_s=15.0,
            made=made,
        )

    async def connect(self, make_receiver, *, idle_timeout_s):
        self.dialled.append(asyncio.get_running_loop().time())
        return await self.network.connect(
            "server",
            make_receiver,
            max_frame_bytes=self.max_frame_bytes,
            idle_timeout_s=idle_timeout_s,
            up=self.up,
            down=self.down,
        )

    def link(self, *, connect_timeout_s=10.0, give_up_s=600.0):
        return Link(
            lambda *args, **options: self.dial(*args, **options),
            Identity("a", 1, "", None, "test"),
            connect_timeout_s=connect_timeout_s,
            give_up_s=give_up_s,
            rng=random.Random(5),
        )

    async def __aenter__(self):
        if self.listening:
            await self.open()
        return self

    async def __aexit__(self, *exception):
        for door in self.doors:
            door.connection.abort()
        await asyncio.sleep(0)


class Running:
    """A link with its task; at the end both are gone."""

    def __init__(self, link):
        self.link = link

    async def __aenter__(self):
        self.task = asyncio.get_running_loop().create_task(self.link.run())
        return self.link

    async def __aexit__(self, *exception):
        self.task.cancel()
        await asyncio.wait([self.task])


def now():
    return asyncio.get_running_loop().time()
