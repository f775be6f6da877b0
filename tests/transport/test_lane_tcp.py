"""TCP connections whose payloads go through lanes: what they do meanwhile, and how they end in the middle."""

import asyncio
import contextlib
import resource
import threading

import numpy as np
import pytest

from aiops.errors import ConnectionLost
from aiops.transport.laned import LANE_BYTES
from aiops.wire.frame import HEADER_BYTES, Kind
from aiops.wire.reader import Landing
from tests.transport.kit import MIB, OPTIONS, Inbox, TcpNet, filled, ping, tensor, until

WAIT_S = 15.0
LARGE = 24 * MIB


class Gate(Landing):
    """Memory that takes its first bytes in and then waits for the test, in whichever thread it is filled.

    Attributes:
        reached: Set once it waits.
        free: Lets it go on.
        threads: Who filled it.
    """

    def __init__(self, payload, loan=None, *, wait=True):
        super().__init__(payload, loan)
        self.reached, self.free = threading.Event(), threading.Event()
        self.threads = set()
        if not wait:
            self.free.set()

    def filled(self, n):
        super().filled(n)
        self.threads.add(threading.current_thread())
        if threading.current_thread() is not threading.main_thread():
            self.reached.set()
            assert self.free.wait(WAIT_S)


class GateInbox(Inbox):
    """Lands every tensor in a Gate."""

    def __init__(self):
        super().__init__()
        self.gates = []
        self.wait = True
        self.make = Gate

    def place(self, header):
        block = self.pool.take(header.size)
        self.gates.append(self.make(block.view, block, wait=self.wait))
        return self.gates[-1]


@contextlib.asynccontextmanager
async def ends(n=1):
    """``n`` pairs of connections between the same lanes: (near, its inbox, far, its inbox)."""
    network, pairs, made = TcpNet(lanes=1), [], []
    far = [GateInbox() for _ in range(n)]
    inboxes = iter(far)
    await network.listen(lambda: next(inboxes), made=lambda *a: made.append(a), **OPTIONS)
    try:
        for number in range(n):
            near = Inbox()
            connection = await network.connect(lambda near=near: near, **OPTIONS)
            await until(lambda number=number: len(made) > number)
            pairs.append((connection, near, made[number][1], made[number][0]))
        yield pairs
    finally:
        await network.listener.close()
        for gate in (gate for inbox in far for gate in inbox.gates):
            gate.free.set()
        for near, near_inbox, far_connection, far_inbox in pairs:
            for connection, inbox in ((near, near_inbox), (far_connection, far_inbox)):
                connection.abort()
                await inbox.lost()
                inbox.release()
                assert inbox.pool.outstanding == 0
        network.close()


async def reached(gates, n=1):
    while len(gates) < n or not gates[-1].reached.is_set():  # noqa: ASYNC110 -- a thread says so
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("over", [-1, 0, 1, MIB])
async def test_what_is_large_enough_is_filled_by_the_lane_but_for_what_came_with_its_header(over):
    # The first bytes may come with the header, and what is left decides.
    size = LANE_BYTES + 128 * 1024 + over
    async with ends() as [(near, _, _, far)]:
        far.wait = False
        await near.send([tensor(1, filled(size, 3))])
        await far.received(1)
        assert (np.frombuffer(far.frames[0].payload, np.uint8) == 3).all()
        assert any(thread.name.startswith("far") for thread in far.gates[0].threads)
        await near.send([tensor(2, filled(LANE_BYTES - 1, 4))])
        await far.received(2)
        assert far.gates[1].threads == {threading.main_thread()}


async def test_round_trips_go_on_while_a_lane_is_at_a_payload():
    async with ends(2) as [
        (bulk, bulk_inbox, bulk_far, bulk_far_inbox),
        (near, inbox, far, far_inbox),
    ]:
        far_inbox.on_frame = lambda frame: far.post(ping(frame.header.request))
        bulk_inbox.on_frame = lambda frame: bulk.post(ping(9))
        sending = asyncio.create_task(bulk.send([tensor(1, filled(LARGE, 1))]))
        await reached(bulk_far_inbox.gates)
        for number in range(1, 51):
            near.post(ping(number))
            await inbox.received(number)
        # The other way on the very connection, too; what it sends itself waits behind its payload.
        for number in range(1, 51):
            bulk_far.post(ping(number))
            await bulk_inbox.received(number)
        assert bulk_far_inbox.frames == []
        assert not sending.done()
        bulk_far_inbox.gates[0].free.set()
        await sending
        await bulk_far_inbox.received(51)
        assert bulk_far_inbox.kinds == [Kind.TENSOR, *[Kind.PING] * 50]
        assert bulk_far.received_bytes == bulk.sent_bytes


