"""The link: how it gets in and how it stays in."""

import asyncio
import itertools

import numpy as np
import pytest

from aiops.errors import (
    BadHandshake,
    Busy,
    ConnectFailed,
    Rejected,
    VersionMismatch,
)
from aiops.wire.frame import HEADER, MAGIC, Kind
from aiops.wire.message import Reject
from aiops.worker.link import LONGEST_BACKOFF_S
from aiops.worker.request import InitRequest, PullRequest, StatusRequest
from tests.worker.kit import TABLE, House, Running, friendly, instead, now

pytestmark = pytest.mark.virtual


async def test_nobody_there_is_an_error_within_the_connect_timeout_that_names_the_address():
    async with House(listening=False) as house, Running(house.link(connect_timeout_s=3.0)) as link:
        with pytest.raises(ConnectFailed, match="cannot connect to server"):
            await link.greeted()
        assert 2.0 < now() <= 3.0
        assert len(house.dialled) > 3


async def test_a_server_that_comes_in_time_is_found():
    async with House(listening=False) as house, Running(house.link()) as link:
        await asyncio.sleep(4)
        await house.open()
        assert (await link.greeted()).worker == 0
        assert now() <= 4 + LONGEST_BACKOFF_S


async def test_a_server_that_never_greets_is_an_error_within_the_connect_timeout():
    async with (
        House(instead(Kind.HELLO, lambda *_: None)) as house,
        Running(house.link(connect_timeout_s=3.0)) as link,
    ):
        with pytest.raises(ConnectFailed, match=r"the greeting.*server"):
            await link.greeted()
        assert now() <= 3.1


async def test_a_dial_that_hangs_is_given_up_within_the_connect_timeout():
    async with House(listening=False) as house:
        hanging = asyncio.Event()

        async def dial(make_receiver, *, idle_timeout_s):
            if hanging.is_set():
                await asyncio.sleep(3600)
            hanging.set()
            raise ConnectFailed("cannot connect to 10.0.0.1:4711: no route to host")

        house.dial = dial
        async with Running(house.link(connect_timeout_s=3.0)) as link:
            with pytest.raises(ConnectFailed, match=r"10\.0\.0\.1:4711"):
                await link.greeted()
            assert now() == pytest.approx(3.0)


async def test_a_connection_closed_before_the_welcome_is_tried_again_and_then_reported():
    def hang_up(door, _):
        door.connection.abort()

    async with House(instead(Kind.HELLO, hang_up)) as house:
        async with Running(house.link(connect_timeout_s=3.0)) as link:
            with pytest.raises(ConnectFailed, match="hung up before its welcome"):
                await link.greeted()
        assert len(house.dialled) > 3


async def test_a_connection_lost_before_anybody_could_speak_is_tried_again():
    async with House() as house:
        connect = house.connect

        async def dial(make_receiver, *, idle_timeout_s):
            connection = await connect(make_receiver, idle_timeout_s=idle_timeout_s)
            if len(house.dialled) < 4:
                connection.abort()
                await asyncio.sleep(0.1)
            return connection

        house.dial = dial
        async with Running(house.link()) as link:
            await link.greeted()
            assert (len(house.dialled), link.connections) == (4, 1)


async def test_a_rejected_worker_does_not_knock_again():
    def reject(door, _):
        door.say(Kind.REJECT, Reject("the token is wrong"))

    async with House(instead(Kind.HELLO, reject)) as house, Running(house.link()) as link:
        with pytest.raises(Rejected, match="the token is wrong"):
            await link.greeted()
        await asyncio.sleep(100)
        assert len(house.dialled) == 1
        late = StatusRequest()
        link.submit(late)
        with pytest.raises(Rejected):
            await late.ticket


def full(door, _):
    door.say(Kind.REJECT, Reject("the server has 2 members, that is its limit", retry=True))


async def test_a_full_server_is_asked_again_until_the_connect_timeout():
    async with House(instead(Kind.HELLO, full)) as house:
        async with Running(house.link(connect_timeout_s=3.0)) as link:
            with pytest.raises(Busy, match="2 members"):
                await link.greeted()
        assert len(house.dialled) > 3


