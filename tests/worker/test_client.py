"""The client against a real server inside the loop: parameters, pushes, pulls and what they tell."""

import asyncio

import numpy as np
import pytest

from aiops.errors import ConnectFailed, LocalProtocolError, NotFinite, ShapeMismatch
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from tests.worker.kit import ONES, START, same

pytestmark = pytest.mark.virtual


# Starting.


async def test_the_first_workers_parameters_win_over_all_later_ones():
    async with Cluster() as cluster:
        started = []
        for seed in range(3):
            async with cluster.worker(f"w{seed}") as ps:
                rng = np.random.default_rng(seed)
                started.append(await ps.init({"w": rng.standard_normal(5).astype(np.float32)}))
        expected = {"w": np.random.default_rng(0).standard_normal(5).astype(np.float32)}
        for params in started:
            same(params, expected)


async def test_workers_that_start_together_start_from_the_same_parameters():
    async with Cluster() as cluster:

        async def work(i):
            async with cluster.worker(f"w{i}") as ps:
                return await ps.init({"w": np.full(5, i, np.float32)})

        started = await asyncio.gather(*map(work, range(5)))
        for params in started:
            same(params, started[0])


async def test_the_seeding_worker_dies_and_the_next_one_takes_over():
    n = 10_000
    async with Cluster(bucket_bytes=4000) as cluster:
        dead = cluster.worker("dead", up=Link(rate_bytes_s=1000.0), give_up_s=0.0)
        async with dead, cluster.worker("next") as ps, cluster.worker("watching") as watching:
            seeding = asyncio.ensure_future(dead.init({"w": np.ones(n, np.float32)}))
            await asyncio.sleep(5)
            watched = asyncio.ensure_future(watching.init())
            started = asyncio.ensure_future(ps.init({"w": np.full(n, 2, np.float32)}))
            await asyncio.sleep(5)
            assert not started.done()
            dead._link.cut()
            for params in (await started, await watched):
                np.testing.assert_array_equal(params["w"], 2)
            with pytest.raises(ConnectFailed):
                await seeding


async def test_a_spectator_waits_for_the_first_parameters():
    async with Cluster() as cluster, cluster.worker("a") as ps:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await ps.init()
        async with cluster.worker("b") as first:
            await first.init(START)
            same(await ps.init(), START)


async def test_another_model_is_refused_by_the_name_of_its_first_difference():
    async with Cluster(params=START) as cluster, cluster.worker("a") as ps:
        with pytest.raises(ShapeMismatch, match="tensor 'b' has shape"):
            await ps.init({**START, "b": np.ones(3, np.float32)})
        with pytest.raises(ShapeMismatch, match="tensor 'w' is int64, a parameter server averages"):
            await ps.init({"w": np.arange(3)})
        with pytest.raises(NotFinite, match="parameter 'w'"):
            await ps.init({"w": np.array([np.nan], np.float32)})
        same(await ps.init(START), START)
        assert ps.connections == 1


async def test_nothing_goes_before_init():
    async with Cluster(params=START) as cluster, cluster.worker("a") as ps:
        for verb in (ps.pull, lambda: ps.push(ONES), lambda: ps.sync(ONES), lambda: ps.table):
            with pytest.raises(LocalProtocolError, match="call init first"):
                verb()


# Pushing and pulling.


async def test_tickets_tell_version_staleness_bytes_and_whether_they_are_done():
    async with (
        Cluster(params=START, sync="asynchronous") as cluster,
        cluster.worker("a", up=Link(0.1)) as ps,
        cluster.worker("b") as other,
    ):
        await ps.init()
        await other.init()
        await other.sync(ONES)
        ticket = ps.push(ONES)
        assert not ticket.done()
        assert (ticket.version, ticket.staleness) == (None, None)
        assert await ticket == 2
        assert ticket.done()
        assert (ticket.version, ticket.staleness, ticket.bytes) == (2, 1, 32)
        ticket = ps.pull()
        same(await ticket, {name: value + 2 for name, value in START.items()})
        assert (ticket.version, ticket.staleness, ticket.bytes, ps.version) == (2, 0, 32, 2)
        ticket = ps.sync(ONES)
        await ticket
        assert (ticket.version, ticket.staleness, ticket.bytes, ps.version) == (3, 0, 64, 3)


