"""The link: how it ends."""

import asyncio

import pytest

from aiops.errors import ConnectionLost
from aiops.wire.frame import Kind
from aiops.wire.message import Bye
from aiops.worker.link import LEAVING_S
from aiops.worker.request import PullRequest, StatusRequest
from tests.worker.kit import TABLE, House, Running, instead, now

pytestmark = pytest.mark.virtual


async def test_leaving_hears_the_goodbye_and_closes():
    async with House() as house, Running(house.link()) as link:
        await link.greeted()
        await link.leave()
        assert house.doors[0].heard[-1] is Kind.LEAVE
        await house.doors[0].lost
        assert now() < 0.1


@pytest.mark.parametrize("how", ["silence", "hang up", "said before"])
async def test_leaving_never_raises_and_takes_no_longer_than_it_may(how):
    def answer(door, _):
        if how == "hang up":
            door.connection.abort()

    async with House(instead(Kind.LEAVE, answer)) as house, Running(house.link()) as link:
        await link.greeted()
        if how == "said before":
            house.doors[0].say(Kind.BYE, Bye("server stops"))
            await asyncio.sleep(0.1)
        await link.leave()
        await link.leave()
        assert now() <= 2 * LEAVING_S + 0.2


async def test_leaving_while_there_is_no_connection_stops_the_dialling():
    async with House() as house:
        running = Running(house.link())
        async with running as link:
            await link.greeted()
            await house.listener.close()
            link.cut()
            await asyncio.sleep(1)
            await link.leave()
            dialled = len(house.dialled)
            await asyncio.wait([running.task])
            assert len(house.dialled) <= dialled + 1


async def test_a_link_that_is_closed_fails_what_is_open_and_what_comes():
    async with House(instead(Kind.PULL, lambda *_: None)) as house:
        running = Running(house.link())
        async with running as link:
            await link.greeted()
            requests = [PullRequest(TABLE, None) for _ in range(3)]
            for request in requests:
                link.submit(request)
            await asyncio.sleep(1)
            running.task.cancel()
            for request in requests:
                with pytest.raises(ConnectionLost, match="the worker was closed"):
                    await request.ticket
            late = StatusRequest()
            link.submit(late)
            with pytest.raises(ConnectionLost):
                await late.ticket


async def test_a_link_closed_before_its_first_greeting_says_so():
    async with House(instead(Kind.HELLO, lambda *_: None)) as house:
        running = Running(house.link())
        async with running as link:
            greeting = asyncio.ensure_future(link.greeted())
            await asyncio.sleep(0.1)
            running.task.cancel()
            with pytest.raises(ConnectionLost):
                await greeting
