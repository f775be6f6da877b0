"""Versions that are made while their pushes come equal those that are made afterwards, bit for bit."""

import asyncio
import contextlib

import numpy as np
import pytest

from aiops.buffers import BufferPool
from aiops.policy.weight import uniform
from aiops.server.arrival import DRAFTED_BYTES
from aiops.server.draft import CHUNK_BYTES, BucketDraft, Intake
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from tests.server.kit import count, settle

CHUNK = CHUNK_BYTES // 4
SIZES = [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 17]


@pytest.fixture
def pool():
    return BufferPool()


class Bench:
    """Intakes of one bucket and a draft of them, filled in pieces as a transport would."""

    def __init__(self, pool, pushes, *, passing=()):
        self.pushes = pushes
        self.size = 4 * pushes[0].size
        self.blocks = []
        self.intakes = [
            Intake(self.size, self.take(pool, number in passing), passing=number in passing, lane=0)
            for number in range(len(pushes))
        ]
        self.at = [0] * len(pushes)

    def take(self, pool, passing):
        block = pool.take(min(CHUNK_BYTES, self.size) if passing else self.size)
        self.blocks.append(block)
        return block

    def draft(self, pool, old, weights, gain=1.0):
        fresh = pool.take(self.size)
        fresh.float32()[:] = np.nan
        self.blocks.append(fresh)
        return BucketDraft(old, fresh, self.intakes, weights, gain)

    def come(self, number, n_bytes):
        """The next bytes of a push, in pieces of an awkward size."""
        data = memoryview(self.pushes[number]).cast("B")
        end = min(self.at[number] + n_bytes, self.size)
        while self.at[number] < end:
            room = self.intakes[number].room()
            assert room.nbytes
            n = min(len(room), end - self.at[number], 100_003)
            room[:n] = data[self.at[number] : self.at[number] + n]
            self.intakes[number].filled(n)
            self.at[number] += n

    def release(self):
        for block in self.blocks:
            block.release()


def expected(old, pushes, weights, gain):
    acc = np.zeros_like(old)
    for push, weight in zip(pushes, weights, strict=True):
        acc += np.float32(weight) * push
    return old + np.float32(gain) * acc


def normal(seed, n):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("weights", "passing"),
    [((1.0,), {0}), ((0.25, 0.75), {1}), ((0.25, 0.75), set()), ((0.1, 0.0, 0.9), {0})],
    ids=["one", "two, the last passes", "two in lockstep", "three, one weighs nothing"],
)
@pytest.mark.parametrize("step", [10**9, CHUNK_BYTES // 3], ids=["in turn", "interleaved"])
def test_a_draft_is_the_merge(pool, size, weights, passing, step):
    pushes = [normal(number, size) for number in range(len(weights))]
    old = normal(99, size)
    bench = Bench(pool, pushes, passing=passing)
    order = sorted(range(len(weights)), key=lambda number: number in passing)
    if passing:
        # All others are here before the one that is not kept.
        for number in order[:-1]:
            bench.come(number, bench.size)
    draft = bench.draft(pool, old, weights, 0.5)
    while not draft.complete:
        before = sum(bench.at)
        for number in order:
            bench.come(number, step)
        assert draft.complete or sum(bench.at) > before
    np.testing.assert_array_equal(draft.fresh.float32(), expected(old, pushes, weights, 0.5))
    assert [intake.bad for intake in bench.intakes] == [-1] * len(pushes)
    bench.release()


@pytest.mark.parametrize("begun", [0, 1, CHUNK_BYTES - 1])
def test_a_draft_begins_before_the_last_push_has_brought_a_chunk(pool, begun):
    size = 3 * CHUNK + 5
    pushes, old = [normal(number, size) for number in range(2)], normal(9, size)
    bench = Bench(pool, pushes)
    bench.come(0, bench.size - 1)
    bench.come(1, begun)
    draft = bench.draft(pool, old, (1.0, 1.0))
    for number in (1, 0):
        bench.come(number, bench.size)
    assert draft.complete
    np.testing.assert_array_equal(draft.fresh.float32(), expected(old, pushes, (1, 1), 1))
    bench.release()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.0, 1.0), (1.0, 0.0)], ids=str)
@pytest.mark.parametrize("at", [0, CHUNK - 1, CHUNK, 2 * CHUNK + 3])
@pytest.mark.parametrize("drafted", [True, False], ids=["drafted", "alone"])
def test_the_first_bad_value_of_a_push_is_found_whatever_it_weighs(pool, drafted, at, weights, bad):
    pushes = [normal(number, 2 * CHUNK + 4) for number in range(2)]
    pushes[0][[at, -1]] = bad
    bench = Bench(pool, pushes)
    draft = bench.draft(pool, normal(9, pushes[0].size), weights) if drafted else None
    for number in (1, 0):
        bench.come(number, bench.size)
    assert [intake.bad for intake in bench.intakes] == [at, -1]
    assert draft is None or not draft.complete
    bench.release()


