"""One connection of a link: signs of life, and answers that make no sense."""

import asyncio

import numpy as np
import pytest

from aiops.codec.dense import dense
from aiops.errors import ConnectFailed, FrameTooLarge, Refused, RemoteProtocolError
from aiops.transport.memory import Link as Wire
from aiops.types import TensorSpec
from aiops.wire.frame import Kind
from aiops.wire.message import Ack, Agreed, Model, Ping, Push, Refuse, Report
from aiops.wire.table import BucketEntry, Table, TensorEntry
from aiops.worker.request import InitRequest, PullRequest, PushRequest, StatusRequest
from tests.worker.kit import TABLE, House, Running, instead, now

pytestmark = pytest.mark.virtual


async def test_a_ping_goes_out_in_every_heartbeat():
    async with House() as house, Running(house.link()) as link:
        await link.greeted()
        await asyncio.sleep(20.5)
        assert house.doors[0].heard.count(Kind.PING) == 10
        assert link.connections == 1


async def test_a_ping_of_the_server_is_answered():
    async with House() as house, Running(house.link()) as link:
        await link.greeted()
        house.doors[0].say(Kind.PING, Ping())
        await asyncio.sleep(1)
        assert Kind.PONG in house.doors[0].heard


async def test_a_server_that_says_nothing_any_more_is_left_for_a_new_connection():
    async with House() as house, Running(house.link()) as link:
        await link.greeted()
        house.react = instead(Kind.PING, lambda *_: None)
        start = now()
        await asyncio.wait([house.doors[0].lost])
        assert 15.0 < now() - start <= 15.0 + 2 * 2.0
        await asyncio.sleep(1)
        assert link.connections == 2


async def test_a_long_upload_is_no_silence():
    table = Table(
        (TensorEntry("w", (100_000,), "float32", 0, 100_000),), (BucketEntry(0, 100_000, 0),)
    )
    async with House() as house:
        # One frame of 400 kB at 10 kB/s: pings wait 40 s behind it, the server has nothing to say, and what it says
        # then is on its way for longer than a heartbeat.
        house.up, house.down = Wire(rate_bytes_s=10_000.0), Wire(delay_s=3.0)
        async with Running(house.link()) as link:
            await link.greeted()
            request = PushRequest(table, push(), [[np.ones(100_000, np.float32)]], dense(), None)
            link.submit(request)
            assert (await request.ticket).version == 8
            assert link.connections == 1
            assert now() > 30


def push(*, want=False):
    return Push(1, 0, 1, 1, 1, 0.0, 1, want)


async def test_an_upload_that_makes_no_progress_is_given_up():
    table = Table((TensorEntry("w", (10**6,), "float32", 0, 10**6),), (BucketEntry(0, 10**6, 0),))
    async with House() as house, Running(house.link(give_up_s=0.0)) as link:
        await link.greeted()
        house.doors[0].connection.pause_reading()
        request = PushRequest(table, push(), [[np.ones(10**6, np.float32)]], dense(), None)
        link.submit(request)
        with pytest.raises(ConnectFailed, match=r"sending.* made no progress.*server"):
            await request.ticket
        assert now() < 31


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_connection_lost_in_the_very_moment_of_a_heartbeat_is_mended(moment):
    async with House() as house, Running(house.link()) as link:
        if moment == "before":
            asyncio.get_running_loop().call_at(2.0, lambda: house.doors[0].connection.abort())
        await link.greeted()
        if moment == "after":
            asyncio.get_running_loop().call_at(2.0, lambda: house.doors[0].connection.abort())
        await asyncio.sleep(5)
        assert link.connections == 2
        request = PullRequest(TABLE, None)
        link.submit(request)
        await request.ticket


async def test_a_request_submitted_in_the_very_moment_of_a_loss_is_sent_on_the_next_connection():
    async with House() as house, Running(house.link()) as link:
        await link.greeted()
        line = link._line
        requests = [PullRequest(TABLE, None) for _ in range(2)]
        lost = line.connection_lost

        def connection_lost(error):
            link.submit(requests[0])
            lost(error)
            link.submit(requests[1])

        line.connection_lost = connection_lost
        link.cut()
        for request in requests:
            await request.ticket
        assert link.connections == 2


