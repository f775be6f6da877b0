"""The memory transport's link: exact on virtual time, slow on demand, cut where it is told to be."""

import asyncio
import random

import pytest

from aiops.errors import ConnectFailed, ConnectionLost, DeadlineExceeded
from aiops.sim.virtual import VirtualLoop
from aiops.transport.memory import PIECE_S, WINDOW_BYTES, Link, MemoryNetwork
from aiops.wire.frame import HEADER_BYTES
from tests.transport.kit import MIB, Ground, Inbox, bulk, filled, ping, tensor

pytestmark = pytest.mark.virtual

MEMORY = Ground("memory", VirtualLoop)
HEAD = HEADER_BYTES


def now():
    return asyncio.get_running_loop().time()


def clocked(inbox):
    """Return a list that the time of every frame's arrival goes to."""
    times = []
    inbox.on_frame = lambda frame: times.append(now())
    return times


@pytest.mark.parametrize("delay", [0.0, 0.25, 3600.0])
@pytest.mark.parametrize("size", [0, 1000, 3 * MIB])
async def test_a_link_without_a_rate_delivers_after_its_delay_and_no_later(delay, size):
    async with MEMORY.pair(up=Link(delay_s=delay), idle_s=1e6) as (near, far):
        times, start = clocked(far.inbox), now()
        await near.connection.send([tensor(1, filled(size, 1))])
        assert now() == start
        await far.inbox.received(1)
        assert times == [pytest.approx(start + delay, abs=1e-9)]


@pytest.mark.parametrize(
    ("rate", "size"),
    [(10.0, 68), (10.0, 200), (56_000 / 8, 100_000), (1e6, 0), (1e6, 5 * MIB), (1e9 / 3, 9 * MIB)],
)
async def test_a_slow_link_takes_its_time_for_every_byte_and_send_returns_with_the_last(rate, size):
    async with MEMORY.pair(up=Link(delay_s=2.0, rate_bytes_s=rate), idle_s=1.0) as (near, far):
        times, start = clocked(far.inbox), now()
        line_s = (HEAD + size) / rate
        await near.connection.send([tensor(1, filled(size, 1))])
        assert now() - start == pytest.approx(line_s, rel=1e-9, abs=1e-8)
        await far.inbox.received(1)
        assert times == [pytest.approx(start + line_s + 2.0, rel=1e-9, abs=1e-8)]


async def test_messages_follow_each_other_on_the_line_without_a_gap():
    async with MEMORY.pair(up=Link(delay_s=0.5, rate_bytes_s=1000)) as (near, far):
        times = clocked(far.inbox)
        for key in range(5):
            await near.connection.send([tensor(key, filled(1000 - HEAD, 1))])
        await far.inbox.received(5)
        assert times == pytest.approx([1.5, 2.5, 3.5, 4.5, 5.5])


async def test_both_directions_have_a_link_of_their_own():
    up, down = Link(rate_bytes_s=100), Link(delay_s=7.0)
    async with MEMORY.pair(up=up, down=down) as (near, far):
        there, back = clocked(far.inbox), clocked(near.inbox)
        far.connection.post(ping(1))
        await near.connection.send([tensor(1, filled(100 - HEAD, 1))])
        await near.inbox.received(1)
        assert (there, back) == ([pytest.approx(1.0)], [pytest.approx(7.0)])


async def test_a_fast_link_with_a_long_delay_is_not_slowed_down_by_what_it_carries():
    async with MEMORY.pair(up=Link(delay_s=1.0, rate_bytes_s=64 * MIB)) as (near, far):
        times = clocked(far.inbox)
        for key in range(4):
            await near.connection.send([tensor(key, filled(16 * MIB - HEAD, 1))])
        await far.inbox.received(4)
        assert times == pytest.approx([1.25, 1.5, 1.75, 2.0])


async def test_frames_that_are_due_at_the_same_time_keep_their_order():
    async with MEMORY.pair(up=Link(delay_s=1.0)) as (near, far):
        times = clocked(far.inbox)
        for number in range(500):
            near.connection.post(ping(number))
        await far.inbox.received(500)
        assert far.inbox.requests == list(range(500))
        assert set(times) == {times[0]}


async def test_what_is_posted_on_a_busy_line_waits_for_it():
    async with MEMORY.pair(up=Link(rate_bytes_s=HEAD + 1)) as (near, far):
        times = clocked(far.inbox)
        for number in range(3):
            near.connection.post(ping(number))
        await far.inbox.received(3)
        assert times == pytest.approx([1.0, 2.0, 3.0])


async def test_a_slow_line_that_moves_is_not_given_up():
    link = Link(rate_bytes_s=1000.0, delay_s=60.0)
    async with MEMORY.pair(up=link, idle_s=1.0) as (near, far):
        await near.connection.send([tensor(1, filled(MIB, 1))])
        assert now() == pytest.approx((MIB + HEAD) / 1000)
        await far.inbox.received(1)


