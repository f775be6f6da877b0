"""How a connection ends, on every transport and loop: cancelled, aborted, closed, or cut by the peer."""

import asyncio

import pytest

from aiops.errors import (
    ConnectionLost,
    RemoteProtocolError,
)
from aiops.wire.frame import Kind
from tests.transport.kit import bulk, filled, ping, stalled, tensor


async def test_a_send_that_is_cancelled_inside_a_frame_ends_the_connection_at_both_ends(ground):
    async with ground.pair() as (near, far):
        far.stop_inside_a_frame()
        sending = asyncio.create_task(near.connection.send([bulk(1)]))
        await stalled(near.connection)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert near.connection.closed
        lost = await near.inbox.lost()
        assert isinstance(lost, ConnectionLost)
        assert "was cancelled halfway" in str(lost)
        far.connection.resume_reading()
        lost = await far.inbox.lost()
        assert isinstance(lost, ConnectionLost)
        assert "in the middle of a frame" in str(lost)
        assert far.inbox.frames == []


async def test_a_send_that_is_cancelled_between_two_frames_of_a_message_ends_the_connection_too(
    ground,
):
    frames = [tensor(key, filled(60_000, 1)) for key in range(1000)]
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        sending = asyncio.create_task(near.connection.send(frames))
        await stalled(near.connection)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert near.connection.closed
        far.connection.resume_reading()
        assert isinstance(await far.inbox.lost(), ConnectionLost)
        assert len(far.inbox.frames) < 1000


async def test_a_send_that_is_cancelled_while_it_waits_its_turn_leaves_no_trace(ground):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        first = asyncio.create_task(near.connection.send([bulk(1, 48)]))
        await stalled(near.connection)
        waiting = asyncio.create_task(near.connection.send([tensor(2, filled(9, 1))]))
        near.connection.post(ping(7))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        far.connection.resume_reading()
        await first
        await near.connection.send([tensor(3, filled(9, 1))])
        await far.inbox.received(3)
        assert far.inbox.kinds == [Kind.TENSOR, Kind.PING, Kind.TENSOR]
        assert far.inbox.keys == [1, 0, 3]


async def test_a_cancelled_send_that_was_copied_whole_goes_out_by_itself(ground):
    begun = 0
    source = filled(40_000, 1)

    async def flood(connection):
        nonlocal begun
        while True:
            begun += 1
            await connection.send([tensor(begun, source)])

    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        flooding = asyncio.create_task(flood(near.connection))
        await stalled(near.connection)
        near.connection.post(ping(1))
        flooding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flooding
        source[:] = 2
        assert not near.connection.closed
        far.connection.resume_reading()
        await near.connection.send([tensor(0, filled(5, 3))])
        await far.inbox.received(begun + 2)
        kinds = far.inbox.kinds
        assert kinds == [Kind.TENSOR] * begun + [Kind.PING, Kind.TENSOR]
        assert set(far.inbox.payloads[:begun]) == {bytes(filled(40_000, 1))}


async def test_what_is_posted_leaves_although_the_send_before_it_was_cancelled_as_it_ended(ground):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        small = [tensor(1, filled(50_000, 1))]
        while not near.connection._paused:
            sending = asyncio.create_task(near.connection.send(small))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        near.connection.post(ping(1))
        # The peer has taken everything and the send is cancelled, in one and the same turn of the loop.
        resume = near.connection._resume
        near.connection._resume = lambda: (resume(), sending.cancel())
        far.connection.resume_reading()
        with pytest.raises(asyncio.CancelledError):
            await sending
        near.connection._resume = resume
        await far.inbox.until(lambda: any(f.header.kind is Kind.PING for f in far.inbox.frames))
        near.connection.post(ping(2))
        await far.inbox.until(lambda: far.inbox.frames[-1].header.request == 2)


@pytest.mark.parametrize("given", [None, RemoteProtocolError("nonsense"), ConnectionLost("cut")])
async def test_an_abort_ends_the_sends_under_way_with_the_reason_that_was_given(ground, given):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        sends = [asyncio.create_task(near.connection.send([bulk(key)])) for key in range(3)]
        await stalled(near.connection)
        near.connection.abort(given)
        near.connection.abort(ConnectionLost("later"))
        results = await asyncio.gather(*sends, return_exceptions=True)
        lost = await near.inbox.lost()
        assert results == [lost] * 3
        assert lost is given or (given is None and "was aborted" in str(lost))
        far.connection.resume_reading()
        assert isinstance(await far.inbox.lost(), ConnectionLost)


