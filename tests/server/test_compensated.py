"""Late pushes that are corrected: FedAsync and DC-ASGD from the push to the next version, and what is kept for them."""

import asyncio

import numpy as np
import pytest

from aiops.errors import NotFinite, Refused
from aiops.policy.preset import preset
from aiops.sim.cluster import Cluster
from aiops.types import TensorSpec
from aiops.wire.frame import Kind
from tests.server.kit import MANY, ONES, cluster, value

pytestmark = pytest.mark.virtual

ASYNC = {"sync": "asynchronous", "weights": "uniform", "work": "fixed:1"}
DC = {**ASYNC, "compensation": "dcasgd:0.5,0.25"}
ADAPTIVE = {**ASYNC, "compensation": "dcasgd_adaptive:2,0.75,0.5"}


def history(house):
    return sorted(house.server.service.store.history._kept)


async def step(worker, sequence, change, *, base, n=4):
    """Push a constant and want the model; return the version, or the refusal."""
    answer = await worker.push(sequence, np.full(n, change, np.float32), base=base, want=True)
    answer.release()
    return answer.body


@pytest.mark.parametrize(
    ("name", "second"),
    # 0.4 * 6 + 0.6 * 5, and the share 0.6 / sqrt(2) of it; hinge is 1 up to 4 rounds.
    [
        ("fedasync-constant", 5.4),
        ("fedasync", 6 - 0.6 / 2**0.5),
        ("fedasync-hinge", 5.4),
    ],
)
async def test_fedasync_mixes_models_by_their_age(hand, name, second):
    async with cluster(**preset(name)) as house:
        a, b = [await hand(house) for _ in range(2)]
        for worker in (a, b):
            (await worker.pull()).release()
        # x = 0 + 10, then 0 + 5 one version late, then 6 + 1 two versions late in all.
        assert (await step(a, 1, 10, base=0)).version == 1
        assert value(house) == pytest.approx(6)
        assert (await step(b, 1, 5, base=0)).staleness == 1
        assert value(house) == pytest.approx(second)
        await step(a, 2, 1, base=1)
        share = {"fedasync": 0.6 / 2**0.5}.get(name, 0.6)
        assert value(house) == pytest.approx((1 - share) * second + share * 7)


async def test_fedasync_mixes_running_statistics_in_with_the_model():
    specs = [TensorSpec("w", (2,), "float32"), TensorSpec("m", (2,), "float32", averaged=True)]
    async with (
        Cluster(**preset("fedasync-constant")) as house,
        house.worker("a") as a,
        house.worker("b") as b,
    ):
        for ps in (a, b):
            await ps.init_flat(specs, lambda _, flat: flat.fill(1))
        for ps, change in ((a, 10), (b, 5)):
            await ps.push_flat(np.full(4, change, np.float32), base=0)
        # 0.4 * 1 + 0.6 * 11 = 7; 0.4 * 7 + 0.6 * 6
        np.testing.assert_allclose((await a.pull_flat()).flat, [6.4] * 4, rtol=1e-6)


async def test_dcasgd_corrects_a_gradient_by_the_way_the_parameters_have_gone(hand):
    async with cluster(**DC) as house:
        a, b = [await hand(house) for _ in range(2)]
        for worker in (a, b):
            (await worker.pull()).release()
        await step(a, 1, -0.5, base=0)
        assert value(house) == -0.5
        # g = 2: 2 + 0.5 * 4 * (-0.5 - 0) = 1; times -0.25
        await step(b, 1, -0.5, base=0)
        assert value(house) == -0.75
        # From the version before the newest: w - w_base = -0.25.
        await step(a, 2, -0.5, base=1)
        assert value(house) == -0.75 - 0.25 * (2 - 0.5 * 4 * 0.25)


async def test_dcasgd_leaves_running_statistics_alone():
    specs = [TensorSpec("w", (2,), "float32"), TensorSpec("m", (2,), "float32", averaged=True)]
    async with Cluster(**ADAPTIVE) as house, house.worker("a") as a, house.worker("b") as b:
        for ps in (a, b):
            await ps.init_flat(specs, lambda _, flat: flat.fill(0))
        for ps in (a, b):
            await ps.push_flat(np.full(4, -2, np.float32), base=0)
        model = (await a.pull_flat()).flat
        # g = 4, MS = 4, lambda = 1: 4 + 16 * (-2 - 0) = -28; times -0.5
        np.testing.assert_allclose(model, [12, 12, -4, -4], rtol=1e-6)


async def test_the_mean_square_is_each_workers_own_and_goes_with_it(hand):
    async with cluster(**ADAPTIVE) as house:
        pool = house.server.service.pool
        a, b = await hand(house, "a"), await hand(house, "b")
        for worker in (a, b):
            (await worker.pull()).release()
        await step(a, 1, -2, base=0)
        assert value(house) == -2
        # b's first: MS = 4 of its own gradient, not 7 of both: 4 + 16 * -2 = -28; times -0.5
        await step(b, 1, -2, base=0)
        assert value(house) == pytest.approx(12)
        outstanding = pool.outstanding
        await b.leave()
        # Its mean square, and the snapshot that it alone held.
        assert (history(house), pool.outstanding) == ([1], outstanding - 1)
        await a.leave()
        assert history(house) == []
        assert pool.outstanding == 1


