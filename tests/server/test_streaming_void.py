"""Chunk streaming where a round turns out otherwise than foreseen: nobody adopts what never was, and all goes on."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass

import numpy as np
import pytest

from aiops.errors import NotFinite, ShapeMismatch
from aiops.policy.sync import Bulk
from aiops.transport.memory import Link
from aiops.wire.frame import Kind
from tests.server.drafting import answer, under_way
from tests.server.kit import LEASE, count, settle
from tests.server.streaming import (
    BUCKETS,
    PAIR,
    RATE,
    History,
    N,
    ahead,
    home,
    model,
    parts,
    unforeseen,
)

pytestmark = pytest.mark.virtual

WORKERS = 3
TRIO = {"min_workers": WORKERS, "weights": "uniform"}


def slow():
    return Link(rate_bytes_s=RATE)


def quick():
    return Link(rate_bytes_s=10 * RATE)


def rests(house):
    return house.server.service.pool.outstanding == BUCKETS


def update(worker, version):
    """What a worker adds to make a version, by name: another value in each bucket."""
    return {"w": np.repeat(np.arange(1.0, BUCKETS + 1), N // BUCKETS) * (worker + version) * 3}


async def rounds(versions, *, stream, up=None, down=None, rules=None):
    """Let three workers make some versions, over links of their own; return the models they adopted, and the server."""
    models = []
    async with (
        home(stream=stream, **TRIO | (rules or {})) as house,
        contextlib.AsyncExitStack() as stack,
    ):
        history = History(house)
        links = [(Link(0.01, 10 * RATE), Link(0.01, 10 * RATE)) for _ in range(WORKERS)]
        if up is not None or down is not None:
            links[1] = (up or links[1][0], down or links[1][1])
        workers = [
            await stack.enter_async_context(house.worker(f"w{i}", up=up, down=down))
            for i, (up, down) in enumerate(links)
        ]
        for worker in workers:
            await worker.init()
        for version in range(1, versions + 1):
            if version == 2 and (up or down) is not None:
                (up or down).cut_after = (up or down).due
            tickets = [worker.sync(update(i, version)) for i, worker in enumerate(workers)]
            adopted = [(await answer(ticket))["w"] for ticket in tickets]
            for each, worker in zip(adopted, workers, strict=True):
                assert worker.version == version
                np.testing.assert_array_equal(each, history.versions[version])
            models.append(adopted[0])
        kept = 2 * BUCKETS if rules and "optimizer" in rules else BUCKETS
        assert house.server.service.pool.outstanding == kept
        assert count(house, "pushes_merged") == WORKERS * versions
        return models, unforeseen(house), ahead(house)


@dataclass(slots=True)
class Cut(Link):
    """A link that breaks after so many bytes of the second round."""

    due: int = 0


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("start", range(0, 2400, 400))
async def test_a_worker_cut_anywhere_in_a_round_leaves_no_trace(way, start):
    plain, _, _ = await rounds(3, stream=False)
    for due in range(start, start + 400, 40):
        link = Cut(0.01, 10 * RATE, due=due + 1)
        models, void, sent = await rounds(3, stream=True, **{way: link})
        for one, other in zip(models, plain, strict=True):
            np.testing.assert_array_equal(one, other)
        assert sent >= 2 * (BUCKETS - 1)
        if way == "up" and 700 < due < 2300:
            assert void == 1


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize(
    "rules",
    [
        {"optimizer": "momentum:1,0.9"},
        {"aggregation": "median"},
        {"down": "topk:0.3"},
        {"down": "int8", "optimizer": "momentum:1,0.9"},
    ],
    ids=lambda rules: ",".join(f"{name}={rule}" for name, rule in rules.items()),
)
async def test_what_was_merged_in_vain_leaves_no_trace_in_a_rules_memory(way, rules):
    plain, _, _ = await rounds(4, stream=False, rules=rules)
    for due in range(300, 2400, 150):
        link = Cut(0.01, 10 * RATE, due=due + 1)
        models, void, _ = await rounds(4, stream=True, rules=rules, **{way: link})
        for one, other in zip(models, plain, strict=True):
            np.testing.assert_array_equal(one, other)
        if way == "up" and 700 < due < 2300:
            assert void == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("key", range(BUCKETS))
async def test_a_push_that_is_not_finite_anywhere_is_refused_alone(key, bad):
    async with home(**TRIO) as house, contextlib.AsyncExitStack() as stack:
        history = History(house)
        workers = [
            await stack.enter_async_context(house.worker(f"w{i}", up=slow(), down=slow()))
            for i in range(WORKERS)
        ]
        for worker in workers:
            await worker.init()
        wrong = workers[2].empty()
        wrong["w"][:] = 1.0
        wrong["w"][64 * key + 5] = bad
        tickets = [worker.sync(update(i, 1)) for i, worker in enumerate(workers[:2])]
        refused = workers[2].sync(wrong, copy=False)
        with pytest.raises(NotFinite, match=rf"tensor 'w' \(value {64 * key + 5} of 512\)"):
            await refused
        assert house.server.version == 0
        assert unforeseen(house) == (key > 0)
        tickets.append(workers[2].sync(update(2, 1)))
        for ticket in tickets:
            np.testing.assert_array_equal((await ticket)["w"], history.versions[1])
        due = sum(update(i, 1)["w"] for i in range(WORKERS)) / WORKERS
        np.testing.assert_allclose(history.versions[1], due, rtol=1e-6)
        assert rests(house)


@pytest.mark.parametrize("key", [0, 3, 7])
async def test_a_push_that_does_not_fit_anywhere_is_refused_alone(hand, key):
    async with home(**PAIR) as house:
        history = History(house)
        async with house.worker("a", up=slow(), down=slow()) as a:
            await a.init()
            b = await hand(house, "b", up=slow())
            ticket = a.sync(update(0, 1))
            wrong = parts(1)
            wrong[key] = np.ones(63, np.float32)
            push = under_way(b.push(1, *wrong, want=True))
            event = await answer(push)
            if key > 0:
                # It was half answered: it is told on the next connection.
                assert event is None
                b = await hand(house, "b")
                event = await answer(b.push(1, *wrong, want=True))
            assert (event.kind, event.body.code) == (Kind.REFUSE, ShapeMismatch.code)
            assert f"key {key}" in event.body.message
            event = await answer(b.push(2, *parts(6), want=True))
            assert history.holds(event)
            np.testing.assert_array_equal((await ticket)["w"], history.versions[1])
            assert rests(house)


async def test_a_key_that_is_not_in_the_table_is_refused_alone(hand):
    async with home(**PAIR) as house:
        async with house.worker("a", up=slow(), down=slow()) as a:
            await a.init()
            b = await hand(house, "b", up=slow())
            ticket = a.sync(update(0, 1))
            wrong = [{"data": part, "key": key} for key, part in enumerate(parts(1))]
            wrong[4]["key"] = 99
            assert await answer(under_way(b.push(1, *wrong, want=True))) is None
            b = await hand(house, "b")
            event = await answer(b.push(1, *wrong, want=True))
            assert "key 99 is not in the table" in event.body.message
            event = await answer(b.push(2, *parts(0), want=True))
            np.testing.assert_array_equal((await ticket)["w"], model(event))
        assert house.server.version == 1


@pytest.mark.parametrize("how", ["leave", "lease", "another life"])
@pytest.mark.parametrize("after_s", [0.5, 3.5, 7.5])
async def test_a_worker_that_goes_in_mid_push_is_left_out(hand, how, after_s):
    async with home(**TRIO, **LEASE) as house, contextlib.AsyncExitStack() as stack:
        history = History(house)
        a, b = [
            await stack.enter_async_context(house.worker(name, up=quick(), down=quick()))
            for name in "ab"
        ]
        c = await hand(house, "c", up=slow())
        for each in (a, b):
            await each.init()
        # The first round makes all three count.
        tickets = [each.sync(update(0, 0)) for each in (a, b)]
        await answer(c.push(1, *parts(0)))
        for ticket in tickets:
            await ticket
        tickets = [each.sync(update(i, 1)) for i, each in enumerate((a, b))]
        under_way(c.push(2, *parts(10), base=1, want=True))
        await asyncio.sleep(after_s)
        if how == "leave":
            house.server.service.drop(house.server.service.members.get("c"), "left")
        elif how == "lease":
            # It says nothing any more, and nothing that is said to it comes back.
            c.connection._wire.clear()
        else:
            c = await hand(house, "c", 2)
        for ticket in tickets:
            np.testing.assert_array_equal((await answer(ticket))["w"], history.versions[2])
        due = (update(0, 1)["w"] + update(1, 1)["w"]) / 2
        np.testing.assert_allclose(history.versions[2] - history.versions[1], due, rtol=1e-6)
        if how != "lease":
            assert unforeseen(house) == (after_s > 1)
        c.connection.abort()
        await settle()
        assert rests(house)


async def test_a_result_that_would_overflow_is_refused_to_all_and_changes_nothing(hand):
    async with home(**PAIR, server_lr=2.0) as house, contextlib.AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(house.worker(name, up=slow(), down=slow()))
            for name in "ab"
        ]
        for worker in workers:
            await worker.init()
        large = {"w": np.repeat(np.float32([1, 1, 1, 1, 1, 3e38, 1, 1]), 64)}
        for ticket in [worker.sync(large) for worker in workers]:
            with pytest.raises(
                NotFinite, match=r"merging would make tensor 'w' \(value 320 of 512"
            ):
                await answer(ticket)
        assert house.server.version == 0
        assert house.server.params()["w"].any() == 0
        assert ahead(house) == 5
        for ticket in [worker.sync(update(0, 0)) for worker in workers]:
            await answer(ticket)
        assert house.server.version == 1
        assert rests(house)


class Fickle:
    """A rule that weighs by the clock, so that no weight is what it was foreseen to be."""

    def __call__(self, pushes):
        total = sum(push.arrived + 1 for push in pushes)
        return [(push.arrived + 1) / total for push in pushes]


async def test_weights_that_change_make_what_was_sent_void_and_the_round_right():
    async with home(min_workers=2, weights=Fickle()) as house:
        history = History(house)
        async with contextlib.AsyncExitStack() as stack:
            workers = [
                await stack.enter_async_context(house.worker(name, up=up, down=slow()))
                for name, up in (("a", quick()), ("b", slow()))
            ]
            for worker in workers:
                await worker.init()
            for version in (1, 2):
                for ticket in [worker.sync(update(i, 1)) for i, worker in enumerate(workers)]:
                    adopted = (await answer(ticket))["w"]
                    np.testing.assert_array_equal(adopted, history.versions[version])
        assert unforeseen(house) == 2
        assert count(house, "pushes_merged") == 4


class Parking(Bulk):
    """A policy of one's own that answers the first worker a version later than it merges it."""

    def ready(self, view):
        return frozenset(view.held)

    def may_proceed(self, worker, view):
        return worker != 0 or view.version >= 2


