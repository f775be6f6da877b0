"""A server with its connections: members come and go, readers are slow, strangers talk nonsense."""

import asyncio

import numpy as np
import pytest

from aiops.errors import StalePush
from aiops.server.peer import MAX_QUEUED
from aiops.transport.memory import Link
from aiops.wire.frame import HEADER, MAGIC, PROTOCOL, Kind, frame_bytes
from aiops.wire.message import Pull, encode
from tests.server.kit import LEASE, MANY, ONES, cluster, count, settle, value

pytestmark = pytest.mark.virtual


# Leases.


@pytest.mark.parametrize(("hours", "spec"), [(2, {}), (24, {"lease_s": 60.0, "heartbeat_s": 10.0})])
async def test_hours_of_silence_keep_the_connection(hours, spec):
    async with cluster(**spec) as house, house.worker("a") as ps:
        await ps.init()
        await asyncio.sleep(hours * 3600)
        assert ps.connections == 1
        await ps.sync({"w": ONES})
        assert (count(house, "joined"), value(house)) == (1, 1.0)


async def test_the_end_of_a_lease_closes_the_round_for_the_others_at_once(hand):
    async with cluster(min_workers=3, weights="uniform", **LEASE) as house:
        dead = await hand(house, "dead")
        await dead.send_push(1, ONES)
        async with house.worker("a") as a, house.worker("b") as b:
            await a.init()
            await b.init()
            await asyncio.gather(a.sync({"w": ONES}), b.sync({"w": ONES}))
            dead.connection.abort()
            start = asyncio.get_running_loop().time()
            await asyncio.gather(a.sync({"w": ONES}), b.sync({"w": ONES}))
            waited = asyncio.get_running_loop().time() - start
            assert LEASE["lease_s"] <= waited <= 1.25 * LEASE["lease_s"]
            assert (count(house, "left_lease"), value(house)) == (1, 2.0)


async def test_whoever_only_stops_talking_is_cut_off_after_its_lease(hand):
    async with cluster(**LEASE) as house:
        silent = await hand(house)
        await asyncio.sleep(2 * LEASE["lease_s"])
        assert silent.lost.done()
        assert house.server.status()["n_members"] == 0


async def test_bytes_of_a_slow_push_keep_the_lease(hand):
    n = 20_000
    async with cluster(n, **LEASE) as house:
        # 80 kB at 2 kB/s take eight leases.
        worker = await hand(house, up=Link(rate_bytes_s=2000.0))
        answer = await worker.push(1, np.ones(n, np.float32))
        assert answer.body.version == 1
        assert count(house, "left_lease") == 0


async def test_no_membership_outlives_its_lease_whatever_becomes_of_its_connection(hand):
    async with cluster(**LEASE) as house:
        workers = [await hand(house, f"w{i}") for i in range(6)]
        workers[0].connection.abort()
        await workers[1].connection.close()
        await hand(house, "w2", 1)  # the same life, again
        await hand(house, "w3", 2)  # another life
        (await hand(house, "w4")).connection.abort()
        await workers[5].leave()
        assert house.server.status()["n_members"] == 5
        await asyncio.sleep(2 * LEASE["lease_s"])
        assert house.server.status()["n_members"] == 0
        assert house.server.service.peers == set()


async def test_an_evicted_worker_is_welcomed_back_and_its_old_push_is_stale(hand):
    async with cluster(weights="uniform", sync="bulk:1", work="fixed:1", **LEASE) as house:
        gone = await hand(house, "gone")
        await gone.push(1, ONES)
        gone.connection.abort()
        await asyncio.sleep(2 * LEASE["lease_s"])
        async with house.worker("a") as a:
            await a.init()
            for _ in range(3):
                await a.sync({"w": ONES})
            back = await hand(house, "gone")
            answer = await back.push(2, ONES, base=1)
            assert (answer.body.code, answer.body.args) == (StalePush.code, (3, 1))
            # What it computes from what it is given now is taken, even if the others are faster.
            for _ in range(4):
                await a.sync({"w": ONES})
            await back.send_push(3, ONES, base=4)
            await a.sync({"w": ONES})
            assert (await back.events.get()).body.staleness == 4
            assert value(house) == 9.0


