"""Every push is merged once however often it is sent, on whichever connection, and gets one answer."""

import asyncio

import numpy as np
import pytest

from aiops.errors import Busy, NotMember, Refused
from aiops.server.members import WINDOW
from aiops.wire.frame import Kind
from aiops.wire.message import Ping
from tests.server.kit import LEASE, ONES, cluster, count, settle, value

pytestmark = pytest.mark.virtual


async def test_a_push_sent_again_on_its_connection_is_merged_once(hand):
    async with cluster() as house:
        worker = await hand(house)
        answers = [await worker.push(1, ONES) for _ in range(3)]
        assert [answer.body.version for answer in answers] == [1, 1, 1]
        assert (value(house), house.server.version) == (1.0, 1)
        assert count(house, "pushes_repeated") == 2


async def test_a_push_sent_again_later_is_told_the_version_it_became_part_of(hand):
    async with cluster() as house:
        worker = await hand(house)
        await worker.push(1, ONES)
        await worker.push(2, ONES, base=1)
        answer = await worker.push(1, ONES)
        assert (answer.kind, answer.body.version) == (Kind.ACK, 1)
        answer = await worker.push(1, ONES, want=True)
        assert (answer.kind, answer.body.version) == (Kind.MODEL, 2)
        assert value(house) == 2.0


async def test_every_frame_sent_twice_changes_nothing(hand):
    async with cluster(min_workers=2, weights="uniform") as house:
        first, second = [await hand(house) for _ in range(2)]
        number = await first.send_push(1, ONES)
        await first.send_push(1, ONES, number=number)
        await second.send_push(1, ONES)
        # The very frames again, before and after the answer, and from a base that is old by then.
        assert (await first.events.get()).body.version == 1
        assert (await second.events.get()).body.version == 1
        assert (await first.push(1, ONES)).body.version == 1
        assert (await second.push(1, ONES)).body.version == 1
        assert (value(house), house.server.version) == (1.0, 1)
        assert first.events.empty()
        assert count(house, "pushes_repeated") == 3


async def test_a_refused_push_is_refused_again_with_the_same_words(hand):
    async with cluster() as house:
        worker = await hand(house)
        bad = np.array([1, np.nan, 1, 1], np.float32)
        first, again = [await worker.push(1, bad) for _ in range(2)]
        assert first.body == again.body
        # The same number with other content is still the same push.
        assert (await worker.push(1, ONES)).body == first.body
        assert value(house) == 0.0


async def test_a_push_that_waits_is_answered_where_it_was_sent_last(hand):
    async with cluster(min_workers=2, weights="uniform") as house:
        old = await hand(house, "a", 1)
        await old.send_push(1, ONES, want=True)
        await old.send_push(1, ONES, want=True)
        new = await hand(house, "a", 1)
        assert new.worker == old.worker
        await old.lost
        number = await new.send_push(1, ONES, want=True)
        other = await hand(house, "b")
        assert (await other.push(1, ONES)).body.version == 1
        answer = await new.events.get()
        assert (answer.kind, answer.request, answer.body.version) == (Kind.MODEL, number, 1)
        assert old.events.get_nowait() is None
        assert value(house) == 1.0


async def test_an_answer_to_a_connection_that_is_gone_is_given_again_on_the_next(hand):
    async with cluster(min_workers=2, weights="uniform") as house:
        old = await hand(house, "a", 1)
        await old.send_push(1, ONES, want=True)
        await settle()
        old.connection.abort()
        other = await hand(house, "b")
        assert (await other.push(1, ONES)).body.version == 1
        new = await hand(house, "a", 1)
        assert (await new.push(1, ONES, want=True)).body.n_merged == 2
        assert value(house) == 1.0


async def test_a_push_sent_again_after_the_lease_ended_is_merged_once(hand):
    async with cluster(min_workers=2, weights="uniform", **LEASE) as house:
        old = await hand(house, "a", 1)
        await old.send_push(1, ONES)
        await settle()
        old.connection.abort()
        await asyncio.sleep(10)
        assert count(house, "left_lease") == 1
        new = await hand(house, "a", 1)
        assert new.worker == old.worker
        await new.send_push(1, ONES)
        other = await hand(house, "b")
        assert (await other.push(1, ONES)).body.version == 1
        assert (await new.events.get()).body.version == 1
        assert value(house) == 1.0
        # And once more after it was answered and the lease ended again.
        new.connection.abort()
        await asyncio.sleep(10)
        third = await hand(house, "a", 1)
        assert (await third.push(1, ONES)).body.version == 1
        assert value(house) == 1.0


async def test_another_life_of_a_worker_numbers_its_pushes_anew(hand):
    async with cluster(min_workers=2, weights="uniform") as house:
        old = await hand(house, "a", 1)
        await old.send_push(1, ONES)
        new = await hand(house, "a", 2)
        assert new.worker == old.worker
        await new.send_push(1, 3 * ONES)
        other = await hand(house, "b")
        assert (await other.push(1, ONES)).body.version == 1
        assert value(house) == 1.0  # the earlier life's push
        await other.send_push(2, ONES, base=1)
        assert (await new.events.get()).body.version == 2
        assert value(house) == 3.0
        assert count(house, "pushes_repeated") == 0


