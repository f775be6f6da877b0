"""Questions how far a round goes, over the wire: who is answered, who is refused, and with which sentence."""

import asyncio

import numpy as np
import pytest

from aiops.transport.memory import Link
from aiops.wire.frame import Kind
from aiops.wire.message import Advice, Query
from tests.server.kit import LEASE, cluster, count, settle

pytestmark = pytest.mark.virtual

UPDATE = np.ones(4, np.float32)


@pytest.mark.parametrize("work", ["fixed:2", "until_model"])
async def test_who_asks_under_another_work_is_refused_and_goes_on(hand, work):
    async with cluster(work=work) as house:
        worker = await hand(house)
        answer = await worker.ask(Kind.QUERY, Query(0, 1, 0.1))
        assert answer.kind is Kind.REFUSE
        assert "says beforehand how many steps a round has, it is not asked" in answer.body.message
        # What is only told gets no answer, and does no harm.
        worker.connection.post(worker.session.send(Kind.QUERY, Query(0, 1, 0.1)))
        assert (await worker.pull()).kind is Kind.MODEL
        assert (count(house, "queries"), count(house, "refused_Refused")) == (2, 2)


async def test_a_round_that_does_not_exist_cannot_be_asked_about(hand):
    async with cluster(work="esync") as house:
        worker = await hand(house)
        answer = await worker.ask(Kind.QUERY, Query(3, 1, 0.1))
        assert answer.kind is Kind.REFUSE
        assert answer.body.message == "query is about version 3, the server is at 0"


async def test_who_has_left_is_no_member_that_could_ask(hand):
    async with cluster(work="esync", **LEASE) as house:
        worker = await hand(house, down=Link(1.0))
        number = worker.session.next_request()
        query = worker.session.send(Kind.QUERY, Query(0, 1, 0.1), request=number)
        worker.send_leave()
        worker.connection.post(query)
        answers = [await worker.events.get() for _ in range(2)]
        assert {answer.kind for answer in answers} == {Kind.BYE, Kind.REFUSE}
        (refusal,) = [answer.body for answer in answers if answer.kind is Kind.REFUSE]
        assert refusal.message == "worker 0 is not a member, its lease has ended"


async def test_the_welcome_says_whether_to_ask(hand):
    for work, asks in (("esync", True), ("fixed:1", False), ("until_model", False)):
        async with cluster(work=work) as house:
            worker = await hand(house, greet=False)
            policy = (await worker.hello("a")).body.policy
            assert (policy.query, policy.min_steps) == (asks, 1)


async def test_a_held_answer_finds_its_way_and_says_how_long_it_was_held(hand):
    async with cluster(work="esync", min_workers=2) as house:
        fast, slow = await hand(house), await hand(house)
        for worker in (fast, slow):
            worker.connection.post(worker.session.send(Kind.QUERY, Query(0, 0)))
        await settle()
        asking = asyncio.ensure_future(fast.ask(Kind.QUERY, Query(0, 1, 1.0)))
        await asyncio.sleep(3.0)
        assert not asking.done()
        assert (await slow.ask(Kind.QUERY, Query(0, 1, 3.0))).body == Advice(0, 1)
        body = (await asking).body
        assert (body.version, body.n_steps) == (0, 4)
        assert body.held_s == pytest.approx(3.0)


async def test_the_model_foresees_the_next_round(hand):
    async with cluster(work="esync", min_workers=2) as house:
        fast, slow = await hand(house), await hand(house)
        for worker, step_s in ((fast, 1.0), (slow, 4.5)):
            worker.connection.post(worker.session.send(Kind.QUERY, Query(0, 1, step_s)))
        await settle()
        pushing = asyncio.ensure_future(fast.push(1, UPDATE, want=True))
        await settle()
        assert (await slow.push(1, UPDATE, want=True)).body.max_steps == 1
        model = (await pushing).body
        # 4.5 s, and the slow one's push took 0.1 s less.
        assert (model.min_steps, model.max_steps) == (1, 4)


async def test_an_answer_to_a_lost_connection_does_no_harm(hand):
    async with cluster(work="esync", min_workers=2, **LEASE) as house:
        fast, slow = await hand(house, "fast"), await hand(house, "slow")
        for worker in (fast, slow):
            worker.connection.post(worker.session.send(Kind.QUERY, Query(0, 0)))
        await settle()
        asking = asyncio.ensure_future(fast.ask(Kind.QUERY, Query(0, 1, 1.0)))
        await settle()
        fast.connection.abort()
        assert await asking is None
        again = await hand(house, "fast")
        asking = asyncio.ensure_future(again.ask(Kind.QUERY, Query(0, 1, 0.0)))
        await settle()
        assert (await slow.ask(Kind.QUERY, Query(0, 1, 3.0))).body == Advice(0, 1)
        assert (await asking).body.n_steps >= 1