async def test_a_place_that_becomes_free_in_time_is_taken():
    async with House(instead(Kind.HELLO, full)) as house, Running(house.link()) as link:
        await asyncio.sleep(2)
        house.react = friendly
        await link.greeted()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", BadHandshake),
        (b"SSH-2.0-OpenSSH_9.6\r\n", BadHandshake),
        (HEADER.pack(MAGIC, 9, Kind.WELCOME, 0, 0, 0, 0, 0, 0, 0), VersionMismatch),
    ],
    ids=["http", "ssh", "another protocol version"],
)
async def test_a_stranger_is_not_asked_twice(data, error):
    def answer(door, _):
        door.connection.post(data)

    async with House(instead(Kind.HELLO, answer)) as house, Running(house.link()) as link:
        with pytest.raises(error):
            await link.greeted()
        await asyncio.sleep(100)
        assert len(house.dialled) == 1


# Staying in.


async def test_requests_are_answered():
    async with House() as house, Running(house.link()) as link:
        await link.greeted()
        pull, status = PullRequest(TABLE, None), StatusRequest()
        init = InitRequest((), lambda *_: None)
        for request in (pull, status, init):
            link.submit(request)
        snapshot = await pull.ticket
        assert (snapshot.version, snapshot.flat.tolist()) == (7, [1, 2, 3, 4])
        assert (pull.ticket.version, pull.ticket.bytes) == (7, 16)
        assert await status.ticket == '{"version": 7}'
        assert (await init.ticket).flat.tolist() == [1, 2, 3, 4]
        assert init.table == TABLE


async def test_open_requests_are_sent_again_after_a_reconnect_and_once_each():
    async with House(instead(Kind.PULL, lambda *_: None)) as house, Running(house.link()) as link:
        await link.greeted()
        requests = [PullRequest(TABLE, None) for _ in range(3)]
        for request in requests:
            link.submit(request)
        await asyncio.sleep(1)
        house.react = friendly
        link.cut()
        await asyncio.gather(*(request.ticket for request in requests))
        assert link.connections == 2
        assert [door.heard.count(Kind.PULL) for door in house.doors] == [3, 3]
        link.cut()
        await asyncio.sleep(10)
        assert house.doors[2].heard.count(Kind.PULL) == 0


async def test_redials_back_off_and_are_spread():
    async with House() as house, Running(house.link()) as link:
        await link.greeted()
        await house.listener.close()
        await asyncio.sleep(10)
        house.doors[0].connection.abort()
        await asyncio.sleep(60)
        waits = np.diff(house.dialled)[1:]
        for expected, wait in zip(itertools.chain((0.2, 0.4, 0.8, 1.6, 3.2)), waits, strict=False):
            assert expected / 2 <= wait <= expected
        assert (waits[5:] <= LONGEST_BACKOFF_S).all()
        assert (waits[5:] >= LONGEST_BACKOFF_S / 2).all()
        assert len(set(waits[5:])) > 3
        await house.open()
        await asyncio.sleep(LONGEST_BACKOFF_S)
        assert link.connections == 2


async def test_a_lost_server_is_given_up_in_the_end_and_every_ticket_told():
    async with (
        House(instead(Kind.PULL, lambda *_: None)) as house,
        Running(house.link(give_up_s=30.0)) as link,
    ):
        await link.greeted()
        await asyncio.sleep(100)
        request = PullRequest(TABLE, None)
        link.submit(request)
        await house.listener.close()
        house.doors[0].connection.abort()
        with pytest.raises(ConnectFailed, match="cannot connect to server"):
            await request.ticket
        assert 129.0 <= now() <= 131.0


async def test_no_patience_means_no_redial():
    async with House() as house, Running(house.link(give_up_s=0.0)) as link:
        await link.greeted()
        request = PullRequest(TABLE, None)
        house.react = lambda *_: None
        link.submit(request)
        await asyncio.sleep(1)
        house.doors[0].connection.abort()
        with pytest.raises(ConnectFailed, match="the last try ended with"):
            await request.ticket
        assert len(house.dialled) == 1


async def test_a_request_that_ends_every_connection_is_given_up_and_not_sent_for_ever():
    def hang_up(door, _):
        door.connection.abort()

    async with (
        House(instead(Kind.PULL, hang_up)) as house,
        Running(house.link(give_up_s=60.0)) as link,
    ):
        await link.greeted()
        request = PullRequest(TABLE, None)
        link.submit(request)
        with pytest.raises(ConnectFailed, match=r"no connection for 6\d\.\d s"):
            await request.ticket
        assert len(house.dialled) < 30


async def test_a_link_that_flaps_and_works_between_is_never_given_up():
    async with House() as house, Running(house.link(give_up_s=20.0)) as link:
        await link.greeted()
        for _ in range(50):
            await asyncio.sleep(3)
            link.cut()
        await asyncio.sleep(3)
        request = PullRequest(TABLE, None)
        link.submit(request)
        await request.ticket
        assert link.connections == 51
