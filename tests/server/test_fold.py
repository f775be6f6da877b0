"""Pushes that are added to their round's sum as they come: the same numbers, and no memory per worker."""

import asyncio

import numpy as np
import pytest

from aiops.config import parse_codec
from aiops.sim.cluster import Cluster
from aiops.types import DTYPE_IDS
from aiops.wire.frame import Kind
from tests.server.kit import MANY, ONES, cluster, count, settle, value

pytestmark = pytest.mark.virtual


def updates(n, size, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=size).astype(np.float32) for _ in range(n)]


def encoded(codec, update):
    """A push's part in a codec, as the test's worker sends it."""
    arrays, _ = codec.encode(update, codec.init(update.size))
    data = np.concatenate([np.ascontiguousarray(array).view(np.uint8) for array in arrays])
    return {"data": data, "codec": codec.wire_id, "dtype": DTYPE_IDS[codec.dtype]}


async def trained(hand, fold, *, size=257, n=4, order=None, codec="dense", rounds=2, **spec):
    """Push rounds of ``n`` workers one after the other; return the parameters."""
    made = parse_codec(codec)
    settings = {"min_workers": n, "bucket_bytes": 512, "shards": 2, "codec": codec, **spec}
    params = {"w": np.linspace(-1, 1, size, dtype=np.float32)}
    async with Cluster(params=params, fold=fold, **settings) as house:
        workers = [await hand(house, f"w{i}") for i in range(n)]
        buckets = house.server.service.store.table.buckets
        for version in range(rounds):
            for i in order or range(n):
                flat = updates(n, size, seed=version)[i]
                parts = [encoded(made, flat[b.start : b.stop]) for b in buckets]
                await workers[i].send_push(
                    version, *parts, base=version, n_samples=1 + 2 * i, n_steps=1 + i
                )
                await settle()
            for worker in workers:
                assert (await worker.events.get()).body.version == version + 1
        assert count(house, "pushes_folded") == (n * rounds if fold == "arrival" else 0)
        return house.server.params()["w"]


@pytest.mark.parametrize("codec", ["dense", "fp16", "int8", "topk:0.3", "topk_int8:0.3"])
@pytest.mark.parametrize("n", [2, 4])
async def test_in_worker_order_the_mean_of_a_power_of_two_is_the_same_bit_for_bit(hand, codec, n):
    # Then the scale is one too, and what is multiplied by it at the end rounds as what was before the sum.
    both = [
        await trained(hand, fold, n=n, codec=codec, weights="uniform")
        for fold in ("ordered", "arrival")
    ]
    np.testing.assert_array_equal(*both)


@pytest.mark.parametrize(
    "weights",
    [
        "uniform",
        "by_samples",
        "by_steps",
        "by_steps:by_samples",
        "by_samples*by_staleness:0.5",
        "normalized(by_staleness:1)",
        "normalized(by_samples*by_steps)",
    ],
)
@pytest.mark.parametrize("codec", ["dense", "topk_fp16:0.2"])
async def test_in_any_order_the_numbers_are_the_same_but_for_rounding(hand, weights, codec):
    ordered = await trained(hand, "ordered", n=3, weights=weights, codec=codec)
    for order in ([0, 1, 2], [2, 0, 1]):
        folded = await trained(hand, "arrival", n=3, weights=weights, codec=codec, order=order)
        np.testing.assert_allclose(folded, ordered, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("order", "lost"), [((0, 1, 2), 2), ((1, 2, 0), 0), ((1, 0, 2), 2)])
async def test_the_sum_is_in_the_order_of_arrival(hand, order, lost):
    # 2^24 + 1 is no float32: a 1 is lost beside it, but two of them together are not.
    async with cluster(fold="arrival", weights="uniform", min_workers=3, server_lr=3.0) as house:
        workers = [await hand(house) for _ in range(3)]
        for i in order:
            await workers[i].send_push(1, (2.0**24, 1.0, 1.0)[i] * ONES)
            await settle()
        for worker in workers:
            assert (await worker.events.get()).body.version == 1
        third = np.float32(2**24 + 2 - lost) * np.float32(1 / 3)
        assert value(house) == np.float32(3.0) * third