async def test_a_timeout_around_a_ticket_gives_up_the_wait_and_not_the_push():
    async with (
        Cluster(params=START, min_workers=2, weights="uniform") as cluster,
        cluster.worker("a") as ps,
        cluster.worker("b") as other,
    ):
        await ps.init()
        await other.init()
        ticket = ps.push(ONES)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await ticket
        assert not ticket.done()
        await other.push(ONES)
        assert await ticket == 1
        same(cluster.server.params(), {name: value + 1 for name, value in START.items()})


async def test_every_pull_is_of_one_version_however_fast_rounds_close():
    n = 500
    async with Cluster(
        params={"w": np.zeros(n, np.float32)}, sync="asynchronous", shards=3, bucket_bytes=256
    ) as cluster:
        seen = set()

        async def work(i):
            async with cluster.worker(f"w{i}", down=Link(0.001 * i, 5e5)) as ps:
                await ps.init()
                for _ in range(15):
                    pushed = ps.push({"w": np.ones(n, np.float32)})
                    pulled = ps.pull()
                    (value,) = set((await pulled)["w"].tolist())
                    assert value == pulled.version
                    seen.add(value)
                    await pushed

        await asyncio.gather(*map(work, range(6)))
        assert len(seen) > 30
        np.testing.assert_array_equal(cluster.server.params()["w"], 90)


async def test_one_worker_alone_is_plain_local_training_bit_for_bit():
    rng = np.random.default_rng(0)
    local = {"w": rng.standard_normal((7, 5)), "b": rng.standard_normal(5)}
    local = {name: value.astype(np.float32) for name, value in local.items()}
    async with Cluster() as cluster, cluster.worker("only") as ps:
        params = await ps.init(local)
        for _ in range(20):
            gradient = {name: np.sin(value * 3) for name, value in params.items()}
            step = {name: np.float32(-0.1) * g for name, g in gradient.items()}
            params = await ps.sync(step, n_samples=17)
            for name in local:
                local[name] = local[name] + np.float32(-0.1) * np.sin(local[name] * 3)
            same(params, local)


async def test_the_merge_is_the_weighted_mean_in_worker_order_bit_for_bit():
    rng = np.random.default_rng(0)
    w = np.zeros(50, np.float32)
    samples = (3, 5, 11)
    async with Cluster(params={"w": w}, min_workers=3, shards=2, bucket_bytes=64) as cluster:
        workers = [cluster.worker(f"w{i}") for i in range(3)]
        async with workers[0], workers[1], workers[2]:
            for ps in workers:
                await ps.init()
            for round_ in range(6):
                updates = [rng.standard_normal(50).astype(np.float32) for _ in range(3)]
                tickets = []
                for i in rng.permutation(3):
                    push = workers[i].sync({"w": updates[i]}, base=round_, n_samples=samples[i])
                    tickets.append(push)
                    await asyncio.sleep(0.1)
                acc = np.zeros(50, np.float32)
                for i in range(3):
                    acc += np.float32(samples[i] / 19) * updates[i]
                w = w + acc
                for ticket in tickets:
                    same(await ticket, {"w": w})


