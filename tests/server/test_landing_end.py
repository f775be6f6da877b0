"""Workers that are cut, leave or stop while they land or wait, and servers that end meanwhile."""

import asyncio

import numpy as np
import pytest

from aiops.errors import ConnectFailed, ConnectionLost
from aiops.transport.memory import Link
from tests.server.kit import LEASE, count, settle
from tests.server.landing import (
    LINE,
    MODEL_BYTES,
    VALUES,
    announce,
    answered,
    bounded,
    heard,
    landing,
    parts,
    starting,
)

pytestmark = pytest.mark.virtual


async def test_a_worker_cut_while_it_waits_leaves_the_line_and_comes_again(hand):
    async with bounded(1, min_workers=3, **LEASE) as house:
        a = await hand(house, "a", up=Link(rate_bytes_s=MODEL_BYTES / 4))
        starting(a, house)
        await asyncio.sleep(1.0)
        async with house.worker("b") as b:
            await b.init()
            ticket = b.sync({"w": np.ones(VALUES, np.float32)})
            await asyncio.sleep(0.2)
            c = await hand(house, "c", up=Link(**LINE))
            starting(c, house)
            await asyncio.sleep(0.2)
            assert landing(house)["waiting"] == 2
            house.connections["b"][0].abort()
            await asyncio.sleep(1.0)
            # It has taken its place anew, behind the other.
            assert landing(house)["waiting"] == 2
            await asyncio.wait_for(answered(a, c), 10.0)
            await ticket
            assert b.connections == 2
        assert landing(house)["peak_bytes"] == MODEL_BYTES


async def test_a_worker_that_is_gone_while_it_waits_is_noticed_before_its_turn(hand):
    async with bounded(1, **LEASE) as house:
        a = await hand(house, "a", up=Link(rate_bytes_s=MODEL_BYTES / 60))
        b = await hand(house, "b")
        starting(a, house)
        await asyncio.sleep(0.5)
        starting(b, house).add_done_callback(heard)
        await asyncio.sleep(0.5)
        assert landing(house)["waiting"] == 1
        b.connection.abort()
        await asyncio.sleep(2.0)
        assert landing(house)["waiting"] == 0
        assert house.server.status()["n_members"] == 2
        await asyncio.sleep(LEASE["lease_s"] + 1)
        assert house.server.status()["n_members"] == 1


async def test_a_worker_cut_while_it_lands_makes_room(hand):
    async with bounded(1, min_workers=2, **LEASE) as house:
        up = Link(cut_after=MODEL_BYTES // 2, **LINE)
        async with house.worker("a", up=up) as a, house.worker("b") as b:
            await a.init()
            await b.init()
            one = a.sync({"w": np.ones(VALUES, np.float32)})
            await asyncio.sleep(0.3)
            other = b.sync({"w": np.ones(VALUES, np.float32)})
            await asyncio.sleep(0.1)
            assert landing(house)["waiting"] == 1
            await asyncio.gather(one, other)
            assert (a.connections, b.connections) == (2, 1)
        assert (house.server.params()["w"] == 1.0).all()
        assert landing(house)["peak_bytes"] == MODEL_BYTES


async def test_a_worker_that_stops_while_it_lands_loses_its_room_with_its_lease(hand):
    async with bounded(1, **LEASE) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=Link(**LINE))
        await announce(a, 0, 4, payload_bytes=MODEL_BYTES)
        await a.connection.send(list(a.tensors(1, parts(house, 1.0)[:1])))
        await settle()
        starting(b, house)
        await asyncio.sleep(1.0)
        assert landing(house) | {"bytes": MODEL_BYTES, "waiting": 1} == landing(house)
        assert await answered(b) == [1]
        assert count(house, "left_lease") == 1


async def test_a_worker_that_leaves_while_it_waits_is_waited_for_no_longer_than_its_lease(hand):
    async with bounded(1, **LEASE) as house:
        slow = Link(rate_bytes_s=MODEL_BYTES / 30)
        a = await hand(house, "a", up=slow)
        async with house.worker("b") as b:
            await b.init()
            starting(a, house)
            await asyncio.sleep(1.0)
            ticket = b.push({"w": np.ones(VALUES, np.float32)})
            await asyncio.sleep(1.0)
            assert landing(house)["waiting"] == 1
        with pytest.raises(ConnectionLost, match="left before"):
            await ticket
        await asyncio.sleep(3.0)
        assert landing(house)["waiting"] == 0
        await asyncio.sleep(LEASE["lease_s"] + 1)
        assert house.server.status()["n_members"] == 1


async def test_a_server_ends_at_once_though_some_wait(hand):
    house = bounded(1, **LEASE)
    async with house:
        for name in "abc":
            worker = await hand(house, name, up=Link(rate_bytes_s=MODEL_BYTES / 60))
            starting(worker, house).add_done_callback(heard)
        await settle()
        async with house.worker("d", give_up_s=5.0) as d:
            await d.init()
            ticket = d.sync({"w": np.ones(VALUES, np.float32)})
            await asyncio.sleep(1.0)
            assert landing(house)["waiting"] == 3
            await asyncio.wait_for(house.server.stop(), 1.0)
            with pytest.raises(ConnectFailed):
                await ticket


async def test_a_server_that_is_cancelled_gives_all_of_it_back(hand):
    async with bounded(1, **LEASE) as house:
        for name in "abc":
            worker = await hand(house, name, up=Link(rate_bytes_s=MODEL_BYTES / 60))
            starting(worker, house).add_done_callback(heard)
        await asyncio.sleep(1.0)
        assert landing(house)["waiting"] == 2
        house.server._main.cancel()
        with pytest.raises(asyncio.CancelledError):
            await house.server.stop()
        assert house.server.service.pool.outstanding == 0
        await house.start()
