"""Positions on the wire: what is chosen goes to everybody who asks, and what is none is refused whole."""

import asyncio

import numpy as np
import pytest

from aiops.codec.artopk import artopk
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.wire.frame import Kind
from aiops.wire.message import Chosen
from tests.server.kit import LEASE, cluster, count, settle, value

pytestmark = pytest.mark.virtual

N = 100
CODEC = artopk(0.1)
SPEC = {"codec": "artopk:0.1", "work": "fixed:1", "sync": "bulk:0", "weights": "uniform"}
INDEX = np.arange(0, N, 10, dtype=np.uint32)


def house(**spec):
    return cluster(N, **{**SPEC, **spec})


def coded(index=INDEX, **other):
    return {"data": CODEC.write(index, N), "codec": 10, "dtype": 0, **other}


def values(*given, **other):
    return {"data": np.resize(np.float32(given or (1,)), 10), "codec": 10, **other}


async def test_a_round_by_hand(hand):
    async with house() as server:
        a, b = await hand(server), await hand(server)
        assert (await a.choose()).body == Chosen(0, lead=True)
        await b.send_choose()
        await settle()
        assert b.events.empty()
        assert (await a.choose(coded())).body == Chosen(1)
        answer = await b.events.get()
        assert answer.body == Chosen(1, parts=1)
        (part,) = answer.parts
        assert (part.header.key, part.header.codec, part.header.dtype) == (0, 10, 0)
        assert bytes(part.payload) == CODEC.write(INDEX, N).tobytes()
        await a.send_push(1, values(1), choice=1, want=True)
        answer = await b.push(1, values(3), choice=1, want=True)
        assert (answer.body.version, answer.body.lead) == (1, True)
        assert (await a.events.get()).body.lead is False
        params = server.server.params()["w"]
        np.testing.assert_array_equal(params[INDEX], np.full(10, 2.0))
        assert params.sum() == 20


async def test_an_acknowledgement_says_who_leads_too(hand):
    async with house() as server:
        a = await hand(server)
        await a.choose()
        await a.choose(coded())
        answer = await a.push(1, values(), choice=1)
        assert (answer.kind, answer.body.lead) == (Kind.ACK, True)
        # A push that is answered again is so with what is true then.
        await a.choose(coded())
        assert (await a.push(1, values(), choice=1)).body.lead is False


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        pytest.param(
            coded(data=np.zeros(5, np.uint8)), "positions' payload has 5 bytes", id="short"
        ),
        pytest.param(
            coded(data=np.zeros(CODEC.positions_bytes(N), np.uint8)),
            "artopk positions: ",
            id="none",
        ),
        pytest.param(
            coded(data=np.full(CODEC.positions_bytes(N), 255, np.uint8)), "positions: ", id="all"
        ),
        pytest.param(coded(data=np.zeros(3000, np.uint8)), "came with 3000 bytes", id="too large"),
        pytest.param(coded(key=1), "positions of key 1, which has none", id="no such key"),
        pytest.param(coded(codec=4), "has codec 4 and dtype 0", id="another codec"),
        pytest.param(coded(dtype=1), "has codec 10 and dtype 1", id="a dtype"),
    ],
)
async def test_bytes_that_are_no_positions_are_refused_and_somebody_else_leads(
    hand, part, sentence
):
    async with house() as server:
        bad, good = await hand(server), await hand(server)
        assert (await bad.choose()).body.lead
        await good.send_choose()
        answer = await bad.choose(part)
        assert answer.kind is Kind.REFUSE
        assert (answer.body.code, sentence in answer.body.message) == (3, True)
        assert (await good.events.get()).body == Chosen(0, lead=True)
        assert (await good.choose(coded())).body == Chosen(1)
        # The connection is as good as before.
        assert (await bad.choose()).body == Chosen(1, parts=1)
        assert (count(server, "choices"), count(server, "refused_ShapeMismatch")) == (1, 1)