async def test_two_pushes_of_one_worker_in_a_buffer_move_its_mean_square_on_in_turn(hand):
    async with cluster(**{**ADAPTIVE, "sync": "buffered:2"}) as house:
        a, b = [await hand(house) for _ in range(2)]
        for worker in (a, b):
            (await worker.pull()).release()
        for sequence in (1, 2):
            await step(a, sequence, -2, base=0)
        assert value(house) == -2
        # MS = 4, lambda = 1, and then MS = 7: 4 + 16 * -2, and 4 + 2 / sqrt(7) * 16 * -2; times -0.5; the mean of both.
        for sequence in (1, 2):
            await step(b, sequence, -2, base=0)
        assert value(house) == pytest.approx(-2 + (14 - 0.5 * (4 - 64 / 7**0.5)) / 2)


async def test_a_worker_that_leaves_while_it_is_merged_leaves_nothing(hand, threads):
    async with cluster(MANY, **ADAPTIVE) as house:
        store, pool = house.server.service.store, house.server.service.pool
        worker = await hand(house, "a")
        for base in (0, 1):
            await worker.send_push(base + 1, np.full(MANY, -2, np.float32), base=base, want=True)
            # Checked, then merged, each in the shard's thread.
            await threads.go()
            if base == 0:
                await threads.go()
                (await worker.events.get()).release()
        while not threads.waiting:  # noqa: ASYNC110 -- virtual time: it costs nothing
            await asyncio.sleep(0.01)
        worker.send_leave()
        await asyncio.sleep(0.1)
        # What the merge looks at stays until it is over.
        assert house.server.status()["n_members"] == 0
        assert store.shards[0]._compensated._blocks
        assert history(house) == [1]
        await threads.go()
        assert house.server.version == 2
        assert not store.shards[0]._compensated._blocks
        assert (history(house), pool.outstanding) == ([], 1)


async def test_a_push_from_a_version_that_is_gone_is_refused_in_a_sentence(hand):
    async with cluster(**DC) as house:
        a, b = [await hand(house) for _ in range(2)]
        await step(a, 1, -0.5, base=0)
        await step(a, 2, -0.5, base=1)
        assert history(house) == [2]
        for worker, base in ((a, 1), (b, 0)):
            refusal = await step(worker, 3, -0.5, base=base)
            assert refusal.code == Refused.code
            assert refusal.message == (
                f"push starts from version {base}, which worker {worker.worker} went on from: "
                "start from the newest model, the server is at 2"
            )
        refusal = await step(a, 4, -0.5, base=9)
        assert "push starts from version 9, the server is at 2" in refusal.message
        assert (await step(b, 4, -0.5, base=2)).version == 3
        assert history(house) == [2, 3]


async def test_a_step_that_is_not_finite_leaves_parameters_and_mean_square_alone(hand):
    async with cluster(**ADAPTIVE) as house, cluster(**ADAPTIVE) as other:
        for each, changes in ((house, [-2, 1e25, -1]), (other, [-2, -1])):
            worker = await hand(each, "a")
            late = await hand(each, "late")
            (await late.pull()).release()
            for sequence, change in enumerate(changes):
                body = await step(worker, sequence + 1, change, base=each.server.version)
                if change == 1e25:
                    assert body.code == NotFinite.code
            await step(late, 1, -1, base=0)
        assert (value(house), house.server.version) == (value(other), 3)


async def test_bases_are_kept_for_slow_workers_as_versions_pass(hand):
    async with cluster(**DC) as house:
        pool = house.server.service.pool
        slow = [await hand(house) for _ in range(3)]
        fast = await hand(house)
        for worker in slow:
            (await worker.pull()).release()
            await step(fast, house.server.version + 1, 0.0, base=house.server.version)
        for _ in range(10):
            await step(fast, house.server.version + 1, 0.0, base=house.server.version)
        assert history(house) == [0, 1, 2, 13]
        # The newest is published as well as kept.
        assert pool.outstanding == 4
        for worker, base in zip(slow, range(3), strict=True):
            assert (await step(worker, 1, -0.5, base=base)).staleness == 13
        assert history(house) == [13, 14, 15, 16]


async def test_a_worker_that_only_pushes_may_start_from_what_it_pulls(hand):
    async with cluster(**DC) as house:
        worker, other = [await hand(house) for _ in range(2)]
        for sequence in range(1, 4):
            (await worker.pull()).release()
            base = house.server.version
            await other.push(sequence, 0 * ONES, base=base)
            answer = await worker.push(sequence, 0 * ONES, base=base)
            assert (answer.kind, answer.body.staleness) == (Kind.ACK, 1)
            assert len(history(house)) == 1


async def test_a_push_sent_again_after_a_cut_is_corrected_once(hand):
    async with cluster(**DC) as house:
        worker = await hand(house, "a")
        await step(worker, 1, -0.5, base=0)
        worker.connection.abort()
        again = await hand(house, "a")
        assert (await step(again, 1, -0.5, base=0)).version == 1
        assert (value(house), history(house)) == (-0.5, [1])


async def test_nothing_is_kept_where_no_rule_looks_at_it(hand):
    async with cluster(sync="asynchronous", optimizer="momentum:1,0.5") as house:
        await (await hand(house)).push(1, ONES)
        assert house.server.service.store.history is None