async def test_a_slow_line_is_heard_from_all_the_time():
    async with MEMORY.pair(up=Link(rate_bytes_s=1000.0)) as (near, far):
        sending = asyncio.create_task(near.connection.send([tensor(1, filled(200_000, 1))]))
        await asyncio.sleep(100.0)
        assert now() - far.connection.last_heard <= PIECE_S + 1e-6
        assert far.connection.received_bytes == pytest.approx(100_000, abs=1000 * PIECE_S)
        await sending


async def test_a_peer_that_does_not_read_is_given_up_after_the_idle_timeout_exactly():
    async with MEMORY.pair(idle_s=30.0) as (near, far):
        far.connection.pause_reading()
        with pytest.raises(DeadlineExceeded, match="no progress for 30 s"):
            await near.connection.send([tensor(1, filled(4 * MIB, 1))])
        assert now() == pytest.approx(30.0)
        assert near.connection.sent_bytes < WINDOW_BYTES + 512 * 1024


async def test_a_peer_that_reads_a_little_now_and_then_is_not_given_up():
    async with MEMORY.pair(idle_s=1.0) as (near, far):
        far.inbox.on_place = lambda header: far.connection.pause_reading()
        frames = [tensor(key, filled(200_000, 1)) for key in range(40)]
        sending = asyncio.create_task(near.connection.send(frames))
        while not sending.done():
            await asyncio.sleep(0.9)
            far.connection.resume_reading()
        await sending
        assert now() > 10.0


async def test_a_peer_that_reads_again_lets_the_sender_go_on_at_once():
    async with MEMORY.pair(up=Link(delay_s=10.0)) as (near, far):
        far.connection.pause_reading()
        sending = asyncio.create_task(near.connection.send([bulk(1, 2)]))
        await asyncio.sleep(1.0)
        assert not sending.done()
        far.connection.resume_reading()
        await sending
        assert now() == pytest.approx(1.0)


async def test_memory_that_is_changed_before_send_has_returned_arrives_changed():
    source = filled(400_000, 1)
    async with MEMORY.pair(up=Link(rate_bytes_s=100_000)) as (near, far):
        sending = asyncio.create_task(near.connection.send([tensor(1, source)]))
        await asyncio.sleep(1.0)
        source[:] = 2
        await sending
        source[:] = 3
        await far.inbox.received(1)
        assert set(far.inbox.payloads[0]) == {1, 2}


async def test_close_delivers_what_is_on_its_way_and_the_end_comes_last():
    async with MEMORY.pair(up=Link(delay_s=5.0, rate_bytes_s=1000)) as (near, far):
        times = clocked(far.inbox)
        await near.connection.send([tensor(1, filled(1000 - HEAD, 1))])
        near.connection.post(ping(2, size=1000 - HEAD))
        await near.connection.close()
        assert now() == pytest.approx(2.0)
        await far.inbox.lost()
        assert times == pytest.approx([6.0, 7.0])
        assert now() == pytest.approx(7.0)


async def test_abort_drops_what_is_on_its_way_and_the_peer_hears_of_it_after_the_delay():
    async with MEMORY.pair(up=Link(delay_s=5.0)) as (near, far):
        near.connection.post(ping(1))
        await asyncio.sleep(4.0)
        near.connection.abort()
        lost = await far.inbox.lost()
        assert str(lost) == "memory aborted the connection between frames"
        assert (now(), far.inbox.frames) == (pytest.approx(9.0), [])


def whole(frame):
    return frame[0], *frame[1]


@pytest.mark.parametrize("rate", [None, 50.0], ids=["at once", "slowly"])
async def test_a_link_that_is_cut_at_any_byte_ends_both_ends_and_leaves_nothing(rate):
    frames = [(ping(1, size=20), ()), tensor(2), tensor(3, b"abc"), tensor(4, b"d" * 40)]
    edges = [sum(len(b"".join(whole(f))) for f in frames[:count]) for count in range(5)]
    for cut in range(edges[-1]):
        link = Link(rate_bytes_s=rate, cut_after=cut)
        async with MEMORY.pair(up=link) as (near, far):
            sending = asyncio.create_task(near.connection.send(frames))
            lost = await far.inbox.lost()
            assert isinstance(lost, ConnectionLost)
            where = "between frames" if cut in edges else "in the middle of a frame"
            assert str(lost) == f"connection to memory was cut {where}"
            assert isinstance(await near.inbox.lost(), ConnectionLost)
            await asyncio.gather(sending, return_exceptions=True)
            assert far.connection.received_bytes == cut
            assert len(far.inbox.frames) == sum(edge <= cut for edge in edges[1:])
            with pytest.raises(ConnectionLost, match="was cut"):
                await near.connection.send(frames)
        assert link.cut_after is None


