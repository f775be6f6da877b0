"""What every transport promises, on every loop it runs on: frames, loans, order, back-pressure, listeners."""

import asyncio
import itertools

import numpy as np
import pytest

from aiops.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
)
from aiops.transport.segment import SEGMENT_BYTES, STAGED_BYTES
from aiops.transport.stream import MAX_POSTED_BYTES
from aiops.wire.frame import HEADER_BYTES, Kind, frame_bytes
from tests.transport.kit import MIB, Inbox, bulk, filled, ping, stalled, tensor, until

# What kernels and windows may swallow before a sender feels that nobody reads; generous.
SWALLOWED = 32 * MIB


async def test_frames_of_every_size_arrive_in_order_with_every_byte(ground):
    sizes = [0, 1, 31, STAGED_BYTES, SEGMENT_BYTES, SEGMENT_BYTES + STAGED_BYTES, 3 * MIB + 5]
    sizes += [size - HEADER_BYTES + step for size in sizes[3:] for step in (-1, 0, 1)]
    frames = [tensor(key, filled(size, key)) for key, size in enumerate(sizes)]
    async with ground.pair() as (near, far):
        await near.connection.send(frames[:5])
        for frame in frames[5:]:
            await near.connection.send([frame])
        await far.inbox.received(len(sizes))
        heads = [frame.header.pack() for frame in far.inbox.frames]
        assert heads == [head for head, _ in frames]
        assert far.inbox.payloads == [b"".join(views) for _, views in frames]
        assert far.connection.received_bytes == near.connection.sent_bytes
        assert near.connection.sent_bytes == sum(HEADER_BYTES + size for size in sizes)


async def test_both_ends_may_send_a_lot_at_once(ground):
    payload = filled(8 * MIB, 7)
    async with ground.pair() as (near, far):
        async with asyncio.TaskGroup() as tasks:
            for end in (near, far):
                tasks.create_task(end.connection.send([tensor(1, payload)]))
        for end in (near, far):
            await end.inbox.received(1)
            assert end.inbox.payloads == [bytes(payload)]


async def test_empty_payloads_and_empty_messages_are_sent_like_any_others(ground):
    async with ground.pair() as (near, far):
        await near.connection.send([])
        await near.connection.send([tensor(1), tensor(2, b""), tensor(3, b"", b"x", b"")])
        near.connection.post(frame_bytes(Kind.PING))
        await far.inbox.received(4)
        assert far.inbox.payloads == [b"", b"", b"x", b""]


async def test_a_message_of_several_frames_and_views_arrives_whole(ground):
    index, value = np.arange(50_000, dtype=np.uint32), np.arange(50_000, dtype=np.float32)
    frames = [(ping(1), ()), tensor(1, index, value), tensor(2), tensor(3, value[:9], index[:9])]
    async with ground.pair() as (near, far):
        await near.connection.send(frames)
        await far.inbox.received(4)
        assert far.inbox.payloads[1] == index.tobytes() + value.tobytes()
        assert far.inbox.payloads[3] == value[:9].tobytes() + index[:9].tobytes()


async def test_a_control_frame_may_be_as_large_as_a_key_table(ground):
    table = frame_bytes(Kind.TABLE, bytes(range(251)) * 3000)
    async with ground.pair() as (near, far):
        await near.connection.send([(table, ())])
        await far.inbox.received(1)
        assert far.inbox.payloads == [table[HEADER_BYTES:]]


