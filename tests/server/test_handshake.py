"""Who comes in, who does not, and whose place they take."""

import asyncio

import pytest

from aiops.server.handshake import HANDSHAKE_S
from aiops.sim.cluster import Cluster
from aiops.wire.frame import Kind, frame_bytes
from aiops.wire.message import Hello, Pull, encode
from tests.server.kit import count

pytestmark = pytest.mark.virtual


async def test_the_welcome_tells_what_a_worker_needs(hand):
    async with Cluster(
        sync="bulk", codec="topk:0.5", work="until_model:2,9", merge="mix:0.25", lease_s=8.0
    ) as house:
        worker = await hand(house, greet=False)
        welcome = (await worker.hello("a")).body
        assert (welcome.worker, welcome.version, welcome.lease_s) == (0, 0, 8.0)
        policy = welcome.policy
        assert (policy.overlap, policy.min_steps, policy.max_steps) == (True, 2, 9)
        assert (policy.codec, policy.merge, policy.alpha) == ("topk:0.5", "mix", 0.25)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (None, "this server asks for a token"),
        ("", "this server asks for a token"),
        ("wrong", "the token is wrong"),
        ("gehëim", "the token is wrong"),
    ],
)
async def test_without_the_token_nobody_comes_in(hand, token, reason):
    async with Cluster(token="geheim") as house:
        worker = await hand(house, greet=False)
        answer = await worker.hello("a", token=token)
        assert (answer.kind, answer.body.reason, answer.body.retry) == (Kind.REJECT, reason, False)
        await worker.lost
        assert (house.server.status()["n_members"], count(house, "rejected")) == (0, 1)
        right = await hand(house, greet=False)
        assert (await right.hello("a", token="geheim")).kind is Kind.WELCOME


async def test_a_full_server_says_come_back_later_and_lets_members_redial(hand):
    async with Cluster(max_members=2) as house:
        first, second = [await hand(house) for _ in range(2)]
        third = await hand(house, greet=False)
        answer = await third.hello("c")
        assert (answer.kind, answer.body.retry) == (Kind.REJECT, True)
        assert "2 members" in answer.body.reason
        again = await hand(house, "hand0")
        assert again.worker == first.worker
        another_life = await hand(house, "hand1", 2)
        assert another_life.worker == second.worker
        await again.leave()
        assert (await hand(house, "c")).worker == 2


async def test_a_new_life_takes_the_place_of_the_old_one_at_once(hand):
    async with Cluster() as house:
        old = await hand(house, "a", 1)
        new = await hand(house, "a", 2)
        await old.lost
        assert new.worker == old.worker
        assert (house.server.status()["n_members"], count(house, "left_replaced")) == (1, 1)
        late = await hand(house, greet=False)
        answer = await late.hello("a", 1)
        assert answer.kind is Kind.REJECT
        assert "'a' has come back as incarnation 2, incarnation 1 is over" in answer.body.reason


async def test_the_reason_fits_its_message_however_long_the_name_is(hand):
    name = "\U0001f600" * 4096
    async with Cluster() as house:
        await hand(house, name, 2)
        late = await hand(house, greet=False)
        assert (await late.hello(name, 1)).kind is Kind.REJECT


async def test_the_same_life_that_dials_again_ends_its_old_connection(hand):
    async with Cluster() as house:
        old = await hand(house, "a", 1)
        new = await hand(house, "a", 1)
        await old.lost
        assert new.worker == old.worker
        assert count(house, "joined") == 1
        (member,) = house.server.status()["members"]
        assert member["connected"]


@pytest.mark.parametrize("incarnation", [1, 2])
async def test_a_connection_replaced_while_its_end_is_on_the_way_does_no_harm(hand, incarnation):
    async with Cluster() as house:
        old = await hand(house, "a", 1)
        # Both ends go at once: the old connection is closed, and its successor is there before anybody hears of it.
        old.connection.abort()
        await hand(house, "a", incarnation)
        await asyncio.sleep(1)
        (member,) = house.server.status()["members"]
        assert (member["worker"], member["connected"]) == (0, True)


async def test_whoever_does_not_say_hello_in_time_is_dropped(hand):
    async with Cluster() as house:
        silent = await hand(house, greet=False)
        await asyncio.sleep(2 * HANDSHAKE_S)
        assert silent.lost.done()
        assert not house.server.service.peers


async def test_long_leases_do_not_let_strangers_stay_longer(hand):
    async with Cluster(lease_s=36000.0) as house:
        silent = await hand(house, greet=False)
        await asyncio.sleep(2 * HANDSHAKE_S + 1)
        assert silent.lost.done()


@pytest.mark.parametrize("first", [Kind.PULL, Kind.TENSOR, Kind.INIT, Kind.LEAVE, Kind.WELCOME])
async def test_anything_but_hello_first_ends_the_connection(hand, first):
    async with Cluster() as house:
        stranger = await hand(house, greet=False)
        payload = encode(Kind.PULL, Pull()) if first is Kind.PULL else b"\x90"
        stranger.connection.post(frame_bytes(first, payload))
        await stranger.lost
        assert house.server.status()["n_members"] == 0
        await hand(house)


async def test_a_second_hello_ends_the_connection(hand):
    async with Cluster() as house:
        worker = await hand(house, "a")
        stranger = await hand(house, greet=False)
        hello = stranger.session.send(Kind.HELLO, Hello(0, "", 0, "a", 9))
        worker.connection.post(hello)
        await worker.lost
        assert not stranger.lost.done()
