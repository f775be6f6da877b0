"""Chunk streaming: a bucket is merged and sent back while the next ones are still on their way up."""

import asyncio

import numpy as np
import pytest

from aiops.codec.topk import topk
from aiops.policy.sync import Bulk
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.wire.frame import Kind
from aiops.wire.message import IN_ORDER
from tests.server.drafting import answer, under_way
from tests.server.kit import LEASE, Hand, count, settle
from tests.server.streaming import (
    BUCKETS,
    PAIR,
    RATE,
    History,
    ahead,
    home,
    model,
    parts,
    unforeseen,
)

pytestmark = pytest.mark.virtual


def slow():
    return Link(rate_bytes_s=RATE)


@pytest.fixture
def noted(monkeypatch):
    """When each frame came to a hand: (second, kind, key)."""
    frames = []
    receive = Hand.frame_received

    def note(self, frame):
        now = asyncio.get_running_loop().time()
        frames.append((now, frame.header.kind, frame.header.key, self))
        receive(self, frame)

    monkeypatch.setattr(Hand, "frame_received", note)
    return frames


def rests(house):
    """Whether nothing is on loan but the published parameters."""
    return house.server.service.pool.outstanding == BUCKETS


async def test_each_bucket_comes_back_while_the_next_one_goes_up(hand, noted):
    async with home() as house:
        a = await hand(house, "a", up=slow(), down=slow())
        start = asyncio.get_running_loop().time()
        event = await a.push(1, *parts(1), want=True)
        end = asyncio.get_running_loop().time()
        assert model(event).tolist() == [1.0] * 512
        came = [(round(at - start), key) for at, kind, key, _ in noted if kind is Kind.TENSOR]
        assert came == [(key + 2, key) for key in range(BUCKETS)]
        # Eight seconds up, and the last bucket down, instead of sixteen.
        assert 9 <= end - start < 9.5
        assert ahead(house) == BUCKETS - 1
        assert rests(house)


async def test_the_model_says_what_it_says_without_streaming(hand):
    said = []
    for stream in (False, True):
        spec = {"stream": stream, "rounds": 2, "sync": "bulk:1", "work": "fixed:3", **PAIR}
        async with home(**spec) as house:
            a, b = await hand(house, "a", up=slow()), await hand(house, "b", up=slow())
            for sequence in (1, 2):
                pushes = [each.push(sequence, *parts(1), want=True) for each in (a, b)]
                said.append([event.body for event in await answer(asyncio.gather(*pushes))])
            assert (ahead(house) > 0) is stream
    assert said[:2] == said[2:]
    assert said[3][0].staleness == 1
    assert said[3][0].done


async def test_the_last_bucket_waits_for_the_version(hand, noted):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        pushes = [under_way(each.push(1, *parts(1), want=True)) for each in (a, b)]
        # Seven of eight buckets are here from both, and back at a.
        await asyncio.sleep(7.9)
        assert [key for _, kind, key, who in noted if kind is Kind.TENSOR and who is a] == list(
            range(7)
        )
        assert house.server.version == 0
        assert not pushes[0].done()
        for push in pushes:
            assert (await answer(push)).body.version == 1
        assert rests(house)


async def test_buckets_go_back_in_the_order_in_which_they_are_complete(hand, noted):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        order = [5, 2, 7, 0, 1, 6, 3, 4]
        shuffled = [{"data": parts(1)[key], "key": key} for key in order]
        pushes = [
            under_way(a.push(1, *parts(1), want=True)),
            under_way(b.push(1, *shuffled, want=True)),
        ]
        await answer(asyncio.gather(*pushes))
        for each in (a, b):
            keys = [key for _, kind, key, who in noted if kind is Kind.TENSOR and who is each]
            assert keys == order


async def test_nothing_goes_back_before_everybody_has_announced_a_push(hand, noted):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b")
        first = under_way(a.push(1, *parts(2), want=True))
        await settle()
        assert not [kind for _, kind, _, _ in noted if kind in (Kind.MODEL, Kind.TENSOR)]
        second = under_way(b.push(1, *parts(4), want=True))
        for push in (first, second):
            assert model(await answer(push)).tolist() == [3.0] * 512


async def test_who_wants_no_model_is_told_of_the_version_alone(hand):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b", up=slow())
        first = under_way(a.push(1, *parts(1), want=True))
        second = under_way(b.push(1, *parts(3)))
        assert model(await answer(first)).tolist() == [2.0] * 512
        assert (await answer(second)).kind is Kind.ACK
        assert ahead(house) == BUCKETS - 1
        assert rests(house)


