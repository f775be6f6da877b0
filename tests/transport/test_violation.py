"""What a connection does about a peer, or a receiver, that breaks the rules; on every transport and loop."""

import asyncio

import pytest

from aiops.errors import (
    BadHandshake,
    ConnectionLost,
    FrameTooLarge,
    RemoteProtocolError,
)
from aiops.wire.frame import Header, Kind
from tests.transport.kit import filled, ping, tensor


@pytest.mark.parametrize("size", [1001, 2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1])
async def test_a_frame_over_the_limit_ends_the_connection_and_takes_no_memory(ground, size):
    async with ground.pair(limit=1000) as (near, far):
        await near.connection.send([tensor(1, filled(1000, 1))])
        head = Header(Kind.TENSOR, 1, 1, 1, 2, 0, size).pack()
        await near.connection.send([(head, [memoryview(bytes(10))])])
        lost = await far.inbox.lost()
        assert isinstance(lost, FrameTooLarge)
        assert (lost.size_bytes, lost.limit_bytes) == (size, 1000)
        assert [header.key for header in far.inbox.placed] == [1]
        assert isinstance(await near.inbox.lost(), ConnectionLost)


async def test_bytes_that_are_no_frames_end_the_connection(ground):
    async with ground.pair() as (near, far):
        near.connection._put(b"GET / HTTP/1.1\r\n\r\n")
        lost = await far.inbox.lost()
        assert isinstance(lost, BadHandshake)
        assert "HTTP" in str(lost)
        assert isinstance(await near.inbox.lost(), ConnectionLost)


async def test_a_receiver_that_objects_ends_the_connection_with_its_objection(ground):
    error = RemoteProtocolError("not now")

    def object_to(frame):
        raise error

    async with ground.pair() as (near, far):
        far.inbox.on_frame = object_to
        near.connection.post(ping(1))
        near.connection.post(ping(2))
        assert await far.inbox.lost() is error
        assert len(far.inbox.frames) == 1
        assert isinstance(await near.inbox.lost(), ConnectionLost)
        with pytest.raises(RemoteProtocolError, match="not now"):
            await far.connection.send([tensor(1, b"x")])


async def test_a_bug_of_the_receivers_ends_the_connection_and_is_reported(ground):
    def break_down(frame):
        raise KeyError("a bug")

    reports = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, report: reports.append(report["exception"])
    )
    async with ground.pair() as (near, far):
        far.inbox.on_frame = break_down
        near.connection.post(ping(1))
        lost = await far.inbox.lost()
        assert isinstance(lost, KeyError)
        assert reports == [lost]
        assert isinstance(await near.inbox.lost(), ConnectionLost)
        with pytest.raises(ConnectionLost, match="is closed") as caught:
            await far.connection.send([tensor(1, b"x")])
        assert caught.value.__cause__ is lost


async def test_a_receiver_that_aborts_gets_no_further_frame_and_no_further_memory(ground):
    async with ground.pair() as (near, far):
        far.inbox.on_frame = lambda frame: far.connection.abort(ConnectionLost("enough"))
        await near.connection.send([(ping(1), ()), tensor(1, b"abc"), tensor(2, b"abc")])
        assert str(await far.inbox.lost()) == "enough"
        assert len(far.inbox.frames) == 1
        assert far.inbox.placed == []