@pytest.mark.parametrize(
    "tensors",
    [
        pytest.param({"a": np.float32(3)}, id="0-d"),
        pytest.param({"a": np.zeros((0, 4), np.float32)}, id="nothing but an empty tensor"),
        pytest.param({"a": np.zeros((2, 0), np.float32), "b": np.ones(3, np.float32)}, id="empty"),
        pytest.param(
            {"a": np.ones((3, 4), np.float32).T, "b": np.ones(9, np.float32)[::2]}, id="views"
        ),
        pytest.param({"a": np.ones(5, np.float64), "b": np.ones(2, np.float16)}, id="mixed types"),
    ],
)
@pytest.mark.parametrize("codec", ["dense", "fp16", "bf16", "topk:0.5"])
async def test_tensors_of_any_shape_and_type_make_the_round_trip(tensors, codec):
    async with Cluster(codec=codec, shards=2) as cluster, cluster.worker("a") as ps:
        started = await ps.init(tensors)
        same(started, {name: np.ascontiguousarray(value) for name, value in tensors.items()})
        params = await ps.sync({name: 0 * np.asarray(value) for name, value in tensors.items()})
        same(params, tensors)
        assert {name: value.dtype for name, value in params.items()} == {
            name: np.asarray(value).dtype for name, value in tensors.items()
        }
        assert {name: value.shape for name, value in params.items()} == {
            name: np.shape(value) for name, value in tensors.items()
        }


async def test_sums_are_kept_in_float32_whatever_the_parameters_are():
    async with Cluster(sync="asynchronous") as cluster, cluster.worker("a") as ps:
        await ps.init({"w": np.ones(1, np.float16)})
        for _ in range(1000):
            await ps.push({"w": np.full(1, 1e-4, np.float16)})
        params = await ps.pull()
        assert params["w"].dtype == np.float16
        np.testing.assert_allclose(params["w"], 1.1, atol=1e-3)


async def test_a_push_is_a_copy_and_what_is_pulled_is_the_callers():
    async with Cluster(params=START) as cluster, cluster.worker("a", up=Link(0.5)) as ps:
        first = await ps.init()
        update = {name: value.copy() for name, value in ONES.items()}
        ticket = ps.sync(update)
        for value in (*update.values(), *first.values()):
            value[...] = np.nan
        params = await ticket
        same(params, {name: value + 1 for name, value in START.items()})
        params["w"][...] = np.nan
        same(await ps.pull(), {name: value + 1 for name, value in START.items()})


@pytest.mark.parametrize(
    ("update", "error", "told"),
    [
        ({**ONES, "w": np.full((2, 3), np.nan, np.float32)}, NotFinite, "tensor 'w'"),
        ({**ONES, "b": np.array([1, 1e39])}, NotFinite, "update holds inf in tensor 'b'"),
        ({**ONES, "b": np.ones(3, np.float32)}, ShapeMismatch, "tensor 'b' has shape"),
        ({**ONES, "b": np.ones(2, np.int32)}, ShapeMismatch, "tensor 'b' is int32"),
        ({"w": ONES["w"]}, ShapeMismatch, "tensor 'b' of the agreed table is missing"),
        ({**ONES, "c": ONES["b"]}, ShapeMismatch, "tensor 'c' is not in the agreed table"),
    ],
)
async def test_a_bad_update_is_refused_by_name_before_it_is_sent(update, error, told):
    async with Cluster(params=START) as cluster, cluster.worker("a") as ps:
        await ps.init()
        for verb in (ps.push, ps.sync):
            with pytest.raises(error, match=told):
                verb(update)
        assert await ps.push(ONES) == 1
        assert ps.clock == 1


async def test_counts_and_losses_may_be_numpys():
    async with Cluster(params=START) as cluster, cluster.worker("a") as ps:
        await ps.init()
        counts = {"n_samples": np.int64(32), "n_steps": np.int32(2), "base": np.uint8(0)}
        assert await ps.push(ONES, loss=np.float32(0.5), **counts) == 1
        assert ps.clock == 2
        assert (await ps.status())["members"][0]["clock"] == 2


async def test_status_says_what_is_going_on():
    async with Cluster(params=START) as cluster, cluster.worker("me") as ps:
        await ps.init()
        await ps.sync(ONES, n_steps=3)
        status = await ps.status()
        assert (status["version"], status["started"], status["waiting"]) == (1, True, "")
        assert status["members"] == [
            {"worker": 0, "name": "me", "connected": True, "clock": 3, "merged": 1}
        ]
        assert status["counters"]["pushes_merged"] == 1