async def test_nothing_is_merged_ahead_where_nobody_wants_a_model(hand):
    async with home() as house:
        a = await hand(house, "a", up=slow())
        assert (await answer(a.push(1, *parts(1)))).kind is Kind.ACK
        assert ahead(house) == 0
        assert rests(house)


@pytest.mark.parametrize("first", [True, False], ids=["whole first", "whole last"])
async def test_a_push_without_some_of_the_buckets_adds_nothing_to_them(hand, first):
    async with home(**PAIR) as house:
        links = (None, slow()) if first else (slow(), None)
        a = await hand(house, "a", up=links[0])
        b = await hand(house, "b", up=links[1])
        some = [{"data": parts(4)[key], "key": key} for key in (1, 6)]
        pushes = [
            under_way(a.push(1, *some, want=True)),
            under_way(b.push(1, *parts(2), want=True)),
        ]
        for push in pushes:
            due = np.ones((BUCKETS, 64))
            due[[1, 6]] = 3.0
            np.testing.assert_array_equal(model(await answer(push)), due.ravel())
        assert ahead(house) == (BUCKETS - 1 if first else 1)
        assert rests(house)


async def test_buckets_in_different_codings_are_merged_together(hand):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b", up=slow())
        index, largest = topk(0.5).encode(np.arange(64, dtype=np.float32), None)[0]
        data = np.concatenate([index.view(np.uint8), largest.view(np.uint8)])
        coded = [{"data": data, "key": key, "codec": 4} for key in range(BUCKETS)]
        pushes = [
            under_way(a.push(1, *coded, want=True)),
            under_way(b.push(1, *parts(2), want=True)),
        ]
        bucket = 1.0 + np.where(np.arange(64) >= 32, np.arange(64) / 2, 0.0)
        for push in pushes:
            np.testing.assert_array_equal(model(await answer(push)), np.tile(bucket, BUCKETS))
        assert ahead(house) == BUCKETS - 1


async def test_a_model_of_one_bucket_is_sent_as_ever(hand):
    async with home(60) as house:
        a = await hand(house, "a")
        event = await answer(a.push(1, np.ones(60, np.float32), want=True))
        assert model(event).tolist() == [1.0] * 60
        assert ahead(house) == 0


async def test_a_newcomer_beside_a_round_that_is_sent_back_waits_for_the_next_one(hand):
    async with home() as house:
        history = History(house)
        a, b = await hand(house, "a", up=slow()), await hand(house, "b")
        first = under_way(a.push(1, *parts(1), want=True))
        await asyncio.sleep(1.5)
        second = under_way(b.push(1, *parts(10), want=True))
        event = await answer(first)
        assert (event.body.version, event.body.n_merged) == (1, 1)
        assert not second.done()
        third = under_way(a.push(2, *parts(2), base=1, want=True))
        for push in (second, third):
            event = await answer(push)
            assert history.holds(event)
            assert (event.body.version, event.body.n_merged) == (2, 2)
        assert model(event).tolist() == [1.0 + 6.0] * 512
        assert unforeseen(house) == 0
        assert rests(house)


async def test_a_newcomer_that_is_held_before_anything_went_back_is_part_of_the_round(hand):
    async with home() as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b")
        await answer(a.push(1, *parts(0), want=True))
        second = under_way(a.push(2, *parts(2), want=True))
        await asyncio.sleep(0.5)
        first = under_way(b.push(1, *parts(4), want=True))
        for push in (first, second):
            event = await answer(push)
            assert (event.body.version, event.body.n_merged) == (2, 2)
            assert model(event).tolist() == [3.0] * 512
        assert ahead(house) == 2 * (BUCKETS - 1)


async def test_a_worker_that_has_left_after_its_push_still_counts(hand):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        await answer(asyncio.gather(*(each.push(1, *parts(0)) for each in (a, b))))
        await a.send_push(2, *parts(2), want=True)
        second = under_way(b.push(2, *parts(4), want=True))
        await asyncio.sleep(2.5)
        a.send_leave()
        assert model(await answer(second)).tolist() == [3.0] * 512
        await answer(a.lost)
        assert unforeseen(house) == 0
        assert rests(house)