async def test_payloads_of_both_directions_pass_at_once_through_one_lane_at_each_end():
    payloads = [filled(LARGE, value) for value in (1, 2, 3, 4)]
    async with ends(2) as pairs:
        for _, _, _, far in pairs:
            far.wait = False
        async with asyncio.TaskGroup() as tasks:
            for number, (near, _, far, _) in enumerate(pairs):
                tasks.create_task(near.send([tensor(1, payloads[number])]))
                tasks.create_task(far.send([tensor(1, payloads[2 + number])]))
        for number, (_, near_inbox, _, far_inbox) in enumerate(pairs):
            for inbox, value in ((far_inbox, number), (near_inbox, 2 + number)):
                await inbox.received(1)
                np.testing.assert_array_equal(inbox.frames[0].payload, payloads[value])


@pytest.mark.parametrize("who", ["near", "far"])
async def test_memory_of_a_connection_that_ends_in_the_middle_is_free_at_once(who):
    source = filled(LARGE, 1)
    async with ends() as [(near, near_inbox, far, far_inbox)]:
        sending = asyncio.create_task(near.send([tensor(1, source)]))
        await reached(far_inbox.gates)
        (gate,) = far_inbox.gates
        landed = np.frombuffer(gate.payload, np.uint8)
        # The lane is in the middle of a call: the abort waits for it, so that it must be let go on first.
        threading.Timer(0.02, gate.free.set).start()
        (near if who == "near" else far).abort()
        if who == "far":
            assert far_inbox.pool.outstanding == 0
            landed[:] = 9
        with pytest.raises(ConnectionLost):
            await sending
        source[:] = 7
        lost = await far_inbox.lost()
        await near_inbox.lost()
        if who == "far":
            assert (landed == 9).all()
        else:
            assert "in the middle of a frame" in str(lost)
            assert 7 not in landed[: far.received_bytes - HEADER_BYTES]
        assert far_inbox.frames == []


async def test_a_cancelled_send_ends_its_connection_and_frees_its_memory():
    source = filled(LARGE, 1)
    async with ends() as [(near, _, far, far_inbox)]:
        sending = asyncio.create_task(near.send([tensor(1, source)]))
        await reached(far_inbox.gates)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        source[:] = 7
        far_inbox.gates[0].free.set()
        await far_inbox.lost()
        landed = np.frombuffer(far_inbox.gates[0].payload, np.uint8)
        assert 7 not in landed[: far.received_bytes - HEADER_BYTES]


class Faulty(Gate):
    """A landing with a bug that shows in the lane."""

    def filled(self, n):
        self.reached.set()
        if threading.current_thread() is not threading.main_thread():
            raise ZeroDivisionError("a bug in a landing")
        super().filled(n)


async def test_a_bug_in_a_landing_ends_the_connection_and_the_loop_reports_it():
    reports = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context.get("exception")))
    async with ends() as [(near, _, _, far_inbox)]:
        far_inbox.make = Faulty
        with contextlib.suppress(ConnectionLost):
            await near.send([tensor(1, filled(LARGE, 1))])
        assert isinstance(await far_inbox.lost(), ZeroDivisionError)
    assert [type(error) for error in reports] == [ZeroDivisionError]


async def test_a_peer_that_pauses_gets_the_payload_under_way_and_nothing_after_it():
    async with ends() as [(near, _, far, far_inbox)]:
        sending = asyncio.create_task(
            near.send([tensor(1, filled(LARGE, 1)), tensor(2, filled(LARGE, 2))])
        )
        await reached(far_inbox.gates)
        far.pause_reading()
        far_inbox.gates[0].free.set()
        await far_inbox.received(1)
        far_inbox.wait = False
        await asyncio.sleep(0.02)
        assert len(far_inbox.gates) == 1
        far.resume_reading()
        await sending
        await far_inbox.received(2)


async def test_a_process_without_descriptors_loses_the_connection_and_says_why():
    network, inbox, made = TcpNet(lanes=1), Inbox(), []
    listener = await network.listen(
        lambda: inbox, made=lambda *both: made.append(both[1]), **OPTIONS
    )
    connection = await network.connect(Inbox, **OPTIONS)
    await until(lambda: made)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        with pytest.raises(ConnectionLost, match="cannot move bulk: Too many open files"):
            await connection.send([tensor(1, filled(LARGE, 1))])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await inbox.lost()
    await listener.close()
    network.close()