async def test_a_life_that_was_frozen_while_another_came_and_went_repeats_nothing(hand):
    async with cluster() as house:
        first = await hand(house, "a", 1)
        await first.push(1, ONES)
        second = await hand(house, "a", 2)
        await first.lost
        assert (await second.leave()).kind is Kind.BYE
        back = await hand(house, "a", 1)
        assert (await back.push(1, ONES)).body.version == 1
        assert value(house) == 1.0


async def test_a_second_push_beside_the_one_under_way_is_busy_and_may_be_sent_again(hand):
    async with cluster(min_workers=2, weights="uniform") as house:
        worker, other = [await hand(house) for _ in range(2)]
        first = await worker.send_push(1, ONES)
        answer = await worker.push(2, ONES)
        assert answer.body.code == Busy.code
        await other.send_push(1, ONES)
        answer = await worker.events.get()
        assert (answer.request, answer.body.version) == (first, 1)
        await other.events.get()
        await other.send_push(2, ONES, base=1)
        assert (await worker.push(2, ONES, base=1)).body.version == 2


@pytest.mark.timeout(60)  # 16 000 round trips are seconds, and more on a busy machine
async def test_sixteen_workers_push_a_thousand_times_each_and_nothing_is_lost(hand):
    async with cluster(sync="asynchronous") as house:

        async def work():
            worker = await hand(house)
            for sequence in range(1, 1001):
                await worker.push(sequence, ONES)

        await asyncio.gather(*(work() for _ in range(16)))
        assert (value(house), house.server.version) == (16_000, 16_000)


async def test_what_is_remembered_of_a_worker_is_bounded_and_what_is_forgotten_is_refused(hand):
    async with cluster(sync="asynchronous") as house:
        worker = await hand(house)
        for sequence in range(1, WINDOW + 2):
            await worker.push(sequence, ONES)
        assert (await worker.push(2, ONES)).body.version == 2
        answer = await worker.push(1, ONES)
        assert answer.body.code == Refused.code
        assert "answered long ago" in answer.body.message
        assert value(house) == WINDOW + 1


async def test_who_has_left_is_told_so_and_the_server_lives(hand):
    async with cluster() as house:
        worker = await hand(house)
        assert (await worker.leave()).kind is Kind.BYE
        # The server closes behind its goodbye; until then it declines.
        for ask in (worker.pull, lambda: worker.push(1, ONES)):
            if not worker.lost.done():
                answer = await ask()
                assert answer is None or answer.body.code == NotMember.code
        await worker.lost
        assert house.server.status()["n_members"] == 0
        assert (await (await hand(house)).push(1, ONES)).body.version == 1


async def test_what_was_on_its_way_when_a_worker_left_is_declined(hand):
    async with cluster() as house:
        worker = await hand(house)
        worker.send_leave()
        worker.send_pull()
        await worker.send_push(1, ONES, want=True)
        answers = [await worker.events.get() for _ in range(3)]
        assert [answer.body.code for answer in answers if answer.kind is Kind.REFUSE] == [6, 6]
        assert value(house) == 0.0


async def test_a_worker_may_leave_while_its_answer_is_parked(hand):
    async with cluster(sync="ssp:1") as house:
        slow, fast = [await hand(house) for _ in range(2)]
        await slow.push(1, ONES)
        for sequence in (1, 2):
            await fast.push(sequence, ONES)
        await fast.send_push(3, ONES, want=True)
        fast.send_leave()
        await fast.lost
        assert value(house) == 4.0
        assert (await slow.push(2, ONES)).body.version == 5


@pytest.mark.parametrize("want", [False, True])
async def test_a_worker_may_leave_while_its_push_waits(hand, want):
    async with cluster(min_workers=2, weights="uniform") as house:
        worker, other = [await hand(house) for _ in range(2)]
        await worker.send_push(1, ONES, want=want)
        worker.send_leave()
        await worker.lost
        await other.send_push(1, ONES)
        await asyncio.sleep(1)
        assert house.server.version == 0  # min_workers counts who is there
        third = await hand(house)
        await third.send_push(1, ONES)
        assert (await other.events.get()).body.version == 1
        assert (await third.events.get()).body.version == 1
        assert value(house) == 1.0


async def test_parked_worker_that_is_cut_off_and_comes_back_gets_its_answer(hand):
    async with cluster(sync="ssp:1", **LEASE) as house:
        slow, fast = await hand(house, "slow"), await hand(house, "fast")
        assert (await slow.push(1, ONES)).body.version == 1
        for sequence in (1, 2):
            await fast.push(sequence, ONES)
        await fast.send_push(3, ONES)
        await settle()
        fast.connection.abort()

        async def stay():
            while True:
                await asyncio.sleep(1)
                await slow.ask(Kind.PING, Ping())

        staying = asyncio.ensure_future(stay())
        await asyncio.sleep(10)
        assert count(house, "left_lease") == 1
        again = await hand(house, "fast")
        assert (await again.push(3, ONES)).body.version == 4
        assert value(house) == 4.0
        staying.cancel()