async def test_a_worker_that_leaves_before_its_push_is_waited_for_no_longer(hand):
    async with home(min_workers=3, weights="uniform") as house:
        a, b, c = [await hand(house, name, up=slow()) for name in "abc"]
        await answer(asyncio.gather(*(each.push(1, *parts(0)) for each in (a, b, c))))
        pushes = [under_way(each.push(2, *parts(1), base=1, want=True)) for each in (a, b)]
        await asyncio.sleep(3.5)
        assert ahead(house) == 0
        c.send_leave()
        await asyncio.sleep(1)
        assert ahead(house) == 4
        for push in pushes:
            assert model(await answer(push)).tolist() == [1.0] * 512


async def test_a_worker_that_is_cut_after_its_push_gets_the_whole_model_on_its_next_connection(
    hand,
):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        await a.send_push(1, *parts(2), want=True)
        second = under_way(b.push(1, *parts(4), want=True))
        await asyncio.sleep(2.5)
        a.connection.abort()
        await settle()
        again = await hand(house, "a")
        first = under_way(again.push(1, *parts(2), want=True))
        for push in (first, second):
            assert model(await answer(push)).tolist() == [3.0] * 512
        assert (unforeseen(house), count(house, "pushes_repeated")) == (0, 1)
        assert rests(house)


async def test_a_push_that_was_answered_before_is_no_part_of_what_is_foreseen(hand):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b")
        for push in [under_way(each.push(1, *parts(1), want=True)) for each in (a, b)]:
            await answer(push)
        a.connection.abort()
        await settle()
        again = await hand(house, "a", up=slow())
        first = under_way(again.push(1, *parts(1), want=True))
        await asyncio.sleep(1.5)
        second = under_way(b.push(2, *parts(2), base=1, want=True))
        assert model(await answer(first)).tolist() == [1.0] * 512
        third = under_way(again.push(2, *parts(4), base=1, want=True))
        for push in (second, third):
            assert model(await answer(push)).tolist() == [4.0] * 512
        assert unforeseen(house) == 0
        assert rests(house)


async def test_a_pull_beside_it_gets_the_published_version(hand):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        pushes = [under_way(each.push(1, *parts(1), want=True)) for each in (a, b)]
        await asyncio.sleep(3.5)
        reader = await hand(house, "c")
        event = await reader.pull()
        assert (event.body.version, model(event).tolist()) == (0, [0.0] * 512)
        for push in pushes:
            assert model(await answer(push)).tolist() == [1.0] * 512


async def test_many_buckets_wait_for_a_slow_reader_in_one_place(hand):
    async with home(64 * 100, stream=True) as house:
        a = await hand(house, "a", down=slow())
        event = await answer_slowly(a.push(1, *parts(1, 6400), want=True, split=True))
        assert model(event).tolist() == [1.0] * 6400
        assert ahead(house) == 99


async def answer_slowly(push):
    async with asyncio.timeout(200):
        return await push


