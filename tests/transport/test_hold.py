"""A receiver without memory for a payload holds it up: on every transport and loop nothing is read until there is."""

import asyncio

import pytest

from aiops.errors import ConnectionLost, DeadlineExceeded
from aiops.transport.segment import SEGMENT_BYTES, STAGED_BYTES
from aiops.wire.frame import Kind
from aiops.wire.reader import HOLD, STAGE_BYTES
from tests.transport.kit import MIB, bulk, filled, ping, stalled, tensor, until


class Holding:
    """Has an inbox hold every payload up once, until it is told to go on."""

    def __init__(self, end):
        self.held = []
        self._connection, self._inbox = end.connection, end.inbox
        self._place, end.inbox.place = end.inbox.place, self.place
        end.connection._reader._place = self.place

    def place(self, header):
        if header in self.held:
            return self._place(header)
        self.held.append(header)
        return HOLD

    async def go(self, n):
        """Let the payload go on that is the ``n``-th to be held up."""
        await until(lambda: len(self.held) == n)
        self._connection.resume_reading()


async def test_what_is_held_up_arrives_in_order_with_every_byte(ground):
    sizes = [0, 1, STAGED_BYTES, STAGE_BYTES, SEGMENT_BYTES, 3 * MIB + 5, 7, 0, 2 * MIB, 100]
    async with ground.pair() as (near, far):
        holding = Holding(far)
        frames = [tensor(key, filled(size, key)) for key, size in enumerate(sizes)]
        sending = asyncio.create_task(near.connection.send(frames))
        near.connection.post(ping(1))
        for key in range(len(sizes)):
            await until(lambda n=key + 1: len(holding.held) == n)
            assert [f.header.kind for f in far.inbox.frames].count(Kind.TENSOR) == key
            holding._connection.resume_reading()
        await sending
        await far.inbox.received(len(sizes) + 1)
        arrived = [f for f in far.inbox.frames if f.header.kind is Kind.TENSOR]
        assert [f.header.key for f in arrived] == list(range(len(sizes)))
        assert [bytes(f.payload) for f in arrived] == [b"".join(views) for _, views in frames]
        assert far.connection.received_bytes == near.connection.sent_bytes


async def test_while_a_payload_is_held_up_its_sender_is_slowed_down_and_hears_what_is_sent(ground):
    async with ground.pair() as (near, far):
        holding = Holding(far)
        sending = asyncio.create_task(near.connection.send([bulk(1, 32)]))
        await until(lambda: holding.held)
        await stalled(near.connection)
        taken = far.connection.received_bytes
        for number in range(5):
            far.connection.post(ping(number))
        await near.inbox.received(5)
        await stalled(near.connection)
        assert far.connection.received_bytes == taken < MIB
        await holding.go(1)
        await sending
        await far.inbox.received(1)


async def test_reading_again_without_memory_holds_it_up_again(ground):
    async with ground.pair() as (near, far):
        holding = Holding(far)
        await near.connection.send([tensor(1, filled(1000, 1)), tensor(2, filled(1000, 2))])
        await until(lambda: holding.held)
        holding._place, place = (lambda header: HOLD), holding._place
        for _ in range(3):
            far.connection.resume_reading()
            await asyncio.sleep(0)
        assert far.inbox.frames == []
        holding._place = place
        await holding.go(1)
        await holding.go(2)
        await far.inbox.received(2)
        assert far.inbox.keys == [1, 2]


@pytest.mark.parametrize("mib", [0, 32])
async def test_whoever_holds_a_payload_up_hears_of_the_peers_end_when_it_writes(ground, mib):
    async with ground.pair() as (near, far):
        holding = Holding(far)
        sending = asyncio.create_task(near.connection.send([bulk(1, mib)]))
        await until(lambda: holding.held)
        near.connection.abort()
        await asyncio.wait([sending])
        async with asyncio.timeout(5):
            while not far.inbox.losses:
                far.connection.post(ping(1))
                await asyncio.sleep(0.01)
        assert isinstance(far.inbox.losses[0], ConnectionLost)
        far.connection.resume_reading()


async def test_a_connection_that_ends_while_it_holds_a_payload_up_asks_no_more(ground):
    async with ground.pair() as (near, far):
        holding = Holding(far)
        await near.connection.send([tensor(1, filled(1000, 1))])
        await until(lambda: holding.held)
        far.connection.abort()
        far.connection.resume_reading()
        await far.inbox.lost()
        assert far.inbox.placed == []


async def test_a_patient_sender_waits_as_long_as_the_peer_says_something(ground):
    async with ground.pair(idle_s=0.5) as (near, far):
        near.connection.patient = True
        holding = Holding(far)
        sending = asyncio.create_task(near.connection.send([bulk(1, 32)]))
        await until(lambda: holding.held)
        for number in range(12):
            far.connection.post(ping(number))
            await asyncio.sleep(0.1)
        assert not sending.done()
        await holding.go(1)
        await sending


@pytest.mark.parametrize("patient", [True, False])
async def test_a_sender_gives_a_peer_up_that_says_nothing_or_whom_it_has_no_patience_with(
    ground, patient
):
    async with ground.pair(idle_s=0.2) as (near, far):
        near.connection.patient = patient
        holding = Holding(far)
        sending = asyncio.create_task(near.connection.send([bulk(1, 32)]))
        await until(lambda: holding.held)
        while not (patient or sending.done()):
            far.connection.post(ping(1))
            await asyncio.sleep(0.05)
        with pytest.raises(DeadlineExceeded, match=r"no progress for 0\.2 s"):
            await sending