async def test_the_start_waits_for_min_workers_and_says_for_whom():
    async with cluster(min_workers=2, weights="uniform") as house:
        status = house.server.status
        async with house.worker("a") as a:
            await a.init()
            assert status()["waiting"] == "waiting for 2 of 2 workers (min_workers)"
            ticket = a.sync({"w": ONES})
            await asyncio.sleep(100)
            assert not ticket.done()
            assert status()["waiting"] == "waiting for 1 of 2 workers (min_workers)"
            assert not status()["started"]
            async with house.worker("b") as b:
                await b.init()
                await asyncio.gather(ticket, b.sync({"w": ONES}))
                assert status()["waiting"] == ""
                late = a.sync({"w": ONES})
                await asyncio.sleep(1)
                assert status()["waiting"] == "waiting for worker 1"
                assert (await a.status())["waiting"] == "waiting for worker 1"
            # b has left, so nobody is waited for.
            await late
            assert status()["started"]


# Slow readers and floods.


async def test_a_slow_reader_borrows_few_snapshots_and_is_served_in_the_end(hand):
    n = 50_000
    async with cluster(n, sync="asynchronous", **LEASE) as house:
        slow = await hand(house, down=Link(rate_bytes_s=100_000.0))
        asked = asyncio.ensure_future(slow.pull())
        pool = house.server.service.pool
        async with house.worker("a") as a:
            await a.init()
            for _ in range(50):
                await a.push({"w": np.ones(n, np.float32)})
            # The newest snapshot, and the one that is being sent.
            assert pool.outstanding_bytes < 3 * 4 * n
            model = await asked
            (values,) = {v for p in model.parts for v in np.frombuffer(p.payload, np.float32)}
            assert values == model.body.version


async def test_a_reader_that_dials_again_gives_its_loans_back(hand):
    n = 50_000
    async with cluster(n) as house:
        pool = house.server.service.pool
        for _ in range(5):
            reader = await hand(house, "reader", down=Link(rate_bytes_s=1000.0))
            for _ in range(3):
                reader.send_pull()
            await settle()
            assert pool.outstanding_bytes <= 2 * 4 * n
        last = await hand(house, "reader")
        assert (await last.pull()).kind is Kind.MODEL
        await settle()
        assert pool.outstanding == 1
        assert len(house.server.service.peers) == 1


async def test_whoever_asks_without_reading_is_cut_off(hand):
    n = 50_000
    async with cluster(n, sync="asynchronous") as house:
        flood = await hand(house, down=Link(rate_bytes_s=1000.0))
        for _ in range(MAX_QUEUED + 5):
            flood.send_pull()
        await asyncio.sleep(1)
        pool = house.server.service.pool
        assert pool.outstanding_bytes <= 2 * 4 * n
        assert not house.server.service.peers
        async with house.worker("a") as a:
            await a.init()
            await a.sync({"w": np.ones(n, np.float32)})


async def test_a_flood_of_large_pushes_is_held_once(hand, threads):
    async with cluster(MANY) as house:
        flood = await hand(house)
        for sequence in range(1, 20):
            await flood.send_push(sequence, np.ones(MANY, np.float32))
        await asyncio.sleep(1)
        assert house.server.service.pool.outstanding_bytes < 3 * 4 * MANY
        assert count(house, "refused_Busy") == 18
        await threads.go()
        await threads.go()
        assert house.server.version == 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="a browser"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", id="TLS"),
        pytest.param(MAGIC + b"\xff" * 30, id="noise behind the magic"),
        pytest.param(frame_bytes(Kind.PUSH, b"\xc1"), id="no message"),
        pytest.param(frame_bytes(Kind.PUSH, encode(Kind.PULL, Pull())), id="another message"),
        pytest.param(frame_bytes(Kind.WELCOME, b"\x90"), id="what only servers say"),
        pytest.param(
            HEADER.pack(MAGIC, PROTOCOL, Kind.TENSOR, 1, 1, 0, 99, 0, 0, 1 << 62), id="2^62 bytes"
        ),
        pytest.param(
            HEADER.pack(MAGIC, PROTOCOL, Kind.TENSOR, 1, 1, 0, 99, 0, 0, 16), id="unannounced"
        ),
        pytest.param(HEADER.pack(MAGIC, 2, Kind.PULL, 0, 0, 0, 1, 0, 0, 0), id="protocol 2"),
    ],
)
async def test_nonsense_costs_its_sender_the_connection_and_nobody_else(hand, data):
    async with cluster() as house:
        good, bad = await hand(house), await hand(house)
        bad.connection.post(data)
        await bad.lost
        assert (await good.push(1, ONES)).body.version == 1
        assert house.server.service.pool.outstanding == 1


async def test_goodbyes_and_farewells_may_be_repeated(hand):
    async with cluster() as house:
        worker = await hand(house)
        for _ in range(3):
            worker.send_leave()
        await worker.lost
        assert count(house, "left_left") == 1
        await hand(house)