async def test_who_does_not_read_holds_nobody_up_and_gets_it_all_later(hand):
    # More than lies before a peer that does not read.
    n = 64 * 8192
    async with home(n, min_workers=2, weights="uniform", bucket_bytes=64 * 1024) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=Link(rate_bytes_s=1e6))
        update = list(np.ones((32, n // 32), np.float32))
        a.connection.pause_reading()
        first = under_way(a.push(1, *update, want=True))
        assert (model(await answer(b.push(1, *update, want=True))) == 1.0).all()
        await settle()
        assert not first.done()
        assert house.server.version == 1
        a.connection.resume_reading()
        assert (model(await answer(first)) == 1.0).all()
        await settle()
        assert house.server.service.pool.outstanding == 32


@pytest.mark.parametrize("shards", [1, 3])
async def test_large_buckets_are_merged_in_the_shards_threads(hand, monkeypatch, shards):
    monkeypatch.setattr("aiops.server.streaming.INLINE_BYTES", 0)
    async with home(shards=shards, **PAIR) as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b", up=slow())
        for version in (1, 2, 3):
            pushes = [each.push(version, *parts(1), base=version - 1, want=True) for each in (a, b)]
            for event in await answer(asyncio.gather(*pushes)):
                assert model(event).tolist() == [float(version)] * 512
        assert ahead(house) == 3 * (BUCKETS - 1)
        assert rests(house)


class Gate:
    """Stands in for the shards' threads: what goes there is done when the test says so."""

    def __init__(self, monkeypatch):
        self.waiting = []
        monkeypatch.setattr("aiops.server.streaming.INLINE_BYTES", 0)
        monkeypatch.setattr("aiops.server.threads.Threads.run", self.run)

    async def run(self, _, work, *args):
        gate = asyncio.get_running_loop().create_future()
        self.waiting.append(gate)
        await gate
        return work(*args)

    def open(self):
        gates, self.waiting = self.waiting, []
        for gate in gates:
            gate.set_result(None)


@pytest.mark.parametrize("leaves", [False, True])
async def test_all_that_is_merged_is_no_version_before_the_engine_says_so(
    hand, noted, threads, monkeypatch, leaves
):
    # The last push is looked at by a thread, as a large one is.
    for room in ("merger", "merging"):
        monkeypatch.setattr(f"aiops.server.{room}.INLINE_BYTES", 0)
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        first = under_way(a.push(1, *parts(1), want=True))
        await threads.go()
        second = under_way(b.push(1, *parts(3), want=True))
        await asyncio.sleep(9)
        assert ahead(house) == BUCKETS
        tensors = [key for _, kind, key, who in noted if kind is Kind.TENSOR and who is a]
        assert tensors == list(range(BUCKETS - 1))
        assert (house.server.version, first.done(), second.done()) == (0, False, False)
        if leaves:
            service = house.server.service
            service.drop(service.members.get("b"), "left")
            await threads.go()
            # Its push is not merged, and a's is sent again: it is still held for two.
            await answer(a.lost)
            assert house.server.version == 0
            assert unforeseen(house) == 1
        else:
            await threads.go()
            for push in (first, second):
                assert model(await answer(push)).tolist() == [2.0] * 512
        for each in (a, b):
            each.connection.abort()


async def test_a_round_closes_without_the_chunks_that_are_not_done(hand, monkeypatch):
    gate = Gate(monkeypatch)
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        pushes = [under_way(each.push(1, *parts(1), want=True)) for each in (a, b)]
        await asyncio.sleep(2.5)
        assert len(gate.waiting) == 2
        gate.open()
        for push in pushes:
            assert model(await answer(push)).tolist() == [1.0] * 512
        assert ahead(house) == 2
        gate.open()
        await settle()
        assert rests(house)


async def test_a_connection_may_end_while_its_buckets_are_merged(hand, monkeypatch):
    gate = Gate(monkeypatch)
    async with home(**PAIR, **LEASE) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        pushes = [under_way(each.push(1, *parts(1), want=True)) for each in (a, b)]
        await asyncio.sleep(2.5)
        b.connection.abort()
        await settle()
        # What is published, a's push, and of the two buckets in the thread b's part and the result.
        assert house.server.service.pool.outstanding == BUCKETS + BUCKETS + 2 + 2
        gate.open()
        await settle()
        again = await hand(house, "b")
        pushes[1] = under_way(again.push(1, *parts(1), want=True))
        for push in pushes:
            assert model(await answer(push)).tolist() == [1.0] * 512
        gate.open()
        await settle()
        assert rests(house)


async def test_a_server_may_end_while_buckets_are_merged_and_sent(hand, monkeypatch):
    gate = Gate(monkeypatch)
    async with home(**PAIR) as house:
        a, b = await hand(house, "a", down=slow()), await hand(house, "b", up=slow())
        for each in (a, b):
            under_way(each.push(1, *parts(1), want=True))
        await asyncio.sleep(4.5)
        gate.open()
        await asyncio.sleep(2)
        assert gate.waiting
        house.server.service.cut()
        asyncio.get_running_loop().call_later(0.1, gate.open)


async def test_a_server_that_streams_asks_for_buckets_in_key_order(hand):
    async with Cluster(stream_bytes=64, shards=2) as house:
        a = await Hand.hello(await hand(house, greet=False))
        assert a.body.features == IN_ORDER
    async with Cluster(shards=2) as house:
        a = await Hand.hello(await hand(house, greet=False))
        assert a.body.features == 0


async def test_a_policy_of_ones_own_with_a_barrier_is_streamed(hand):
    class Own(Bulk):
        pass

    async with home(sync=Own(max_staleness=1)) as house:
        a = await hand(house, "a")
        assert model(await answer(a.push(1, *parts(1), want=True))).tolist() == [1.0] * 512
        assert ahead(house) == BUCKETS - 1