def test_an_infinity_against_its_opposite_is_blamed_on_both(pool):
    pushes = [np.full(8, value, np.float32) for value in (np.inf, -np.inf)]
    bench = Bench(pool, pushes, passing={1})
    bench.come(0, bench.size)
    draft = bench.draft(pool, np.zeros(8, np.float32), (1.0, 1.0))
    bench.come(1, bench.size)
    assert [intake.bad for intake in bench.intakes] == [0, 0]
    assert draft.bad == 0
    bench.release()


def test_a_result_too_large_is_blamed_on_no_push(pool):
    pushes = [np.zeros(CHUNK + 2, np.float32) for _ in range(2)]
    for push in pushes:
        push[-1] = 3e38
    bench = Bench(pool, pushes)
    draft = bench.draft(pool, np.zeros(CHUNK + 2, np.float32), (1.0, 1.0))
    for number in (0, 1):
        bench.come(number, bench.size)
    assert [intake.bad for intake in bench.intakes] == [-1, -1]
    assert (draft.bad, draft.complete) == (CHUNK + 1, False)
    bench.release()


def test_a_draft_that_is_stopped_is_written_no_more(pool):
    pushes = [normal(number, 3 * CHUNK) for number in range(2)]
    bench = Bench(pool, pushes)
    draft = bench.draft(pool, normal(9, 3 * CHUNK), (1.0, 1.0))
    bench.come(0, bench.size)
    bench.come(1, CHUNK_BYTES)
    before = draft.fresh.float32().copy()
    draft.stop()
    bench.come(1, bench.size)
    np.testing.assert_array_equal(draft.fresh.float32(), before)
    assert not draft.complete
    assert bench.intakes[1].bad == -1
    bench.release()


# Through a server, in true sizes: a bucket of DRAFTED_BYTES is drafted, one value less is not.

LEAST = DRAFTED_BYTES // 4


class Shares:
    """Weights by worker."""

    def __init__(self, shares):
        self.shares = shares

    def __call__(self, pushes):
        return [self.shares[push.worker] for push in pushes]


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("n", "spec", "buckets"),
    [
        pytest.param(LEAST - 1, {}, 0, id="too small"),
        pytest.param(LEAST, {}, 1, id="just large enough"),
        pytest.param(LEAST + CHUNK + 1, {}, 1, id="ragged"),
        pytest.param(2 * LEAST + 33, {"shards": 2}, 2, id="two shards"),
        pytest.param(2 * LEAST - 1, {"shards": 2}, 1, id="one shard's is too small"),
        pytest.param(3 * LEAST, {"bucket_bytes": DRAFTED_BYTES}, 3, id="three buckets"),
    ],
)
@pytest.mark.parametrize(
    "shares", [(1.0,), (0.3, 0.7), (0.5, 0.0, 0.25)], ids=lambda s: f"{len(s)}"
)
async def test_a_drafted_round_equals_the_plain_sum(n, spec, buckets, shares):
    old = normal(5, n)
    rounds = [[normal([r, i], n) for i in range(len(shares))] for r in range(2)]
    async with (
        Cluster(params={"w": old}, min_workers=len(shares), server_lr=0.7, **spec) as house,
        contextlib.AsyncExitStack() as stack,
    ):
        house.server.service.engine.weights = Shares(shares)
        workers = []
        for number in range(len(shares)):
            up = Link(delay_s=0.01, rate_bytes_s=1e9 * (number + 1))
            workers.append(await stack.enter_async_context(house.worker(f"w{number}", up=up)))
            await workers[-1].init()
        for updates in rounds:
            await settle()
            tickets = [ps.sync({"w": u}) for ps, u in zip(workers, updates, strict=True)]
            got = [(await ticket)["w"] for ticket in tickets]
            old = expected(old, updates, shares, 0.7)
            for each in got:
                np.testing.assert_array_equal(each, old)
        whole = [b.size for b in workers[0].table.buckets]
        assert sum(size >= LEAST for size in whole) == buckets
        assert count(house, "buckets_drafted") == buckets * len(rounds)
        assert house.server.service.pool.outstanding == len(whole)


@pytest.mark.virtual
@pytest.mark.usefixtures("small_chunks")
async def test_averaged_tensors_beside_drafted_ones_are_merged_as_they_are_alone(hand):
    async with Cluster(server_lr=2.0, min_workers=2, weights=uniform()) as house:
        a, b = await hand(house, "a"), await hand(house, "b")
        asked = await a.init(("w", (600,), "float32"), ("mean", (600,), "float32", True))
        await a.seed(asked.request, np.zeros(600, np.float32), np.ones(600, np.float32))
        pushes = [[normal([i, k], 600) for k in range(2)] for i in range(2)]
        await asyncio.gather(*(w.push(1, *p) for w, p in zip((a, b), pushes, strict=True)))
        w, mean = ([p[k] for p in pushes] for k in range(2))
        params = house.server.params()
        np.testing.assert_array_equal(params["w"], expected(np.zeros_like(w[0]), w, (0.5, 0.5), 2))
        np.testing.assert_array_equal(
            params["mean"], expected(np.ones_like(w[0]), mean, (0.5, 0.5), 1)
        )
        assert count(house, "buckets_drafted") == 1