async def test_many_small_frames_leave_in_few_writes(ground):
    async with ground.pair() as (near, far):
        writes, write = [], near.connection._write
        near.connection._write = lambda data: (writes.append(len(data)), write(data))
        await near.connection.send([tensor(key, filled(100, key % 251)) for key in range(2000)])
        await far.inbox.received(2000)
        assert far.inbox.keys == list(range(2000))
        assert len(writes) == -(-2000 // (STAGED_BYTES // 132))
        assert max(writes) <= STAGED_BYTES


async def test_memory_may_be_overwritten_as_soon_as_send_has_returned(ground):
    size = 32 * MIB
    source = filled(size, 0)
    async with ground.pair() as (near, far):
        for value in (1, 2, 3):
            source[:] = value
            await near.connection.send([tensor(value, source)])
            source[:] = 255
        await far.inbox.received(3)
        for value, frame in zip((1, 2, 3), far.inbox.frames, strict=True):
            assert frame.header.key == value
            assert np.array_equal(frame.loan.float32().view(np.uint8), filled(size, value))


async def test_concurrent_sends_do_not_mix_their_frames(ground):
    sizes = [10, 200_000, 0, 70_000, 600_000]

    def message(number):
        return [tensor(key, filled(size, number), request=number) for key, size in enumerate(sizes)]

    async with ground.pair() as (near, far):
        async with asyncio.TaskGroup() as tasks:
            for number in range(12):
                tasks.create_task(near.connection.send(message(number)))
        await far.inbox.received(12 * len(sizes))
        arrived = [(frame.header.request, frame.header.key) for frame in far.inbox.frames]
        assert arrived == list(itertools.product(range(12), range(len(sizes))))
        assert far.inbox.payloads == [bytes(filled(n, who)) for who in range(12) for n in sizes]


async def test_what_is_posted_during_a_bulk_send_goes_out_between_its_frames(ground):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        frames = [tensor(key, filled(12 * MIB, key)) for key in range(4)]
        sending = asyncio.create_task(near.connection.send(frames))
        await stalled(near.connection)
        for number in range(50):
            near.connection.post(ping(number))
        far.connection.resume_reading()
        await sending
        near.connection.post(ping(50))
        await far.inbox.received(4 + 51)
        kinds = far.inbox.kinds
        pings = [f.header.request for f in far.inbox.frames if f.header.kind is Kind.PING]
        assert pings == list(range(51))
        # It did not wait for the end of the message either.
        assert kinds.index(Kind.PING) < 3
        bulk = [f.payload for f in far.inbox.frames if f.header.kind is Kind.TENSOR]
        assert all((np.frombuffer(p, np.uint8) == key).all() for key, p in enumerate(bulk))


async def test_what_is_posted_keeps_its_order_whoever_sends_in_between(ground):
    async with ground.pair() as (near, far):
        async with asyncio.TaskGroup() as tasks:
            for number in range(200):
                near.connection.post(ping(number))
                if number % 10 == 0:
                    tasks.create_task(near.connection.send([tensor(number, filled(90_000, 1))]))
                    await asyncio.sleep(0)
        await far.inbox.received(220)
        pings = [f.header.request for f in far.inbox.frames if f.header.kind is Kind.PING]
        assert pings == list(range(200))


async def test_thousands_of_posted_frames_go_out_in_order_once_the_peer_reads_again(ground):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        large = 0
        while not near.connection._posted:
            near.connection.post(ping(large, size=10_000))
            large += 1
            if near.connection._paused:
                await stalled(near.connection)
        for number in range(5000):
            near.connection.post(ping(large + number))
        far.connection.resume_reading()
        await far.inbox.received(large + 5000)
        assert far.inbox.requests == list(range(large + 5000))


async def test_a_peer_that_stops_reading_slows_its_sender_down_and_no_memory_fills_up(ground):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        sending = asyncio.create_task(near.connection.send([bulk(key, 16) for key in range(4)]))
        await stalled(near.connection)
        assert not sending.done()
        assert near.connection.sent_bytes < SWALLOWED
        assert near.connection._backlog() < SWALLOWED
        far.connection.resume_reading()
        await sending
        await far.inbox.received(4)


async def test_a_peer_that_takes_no_byte_for_the_idle_timeout_is_given_up(ground):
    async with ground.pair(idle_s=0.2) as (near, far):
        far.stop_inside_a_frame()
        first, second = (asyncio.create_task(near.connection.send([bulk(key)])) for key in (1, 2))
        with pytest.raises(DeadlineExceeded) as caught:
            await first
        assert (caught.value.wait, caught.value.waited_s) == ("sending", 0.2)
        assert caught.value.peer == near.connection.peer
        with pytest.raises(DeadlineExceeded):
            await second
        assert near.connection.closed
        assert await near.inbox.lost() is caught.value
        far.connection.resume_reading()
        assert "in the middle of a frame" in str(await far.inbox.lost())
        assert far.inbox.frames == []


async def test_control_frames_that_nobody_reads_do_not_pile_up(ground):
    async with ground.pair() as (near, far):
        far.connection.pause_reading()
        posted = 0
        while not near.connection.closed:
            near.connection.post(ping(1, size=10_000))
            posted += 10_000
            assert near.connection._posted_bytes <= MAX_POSTED_BYTES
            assert posted < SWALLOWED + MAX_POSTED_BYTES
            if near.connection._paused and not near.connection._posted:
                await stalled(near.connection)
        lost = await near.inbox.lost()
        assert isinstance(lost, ConnectionLost)
        assert "does not read" in str(lost)
        assert str(MAX_POSTED_BYTES) in str(lost)
        far.connection.resume_reading()
        await far.inbox.lost()


async def test_a_payload_that_nobody_wants_takes_no_memory_and_keeps_the_stream_in_step(ground):
    async with ground.pair() as (near, far):
        far.inbox.skip = True
        await near.connection.send([tensor(1, filled(9 * MIB + 1, 1)), tensor(2, filled(3, 1))])
        near.connection.post(ping(5))
        await far.inbox.received(3)
        assert far.inbox.payloads == [b"", b"", b"\x05"]
        assert far.inbox.frames[0].header.size == 9 * MIB + 1
        assert far.inbox.pool.outstanding == 0


async def test_an_end_knows_when_it_heard_from_its_peer(ground):
    loop = asyncio.get_running_loop()
    async with ground.pair() as (near, far):
        await asyncio.sleep(0.02)
        before = loop.time()
        near.connection.post(ping(1, size=100))
        await far.inbox.received(1)
        assert before <= far.connection.last_heard <= loop.time()
        assert near.connection.last_heard <= before
        assert far.connection.received_bytes == HEADER_BYTES + 100


async def test_a_listener_that_is_closed_accepts_nobody_and_leaves_its_connections_alone(ground):
    network, inboxes = ground.network(), []

    def make():
        inboxes.append(Inbox())
        return inboxes[-1]

    options = {"max_frame_bytes": 1000, "idle_timeout_s": 1.0}
    accepted = []
    listener = await network.listen(make, made=lambda *made: accepted.append(made), **options)
    connection = await network.connect(Inbox, **options)
    await until(lambda: accepted)
    await listener.close()
    await listener.close()
    with pytest.raises(ConnectFailed, match="cannot connect to "):
        await network.connect(Inbox, **options)
    connection.post(ping(1))
    await inboxes[0].received(1)
    await connection.close()
    await inboxes[0].lost()


async def test_a_listener_tells_its_address_and_a_second_one_there_is_refused_by_name(ground):
    network = ground.network()
    options = {"max_frame_bytes": 1000, "idle_timeout_s": 1.0, "made": lambda *_: None}
    listener = await network.listen(Inbox, **options)
    ((host, port),) = listener.addresses
    with pytest.raises(ConfigError, match="cannot bind") as caught:
        await network.listen(Inbox, port=port, **options)
    assert (f"{host}:{port}" if port else repr(host)) in str(caught.value)
    await listener.close()