async def test_a_choice_without_its_parts_or_with_one_too_many_is_none(hand):
    async with house(bucket_bytes=256) as server:
        a = await hand(server)
        await a.choose()
        half = {"data": CODEC.write(np.arange(6, dtype=np.uint32), 64), "codec": 10, "dtype": 0}
        answer = await a.choose(half)
        assert "choice has positions of 1 keys, those of all 2 that accumulate" in (
            answer.body.message
        )
        assert (await a.choose()).body.lead
        answer = await a.choose(lead=True)
        assert "choice has positions of 0 keys" in answer.body.message


@pytest.mark.parametrize(
    ("parts", "options", "code", "sentence"),
    [
        ((values(),), {}, 0, "push is of no choice"),
        ((values(),), {"choice": 0}, 1, "push is 1 rounds stale"),
        ((values(),), {"choice": 2}, 1, "push is 1 rounds stale"),
        (({"data": np.ones(9, np.float32), "codec": 10},), {"choice": 1}, 3, "needs 40"),
        (({"data": np.ones(N, np.float32)},), {"choice": 1}, 3, "key 0 is in codec dense"),
        (({**coded(), "codec": 10},), {"choice": 1}, 3, "has dtype 0, artopk"),
        ((), {"choice": 1}, 3, "key 0 is missing"),
        ((values(np.nan),), {"choice": 1}, 4, r"NaN or infinity in tensor 'w' (value 0 of 100)"),
        ((values(*[1] * 9, np.inf),), {"choice": 1}, 4, "(value 90 of 100)"),
    ],
)
async def test_a_push_that_is_not_of_the_choice_is_refused_and_nothing_moves(
    hand, parts, options, code, sentence
):
    async with house() as server:
        a = await hand(server)
        await a.choose()
        await a.choose(coded())
        answer = await a.push(1, *parts, **options)
        assert answer.kind is Kind.REFUSE
        assert sentence in answer.body.message
        assert answer.body.code == code
        assert value(server) == 0
        assert (await a.push(2, values(), choice=1)).kind is Kind.ACK
        assert server.server.params()["w"].sum() == 10


async def test_values_of_positions_are_refused_where_none_are_chosen(hand):
    async with cluster(N, work="fixed:1") as server:
        a = await hand(server)
        answer = await a.choose(coded())
        assert (answer.kind, answer.body.message) == (
            Kind.REFUSE,
            "codec dense has no positions to choose",
        )
        answer = await a.push(1, values(), choice=1)
        assert "and no positions are chosen for this payload" in answer.body.message
        assert (await a.push(2, np.ones(N, np.float32))).kind is Kind.ACK


async def test_who_asks_before_there_is_anything_to_choose_of_is_refused(hand):
    async with cluster(**SPEC) as server:
        server.server.service.store.seeded = False
        a = await hand(server)
        answer = await a.choose(coded())
        assert "the server has no parameters yet" in answer.body.message
        server.server.service.store.seeded = True


async def test_who_has_left_is_no_member_that_could_ask(hand):
    async with house(**LEASE) as server:
        a = await hand(server, down=Link(1.0))
        a.send_leave()
        await a.send_choose(coded())
        answers = [await a.events.get() for _ in range(2)]
        assert {answer.kind for answer in answers} == {Kind.BYE, Kind.REFUSE}


async def test_who_leaves_or_is_too_late_while_its_choice_is_checked_has_chosen_nothing(
    hand, threads, monkeypatch
):
    monkeypatch.setattr("aiops.server.choosing.INLINE_BYTES", 0)
    async with house(**LEASE) as server:
        a, b, c = [await hand(server) for _ in range(3)]
        assert (await a.choose()).body.lead
        await b.send_choose()
        await c.send_choose()
        await a.send_choose(coded())
        await settle()
        # Its line breaks; the next one leads, and is checked as well.
        a.connection.abort()
        assert (await b.events.get()).body.lead
        await b.send_choose(coded(INDEX + 1))
        await settle()
        assert count(server, "choices") == 0
        await threads.go(2)
        # What came first counts, and that its line is gone says nothing against it.
        assert (await b.events.get()).body == Chosen(1, parts=1)
        assert bytes((await c.events.get()).parts[0].payload) == CODEC.write(INDEX, N).tobytes()
        assert count(server, "choices") == 1