async def test_a_parked_answer_that_a_newer_version_overtakes_is_sent_anew(hand):
    async with home(sync=Parking(max_staleness=None)) as house:
        history = History(house)
        async with house.worker("a", up=slow()) as a:
            await a.init()
            ticket = a.sync(update(0, 1))
            await asyncio.sleep(10)
            assert (house.server.version, ticket.done()) == (1, False)
            b = await hand(house, "b")
            await answer(b.push(1, *parts(1), base=1))
            np.testing.assert_array_equal((await answer(ticket))["w"], history.versions[2])
            assert a.connections == 2
        assert rests(house)


async def test_who_is_cut_for_what_was_sent_ahead_is_told_why_in_the_log(hand, caplog):
    caplog.set_level(logging.INFO)
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        for each in (a, b):
            under_way(each.push(1, *parts(1), want=True))
        await asyncio.sleep(3.5)
        b.connection.abort()
        await answer(a.lost)
        await settle()
    assert (
        "worker 0 is disconnected: what was sent ahead is void, worker 1 was cut while it pushed"
        in caplog.text
    )


async def test_a_newcomer_that_was_held_back_goes_on_when_the_other_is_cut(hand):
    async with home() as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b")
        under_way(a.push(1, *parts(1), want=True))
        await asyncio.sleep(2.5)
        second = under_way(b.push(1, *parts(10), want=True))
        await settle()
        assert not second.done()
        a.connection.abort()
        assert model(await answer(second)).tolist() == [10.0] * N
        assert rests(house)