@pytest.mark.parametrize("n", [4, 64])
async def test_what_a_round_holds_does_not_depend_on_the_number_of_workers(hand, n):
    # Ten buckets of a page each: what a pool gives out is counted in pages.
    size, model = 10 * 1024, 10 * 4096
    spec = {"bucket_bytes": 4096, "shards": 2}
    async with cluster(size, fold="arrival", weights="uniform", min_workers=n, **spec) as house:
        pool = house.server.service.pool
        workers = [await hand(house) for _ in range(n)]
        at_rest, held, peak = pool.outstanding_bytes, [], 0
        assert at_rest == model
        take = type(pool).take

        def watched(pool, size_bytes):
            nonlocal peak
            block = take(pool, size_bytes)
            peak = max(peak, pool.outstanding_bytes)
            return block

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(pool), "take", watched)
            for version in range(2):
                for worker in workers:
                    parts = np.ones((10, 1024), np.float32)
                    await worker.send_push(version, *parts, base=version)
                    await settle()
                    held.append(pool.outstanding_bytes - at_rest)
        assert house.server.version == 2
        assert value(house) == 2.0
    # The sum of the round, and nothing of any push; after the last one nothing at all.
    assert held == 2 * ([model] * (n - 1) + [0])
    # At most the parameters, the sum, and a push on its way in or the next parameters.
    assert peak == 3 * model


async def test_without_it_a_round_holds_every_push(hand):
    async with cluster(MANY, weights="uniform", min_workers=3) as house:
        pool = house.server.service.pool
        workers = [await hand(house) for _ in range(3)]
        at_rest = pool.outstanding
        for i in range(2):
            await workers[i].send_push(1, np.ones(MANY, np.float32))
            await settle()
            assert pool.outstanding == at_rest + i + 1


async def test_a_worker_that_leaves_after_its_push_was_added_still_counts(hand):
    async with cluster(fold="arrival", weights="uniform", min_workers=3) as house:
        workers = [await hand(house) for _ in range(3)]
        for worker in workers:
            await worker.send_push(1, ONES)
        for worker in workers:
            await worker.events.get()
        await workers[0].send_push(2, 6 * ONES, base=1)
        await settle()
        workers[0].send_leave()
        await settle()
        await workers[1].send_push(2, 3 * ONES, base=1)
        await settle()
        assert (await workers[2].push(2, 0 * ONES, base=1)).body.version == 2
        assert value(house) == 4.0


async def test_a_round_that_is_not_finite_is_declined_to_all_and_the_next_begins_anew(hand):
    async with cluster(fold="arrival", weights="uniform", min_workers=2) as house:
        workers = [await hand(house) for _ in range(2)]
        pool = house.server.service.pool
        at_rest = pool.outstanding
        for worker in workers:
            await worker.send_push(1, np.full(4, 3e38, np.float32))
        for worker in workers:
            answer = await worker.events.get()
            assert answer.kind is Kind.REFUSE
            assert "the update is too large" in answer.body.message
        assert (house.server.version, value(house)) == (0, 0.0)
        assert pool.outstanding == at_rest
        await workers[0].send_push(2, ONES)
        await settle()
        assert (await workers[1].push(2, 3 * ONES)).body.version == 1
        assert value(house) == 2.0


async def test_a_push_that_is_not_finite_is_refused_before_it_is_added(hand):
    async with cluster(8, fold="arrival", weights="uniform", min_workers=2) as house:
        one, other = await hand(house), await hand(house)
        bad = np.ones(8, np.float32)
        bad[7] = np.nan
        assert (await one.push(1, bad)).kind is Kind.REFUSE
        await one.send_push(2, np.ones(8, np.float32))
        await settle()
        assert (await other.push(1, np.ones(8, np.float32))).body.version == 1
        assert value(house) == 1.0


async def test_a_round_of_no_weight_leaves_nothing_in_the_next(hand):
    async with cluster(fold="arrival", weights="by_samples", min_workers=2) as house:
        one, other = await hand(house), await hand(house)
        await one.send_push(1, 5 * ONES, n_samples=0)
        await settle()
        assert (await other.push(1, 7 * ONES, n_samples=0)).kind is Kind.REFUSE
        assert (await one.events.get()).kind is Kind.REFUSE
        await one.send_push(2, ONES, n_samples=3)
        await settle()
        assert (await other.push(2, 5 * ONES)).body.version == 1
        assert value(house) == 2.0


async def test_a_push_that_was_added_is_added_once_however_often_it_is_sent(hand):
    async with cluster(fold="arrival", weights="uniform", min_workers=2) as house:
        one, other = await hand(house, "a"), await hand(house, "b")
        for _ in range(3):
            await one.send_push(1, ONES)
            await settle()
        one.connection.abort()
        one = await hand(house, "a")
        await one.send_push(1, ONES)
        await settle()
        assert (await other.push(1, 3 * ONES)).body.version == 1
        assert (await one.events.get()).body.version == 1
        assert (value(house), count(house, "pushes_folded")) == (2.0, 2)


async def test_large_pushes_are_added_in_threads_in_the_order_in_which_they_came(hand, threads):
    async with cluster(MANY, fold="arrival", weights="uniform", min_workers=3, shards=2) as house:
        workers = [await hand(house) for _ in range(3)]
        buckets = house.server.service.store.table.buckets
        for i, worker in enumerate(workers):
            parts = [np.full(b.size, i + 1, np.float32) for b in buckets]
            await worker.send_push(1, *parts)
            while count(house, "pushes") <= i:
                await threads.go()  # the check of its values, and the adds of those before it
        await threads.go(2)
        # The merge waits for all of them.
        while house.server.version == 0:
            await threads.go(2)
        for worker in workers:
            assert (await worker.events.get()).body.version == 1
        assert value(house) == 2.0