async def test_close_sends_what_is_posted_and_the_peer_hears_that_no_frame_was_cut(ground):
    async with ground.pair() as (near, far):
        for number in range(100):
            near.connection.post(ping(number, size=1000))
        await near.connection.close()
        assert near.connection.closed
        assert near.inbox.losses == [None]
        lost = await far.inbox.lost()
        assert isinstance(lost, ConnectionLost)
        assert str(lost) == f"{far.connection.peer} closed the connection between frames"
        assert far.inbox.requests == list(range(100))


async def test_close_waits_for_the_sends_under_way_and_then_for_what_is_posted(ground):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        sending = asyncio.create_task(near.connection.send([bulk(1, 48)]))
        await stalled(near.connection)
        near.connection.post(ping(2))
        closing = asyncio.create_task(near.connection.close())
        await asyncio.sleep(0)
        late = asyncio.create_task(near.connection.send([tensor(3, b"late")]))
        far.connection.resume_reading()
        await sending
        await closing
        with pytest.raises(ConnectionLost, match="is closed"):
            await late
        assert "between frames" in str(await far.inbox.lost())
        assert far.inbox.kinds == [Kind.TENSOR, Kind.PING]


async def test_what_was_sent_before_the_close_reaches_a_peer_that_reads_later(ground):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        near.connection.post(ping(1, size=5000))
        await near.connection.close()
        await asyncio.sleep(0.01)
        assert far.inbox.losses == []
        far.connection.resume_reading()
        await far.inbox.lost()
        assert far.inbox.requests == [1]


async def test_close_is_idempotent(ground):
    async with ground.pair() as (near, far):
        near.connection.post(ping(1))
        await asyncio.gather(near.connection.close(), near.connection.close())
        await near.connection.close()
        await far.inbox.lost()
        await far.connection.close()
        assert near.inbox.losses == [None]
        assert len(far.inbox.losses) == 1


async def test_both_ends_may_close_at_once(ground):
    async with ground.pair() as (near, far):
        near.connection.post(ping(1))
        far.connection.post(ping(2))
        await asyncio.gather(near.connection.close(), far.connection.close())
        assert (near.inbox.losses, far.inbox.losses) == ([None], [None])


async def test_a_close_does_not_hide_why_a_connection_ended_under_it(ground):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        sending = asyncio.create_task(near.connection.send([bulk(1)]))
        await stalled(near.connection)
        closing = [asyncio.create_task(near.connection.close()) for _ in range(2)]
        await asyncio.sleep(0)
        error = RemoteProtocolError("nonsense")
        near.connection.abort(error)
        await asyncio.gather(*closing)
        assert near.inbox.losses == [error]
        with pytest.raises(RemoteProtocolError, match="nonsense"):
            await near.connection.send([tensor(2, b"later")])
        with pytest.raises(RemoteProtocolError, match="nonsense"):
            await sending


async def test_a_cancelled_close_ends_the_connection_all_the_same(ground):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        sending = asyncio.create_task(near.connection.send([bulk(1)]))
        await stalled(near.connection)
        closing = asyncio.create_task(near.connection.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert near.connection.closed
        with pytest.raises(ConnectionLost, match="was cancelled"):
            await sending


async def test_a_connection_that_is_over_swallows_posts_and_refuses_sends(ground):
    async with ground.pair() as (near, far):
        await near.connection.close()
        near.connection.post(ping(1))
        near.connection.abort(ConnectionLost("later"))
        near.connection.pause_reading()
        near.connection.resume_reading()
        with pytest.raises(ConnectionLost, match="is closed"):
            await near.connection.send([tensor(1, b"x")])
        lost = await far.inbox.lost()
        with pytest.raises(ConnectionLost) as caught:
            await far.connection.send([tensor(1, b"x")])
        assert caught.value is lost
        assert far.inbox.frames == []


@pytest.mark.parametrize("cut", [1, 31, 32, 33, 500])
async def test_a_stream_that_ends_inside_a_frame_says_so(ground, cut):
    head, (payload,) = tensor(1, filled(1000, 1))
    async with ground.pair() as (near, far):
        near.connection._put((head + bytes(payload))[:cut])
        await near.connection.close()
        lost = await far.inbox.lost()
        assert isinstance(lost, ConnectionLost)
        assert str(lost) == f"{far.connection.peer} closed the connection in the middle of a frame"
        assert far.inbox.frames == []