async def test_who_is_no_member_any_more_when_its_choice_is_checked_has_chosen_nothing(
    hand, threads, monkeypatch
):
    monkeypatch.setattr("aiops.server.choosing.INLINE_BYTES", 0)
    async with house(**LEASE) as server:
        a, b = await hand(server), await hand(server)
        assert (await a.choose()).body.lead
        await b.send_choose()
        await a.send_choose(coded())
        await settle()
        a.send_leave()
        assert (await b.events.get()).body.lead
        await threads.go()
        assert count(server, "choices") == 0
        await b.send_choose(coded())
        await threads.go()
        assert (await b.events.get()).body == Chosen(1)


async def test_a_choice_that_is_sent_again_over_a_new_line_is_counted_once(hand):
    async with house() as server:
        a = await hand(server, "a")
        await a.choose()
        assert (await a.choose(coded())).body == Chosen(1)
        again = await hand(server, "a")
        assert (await again.choose(coded())).body == Chosen(1)
        # Another one than that counts no more.
        assert (await again.choose(coded(INDEX + 1))).body == Chosen(1, parts=1)
        assert count(server, "choices") == 1


async def test_running_statistics_travel_as_they_are_and_nobody_chooses_of_them(hand):
    async with Cluster(**SPEC) as server:
        a = await hand(server)
        table = await a.init(("w", (N,), "float32"), ("mean", (4,), "float32", True))
        await a.seed(table.request, np.zeros(N, np.float32), np.zeros(4, np.float32))
        await a.choose()
        statistic = {"data": np.ones(4, np.float32), "key": 1}
        answer = await a.choose(coded(), {"data": b"", "key": 1, "codec": 10, "dtype": 0})
        assert "positions of key 1, which has none" in answer.body.message
        await a.choose()
        await a.choose(coded())
        bad = {"data": np.ones(4, np.float32), "key": 1, "codec": 10}
        answer = await a.push(1, values(), bad, choice=1)
        assert answer.kind is Kind.REFUSE
        assert (await a.push(2, values(), statistic, choice=1)).kind is Kind.ACK
        np.testing.assert_array_equal(server.server.params()["mean"], np.ones(4))


async def test_a_worker_that_holds_the_version_before_gets_values_and_others_the_model(hand):
    async with house(down="artopk:0.1") as server:
        a = await hand(server)
        sizes = []
        for turn, holds in enumerate((None, 1, 0)):
            await a.choose()
            await a.choose(coded())
            answer = await a.push(
                turn + 1, values(), choice=turn + 1, base=turn, want=True, holds=holds
            )
            sizes.append((answer.body.since, answer.parts[0].header.size))
        assert sizes == [(None, 4 * N), (1, 40), (None, 4 * N)]


async def test_an_answer_that_is_asked_for_again_later_is_a_whole_model(hand):
    async with house(down="artopk:0.1") as server:
        a, b = await hand(server, "a"), await hand(server, "b")
        for number in (1, 2):
            leader = (await a.choose()).body.lead
            if leader:
                await a.choose(coded())
            else:
                await b.choose(coded())
            if number == 1:
                await b.choose()
                await b.send_push(1, values(), choice=1, want=True)
                await a.push(1, values(), choice=1, want=True)
                b.send_leave()
                await settle()
            else:
                await a.push(2, values(), choice=2, base=1, want=True)
        back = await hand(server, "b")
        # It says that it holds the version before, but its push was of another round.
        answer = await back.push(1, values(), choice=1, want=True, holds=1)
        assert (answer.body.version, answer.body.since) == (2, None)


async def test_the_server_ends_while_workers_wait_for_a_choice(hand):
    async with house() as server:
        a, b = await hand(server), await hand(server)
        assert (await a.choose()).body.lead
        waiting = asyncio.ensure_future(b.choose())
        await settle()
    assert (await waiting).kind is Kind.BYE