async def test_a_push_of_the_next_round_begins_a_sum_of_its_own_while_one_is_merged(hand, threads):
    async with cluster(MANY, fold="arrival", weights="uniform") as house:
        one, other = await hand(house), await hand(house)
        update = np.ones(MANY, np.float32)
        await one.send_push(1, update)
        await threads.go()  # its check
        await threads.go()  # it is added
        while not threads.waiting:  # noqa: ASYNC110 -- virtual time: it costs nothing
            await asyncio.sleep(0.01)
        merging, threads.waiting = threads.waiting, []
        await other.send_push(1, 5 * update)
        await threads.go()
        await threads.go()
        assert count(house, "pushes_folded") == 2
        merging[0].set_result(None)
        assert (await one.events.get()).body.version == 1
        assert value(house) == 1.0
        await one.send_push(2, 3 * update, base=1)
        for _ in range(3):
            await threads.go()
        assert (await other.events.get()).body.version == 2
        assert value(house) == 5.0


async def test_a_sum_that_nobody_wants_is_given_back_when_no_thread_is_at_it(hand, threads):
    spec = {"fold": "arrival", "weights": "by_samples", "min_workers": 2}
    async with cluster(MANY, **spec) as house:
        one, other = await hand(house), await hand(house)
        pool = house.server.service.pool
        at_rest, update = pool.outstanding, np.ones(MANY, np.float32)
        await one.send_push(1, update, n_samples=0)
        await threads.go()  # its check
        while not threads.waiting:  # noqa: ASYNC110 -- virtual time: it costs nothing
            await asyncio.sleep(0.01)
        adding, threads.waiting = threads.waiting, []
        await other.send_push(1, update, n_samples=0)
        await threads.go()
        assert (await other.events.get()).kind is Kind.REFUSE
        adding += threads.waiting
        threads.waiting = []
        # The next round begins while pushes of the last one are still to be added.
        await one.send_push(2, 3 * update)
        await threads.go()
        assert pool.outstanding == at_rest + 3  # two sums and the push
        for gate in adding:
            gate.set_result(None)
        await threads.go()
        assert pool.outstanding == at_rest + 1
        await other.send_push(2, update)
        for _ in range(3):
            await threads.go()
        assert [(await one.events.get()).kind for _ in range(2)] == [Kind.REFUSE, Kind.ACK]
        assert value(house) == 2.0
        assert pool.outstanding == at_rest


@pytest.mark.parametrize(
    ("weights", "statistics"),
    [
        # 4 + (2 + 4) / 2 and 4 - (2 + 4) / 2: the server's learning rate of 2 is not for values.
        ("uniform", [7.0, 1.0]),
        # Weights of 1 and 1/3 are shares of 3/4 and 1/4: 4 + 1.5 + 1.
        ("by_steps", [6.5, 1.5]),
    ],
)
@pytest.mark.parametrize("fold", ["ordered", "arrival"])
async def test_running_statistics_stay_a_mean_of_values(hand, fold, weights, statistics):
    async with Cluster(fold=fold, weights=weights, min_workers=2, server_lr=2.0) as house:
        one, other = await hand(house), await hand(house)
        event = await one.init(("w", (3,), "float32", False), ("var", (2,), "float32", True))
        seeds = np.zeros(3, np.float32), np.full(2, 4.0, np.float32)
        assert (await one.seed(event.request, *seeds)).kind is Kind.ACK
        for worker, values, n_steps in ((one, 2, 1), (other, 4, 3)):
            parts = np.full(3, values, np.float32), np.array([values, -values], np.float32)
            await worker.send_push(1, *parts, n_steps=n_steps)
            await settle()
        for worker in (one, other):
            assert (await worker.events.get()).body.version == 1
        params = house.server.params()
    np.testing.assert_allclose(params["var"], statistics, rtol=1e-6)
    # Twice (2 + 4) / 2, and twice 2 * 1 + 4 / 3.
    np.testing.assert_allclose(params["w"], 6.0 if weights == "uniform" else 20 / 3, rtol=1e-6)


async def test_a_server_that_ends_in_the_middle_of_a_round_gives_its_memory_back(hand):
    async with cluster(MANY, fold="arrival", weights="uniform", min_workers=2) as house:
        worker = await hand(house)
        await worker.send_push(1, np.ones(MANY, np.float32))
        await settle()
        assert count(house, "pushes_folded") == 1
    # conftest looks at the pool.
