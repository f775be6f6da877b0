"""What connections with lanes share, over TCP and shared memory: which lane takes what, and lanes that fail."""

import asyncio
import contextlib
import errno
import socket

import pytest

from aiops.errors import ConnectionLost
from aiops.transport.handover import AVAILABLE
from aiops.transport.lane import Lane
from aiops.wire.reader import Landing
from tests.transport.kit import MIB, OPTIONS, Inbox, ShmNet, TcpNet, filled, tensor, until

NETS = [TcpNet, pytest.param(ShmNet, marks=pytest.mark.skipif(not AVAILABLE, reason="Linux only"))]


class RecordingLane(Lane):
    """One that remembers what it was given."""

    def __init__(self, name):
        super().__init__(name)
        self.moves = []

    def start(self, move):
        self.moves.append(type(move).__name__)
        super().start(move)


@pytest.fixture
def lanes():
    lanes = [RecordingLane(f"lane {number}") for number in range(2)]
    yield lanes
    for lane in lanes:
        lane.close()


@contextlib.asynccontextmanager
async def connected(make_net, far, *, near_lanes=(), far_lanes=(), count=1):
    """Connect some times; gives the dialled ends with their inboxes, and the accepted ones."""
    net, made, dialled = make_net(), [], []
    await net.listen(lambda: far, made=lambda _, c: made.append(c), lanes=far_lanes, **OPTIONS)
    for _ in range(count):
        near = Inbox()
        connection = await net.connect(lambda near=near: near, lanes=near_lanes, **OPTIONS)
        dialled.append((connection, near))
        await until(lambda: len(made) == len(dialled))
    try:
        yield dialled, made
    finally:
        await net.listener.close()
        for connection in (*(connection for connection, _ in dialled), *made):
            connection.abort()
        for _, near in dialled:
            await near.lost()
        await far.until(lambda: len(far.losses) == count)
        far.release()
        assert far.pool.outstanding == 0
        net.close()


def refuse(*_):
    raise OSError(errno.EMFILE, "no descriptors")


@pytest.mark.parametrize("net", NETS)
async def test_a_send_whose_lane_cannot_begin_fails_as_a_link_does(net, lanes, monkeypatch):
    async with connected(net, Inbox(), near_lanes=lanes) as ([(connection, near)], _):
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socketpair", refuse)
            with pytest.raises(ConnectionLost, match="Too many open files"):
                await connection.send([tensor(1, filled(4 * MIB, 1))])
        assert isinstance(await near.lost(), ConnectionLost)


@pytest.mark.parametrize("net", NETS)
async def test_a_payload_whose_lane_cannot_begin_ends_the_connection(net, lanes, monkeypatch):
    far = Inbox()
    async with connected(net, far, far_lanes=lanes) as ([(connection, _)], _):
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socketpair", refuse)
            with contextlib.suppress(ConnectionLost):
                await connection.send([tensor(1, filled(4 * MIB, 1))])
            assert "in the middle of a frame: Too many open files" in str(await far.lost())


class Faulty(Landing):
    def filled(self, n):
        raise ZeroDivisionError("a bug in a landing")


class FaultyInbox(Inbox):
    def place(self, header):
        self.placed.append(header)
        block = self.pool.take(header.size)
        return Faulty(block.view, block)


@pytest.mark.parametrize("net", NETS)
async def test_a_bug_in_a_landing_ends_the_connection_and_is_reported(net, lanes):
    reports, far = [], FaultyInbox()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context["exception"]))
    async with connected(net, far, far_lanes=lanes) as ([(connection, _)], _):
        # The header by itself, so that the lane is the first to fill the landing.
        head, views = tensor(1, filled(4 * MIB, 1))
        connection._write(head)
        await until(lambda: far.placed)
        with contextlib.suppress(ConnectionLost):
            connection._write(views[0])
        assert isinstance(await far.lost(), ZeroDivisionError)
        await until(lambda: reports)
        assert [type(report) for report in reports] == [ZeroDivisionError]


class LanedInbox(Inbox):
    """Lands a payload in the lane of its key's number."""

    def place(self, header):
        block = self.pool.take(header.size)
        return Landing(block.view, block, lane=header.key)


@pytest.mark.parametrize("net", NETS)
async def test_a_landing_says_which_lane_takes_its_payload(net, lanes):
    far, takes = LanedInbox(), []
    async with connected(net, far, far_lanes=lanes) as ([(connection, _)], _):
        for number, key in enumerate([0, 1, 1, 3, 2], 1):
            before = [len(lane.moves) for lane in lanes]
            await connection.send([tensor(key, filled(4 * MIB, key))])
            await far.received(number)
            takes.append(
                [len(lane.moves) - had for lane, had in zip(lanes, before, strict=True)].index(1)
            )
    assert takes == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("net", NETS)
async def test_accepted_connections_send_on_one_lane_after_the_other(net, lanes):
    async with connected(net, Inbox(), far_lanes=lanes, count=4) as (dialled, made):
        for number, accepted in enumerate(made):
            before = len(lanes[number % 2].moves)
            await accepted.send([tensor(1, filled(4 * MIB, 1))])
            assert len(lanes[number % 2].moves) == before + 1
        for _, near in dialled:
            await near.received(1)
            near.release()