async def test_a_cut_counts_the_bytes_of_all_messages():
    link = Link(cut_after=3 * (HEAD + 1))
    async with MEMORY.pair(up=link) as (near, far):
        for number in range(5):
            near.connection.post(ping(number))
            await asyncio.sleep(1.0)
        assert far.inbox.requests == [0, 1, 2]
        assert "between frames" in str(await far.inbox.lost())


async def test_the_next_connection_over_a_link_that_was_cut_stands():
    link = Link(cut_after=10)
    async with MEMORY.pair(up=link) as (near, far):
        near.connection.post(ping(1))
        await far.inbox.lost()
    async with MEMORY.pair(up=link) as (near, far):
        near.connection.post(ping(1))
        await far.inbox.received(1)


async def test_a_cut_takes_what_travels_the_other_way_too():
    up, down = Link(delay_s=1.0, cut_after=5), Link(delay_s=4.0, cut_after=100)
    async with MEMORY.pair(up=up, down=down) as (near, far):
        far.connection.post(ping(1))
        near.connection.post(ping(2))
        await asyncio.sleep(10.0)
        assert (near.inbox.frames, far.inbox.frames) == ([], [])
        assert down.cut_after == 100


async def test_nobody_is_reached_under_a_name_that_nobody_listens_on():
    with pytest.raises(ConnectFailed, match="cannot connect to moon: nobody listens there"):
        await MemoryNetwork().connect("moon", Inbox, max_frame_bytes=1, idle_timeout_s=1.0)


async def test_closing_a_listener_twice_does_not_close_the_one_that_came_after_it():
    network = MemoryNetwork()
    options = {"max_frame_bytes": 1, "idle_timeout_s": 1.0}
    first = await network.listen("server", Inbox, made=lambda *_: None, **options)
    await first.close()
    await network.listen("server", Inbox, made=lambda *_: None, **options)
    await first.close()
    connection = await network.connect("server", Inbox, **options)
    connection.abort()


async def arrivals(link, count=40, pause_s=0.0):
    async with MEMORY.pair(up=link, idle_s=1e6) as (near, far):
        times, start = clocked(far.inbox), now()
        for key in range(count):
            await near.connection.send([tensor(key, filled(1000 - HEAD, 1))])
            await asyncio.sleep(pause_s)
        await far.inbox.received(count)
        assert far.inbox.keys == list(range(count))
        return [at - start for at in times]


async def test_a_delay_with_jitter_varies_evenly_around_its_mean():
    link = Link(delay_s=0.05, jitter_s=0.02)
    delays = sorted(at - key for key, at in enumerate(await arrivals(link, 400, pause_s=1.0)))
    assert delays[0] == pytest.approx(0.03, abs=0.001)
    assert delays[200] == pytest.approx(0.05, abs=0.003)
    assert delays[399] == pytest.approx(0.07, abs=0.001)
    assert 0.03 <= delays[0] + 1e-9 < delays[399] <= 0.07 + 1e-9


async def test_no_jitter_lets_anything_arrive_before_it_is_sent():
    link = Link(delay_s=0.01, jitter_s=0.5)
    delays = [at - key for key, at in enumerate(await arrivals(link, 50, pause_s=1.0))]
    assert min(delays) == pytest.approx(0.0, abs=1e-9)


async def test_jitter_delays_whoever_is_behind_and_puts_nobody_ahead():
    times = await arrivals(Link(delay_s=5.0, rate_bytes_s=10_000, jitter_s=4.0))
    assert times == sorted(times)
    # Nobody is there sooner than a delay of zero would have it.
    assert all(at >= 0.1 * (key + 1) - 1e-9 for key, at in enumerate(times))
    # 4 s of jitter let many of them, 0.1 s apart, come in together.
    assert len(set(times)) < 20


async def test_the_same_seed_is_the_same_jitter():
    first, again, other = [
        await arrivals(Link(delay_s=0.05, jitter_s=0.02, rng=random.Random(seed)), 9, 1.0)
        for seed in (1, 1, 2)
    ]
    assert first == pytest.approx(again, abs=1e-9)
    assert first != pytest.approx(other, abs=1e-3)


async def test_jitter_can_begin_on_a_link_that_is_in_use():
    link = Link(delay_s=0.5)
    async with MEMORY.pair(up=link, idle_s=1e6) as (near, far):
        times = clocked(far.inbox)
        for key in range(2):
            await near.connection.send([tensor(key, filled(10, 1))])
            await asyncio.sleep(3.0)
            link.jitter_s = 0.1
        await far.inbox.received(2)
    assert times[0] == pytest.approx(0.5)
    assert times[1] != pytest.approx(3.5)
    assert times[1] == pytest.approx(3.5, abs=0.5)