# Answers that make no sense.


def torn(door, event):
    door.model(event.request, version=7, part_version=6)


def short(door, event):
    door.model(event.request, keys=(0,))


def doubled(door, event):
    door.model(event.request)
    door.say(Kind.ACK, Ack(1, 1), event.request)


def foreign(door, event):
    door.say(Kind.REPORT, Report("{}"), event.request)


def unasked(door, event):
    door.say(Kind.ACK, Ack(1, 1), event.request + 5)


def odd_bucket(door, event):
    door.say(Kind.MODEL, Model(7, 0, 1, 1), event.request)
    head = door.session.tensor(event.request, 5, 4, codec=1, dtype=1, version=7)
    door.connection.post(head + bytes(4))


def odd_size(door, event):
    door.say(Kind.MODEL, Model(7, 0, 1, 1), event.request)
    head = door.session.tensor(event.request, 0, 4, codec=1, dtype=1, version=7)
    door.connection.post(head + bytes(4))


@pytest.mark.parametrize("answer", [torn, short, foreign, unasked, odd_bucket, odd_size])
async def test_a_senseless_answer_is_an_error_and_not_a_model(answer):
    async with House(instead(Kind.PULL, answer)) as house, Running(house.link()) as link:
        await link.greeted()
        request = PullRequest(TABLE, None)
        link.submit(request)
        with pytest.raises(RemoteProtocolError):
            await request.ticket
        await asyncio.sleep(100)
        assert len(house.dialled) == 1


async def test_an_answer_too_many_ends_the_link_with_its_reason():
    async with House(instead(Kind.PULL, doubled)) as house, Running(house.link()) as link:
        await link.greeted()
        request = PullRequest(TABLE, None)
        link.submit(request)
        assert (await request.ticket).version == 7
        await asyncio.sleep(1)
        late = PullRequest(TABLE, None)
        link.submit(late)
        with pytest.raises(RemoteProtocolError, match="not open"):
            await late.ticket


async def test_an_answer_larger_than_we_take_is_an_error_and_not_asked_for_again():
    async with House() as house:
        house.max_frame_bytes = 7
        async with Running(house.link()) as link:
            with pytest.raises(FrameTooLarge):
                await link.greeted()
    async with House() as house, Running(house.link()) as link:
        await link.greeted()
        link._line.connection._reader._max = 7
        request = PullRequest(TABLE, None)
        link.submit(request)
        with pytest.raises(FrameTooLarge):
            await request.ticket
        assert len(house.dialled) == 1


async def test_a_refusal_fails_its_request_and_nothing_else():
    def refuse(door, event):
        door.say(Kind.REFUSE, Refuse(0, "not now"), event.request)

    async with House(instead(Kind.PULL, refuse)) as house, Running(house.link()) as link:
        await link.greeted()
        pull, status = PullRequest(TABLE, None), StatusRequest()
        link.submit(pull)
        link.submit(status)
        with pytest.raises(Refused, match="not now"):
            await pull.ticket
        await status.ticket
        assert link.connections == 1


async def test_a_bug_in_a_callback_reaches_whoever_waits_and_whoever_owns_the_task():
    def seed(door, event):
        door.say(Kind.TABLE, Agreed(TABLE, seed=True), event.request)

    def fill(table, flat):
        raise ZeroDivisionError("a bug in fill")

    async with House(instead(Kind.INIT, seed)) as house:
        running = Running(house.link())
        async with running as link:
            await link.greeted()
            init = InitRequest((TensorSpec("w", (4,), "float32"),), fill)
            pull = PullRequest(TABLE, None)
            house.react = instead(Kind.INIT, seed)
            link.submit(init)
            with pytest.raises(ZeroDivisionError):
                await init.ticket
            link.submit(pull)
            with pytest.raises(ZeroDivisionError):
                await pull.ticket
            assert isinstance(running.task.exception(), ZeroDivisionError)
            assert len(house.dialled) == 1
