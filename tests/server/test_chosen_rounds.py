"""AR-Topk through the server, against plain numpy: rounds are the reference's, and nothing of an update is lost."""

import asyncio
import contextlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiops.codec.artopk import artopk
from aiops.errors import ConnectFailed
from aiops.sim.cluster import Cluster
from aiops.sim.virtual import VirtualLoop
from aiops.transport.memory import Link
from aiops.worker.overlap import overlapped
from aiops.worker.rounds import blocking
from tests.server.kit import LEASE, count

pytestmark = pytest.mark.virtual

N, DENSITY = 200, 0.1
START = np.linspace(-1, 1, N, dtype=np.float32)
SPEC = {"shards": 2, "bucket_bytes": 256, "weights": "uniform", "work": "fixed:1", "sync": "bulk:0"}
# Of three buckets of 64 values and one of 8.
K = 3 * round(DENSITY * 64) + max(1, round(DENSITY * 8))
CODES = 3 * artopk(DENSITY).positions_bytes(64) + artopk(DENSITY).positions_bytes(8)


class Reference:
    """STAR-Topk as it is written down, bucket by bucket."""

    def __init__(self, table, n_workers, density=DENSITY):
        self.params = START.copy()
        self.rests = [np.zeros(N, np.float32) for _ in range(n_workers)]
        self.buckets = [slice(bucket.start, bucket.stop) for bucket in table.buckets]
        self.density = density

    def close_round(self, leader, updates):
        share = np.float32(1 / len(updates))
        for rest, update in zip(self.rests, updates, strict=True):
            rest += update
        for bucket in self.buckets:
            led = self.rests[leader][bucket]
            k = max(1, round(self.density * led.size))
            chosen = np.sort(np.argsort(-np.abs(led), kind="stable")[:k])
            mean = np.zeros(k, np.float32)
            for rest in self.rests:
                mean += share * rest[bucket][chosen]
                rest[bucket][chosen] = 0
            self.params[bucket][chosen] += mean
        return self.params


def house(**spec):
    return Cluster(params={"w": START}, **{"codec": f"artopk:{DENSITY}", **SPEC, **spec})


@contextlib.asynccontextmanager
async def members(server, n, **links):
    async with contextlib.AsyncExitStack() as stack:
        workers = []
        for i in range(n):
            workers.append(await stack.enter_async_context(server.worker(f"w{i}", **links)))
            assert workers[i].worker == i
            await workers[i].init()
        yield workers


def drawn(*seed):
    return np.random.default_rng(seed).standard_normal(N).astype(np.float32)


def left(ps):
    return np.concatenate([ps.residuals()[key] for key in sorted(ps.residuals())])


@pytest.mark.parametrize("down", ["dense", f"artopk:{DENSITY}"])
async def test_rounds_are_those_of_the_reference_and_few_values_travel(down):
    async with house(min_workers=3, down=down) as server, members(server, 3) as workers:
        reference = Reference(workers[0].table, 3)
        for turn in range(9):
            updates = [drawn(turn, i) for i in range(3)]
            tickets = [ps.sync({"w": u}) for ps, u in zip(workers, updates, strict=True)]
            models = [(await ticket)["w"] for ticket in tickets]
            expected = reference.close_round(turn % 3, updates)
            for ps, model, rest in zip(workers, models, reference.rests, strict=True):
                if down == "dense":
                    np.testing.assert_array_equal(model, expected)
                else:
                    # What went down is rounded once more than what was added at once.
                    np.testing.assert_allclose(model, expected, atol=1e-6)
                np.testing.assert_array_equal(model, models[0])
                np.testing.assert_array_equal(left(ps), rest)
            np.testing.assert_array_equal(models[0], server.server.params()["w"])
            # Values up and values down, and the positions once, up or down.
            assert {t.bytes for t in tickets} == {CODES + 4 * (K + (N if down == "dense" else K))}
        assert count(server, "choices") == 9


@pytest.mark.parametrize("spec", [{}, {"weights": "by_samples"}, {"server_lr": 0.5}])
async def test_at_density_1_rounds_are_bit_for_bit_those_of_dense_updates(spec):
    models = []
    for codec in ("dense", "artopk:1.0"):
        async with (
            house(codec=codec, min_workers=3, **spec) as server,
            members(server, 3) as workers,
        ):
            for turn in range(5):
                tickets = [
                    ps.sync({"w": drawn(turn, i)}, n_samples=i + 1) for i, ps in enumerate(workers)
                ]
                models.append([(await ticket)["w"] for ticket in tickets])
    np.testing.assert_array_equal(models[:5], models[5:])


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_sent_and_what_is_left_is_all_that_was_pushed_whatever_happens(data):
    n = data.draw(st.integers(1, 4), "workers")
    density = data.draw(st.sampled_from([0.01, 0.1, 0.5, 1.0]), "density")
    delays = data.draw(st.lists(st.sampled_from([0.0, 0.01, 0.3]), min_size=n, max_size=n))
    cuts = data.draw(st.lists(st.none() | st.integers(1, 3000), min_size=2 * n, max_size=2 * n))
    down = data.draw(st.sampled_from(["dense", f"artopk:{density}"]))

    async def work(server, i, total):
        up, low = (Link(delays[i], cut_after=cut) for cut in cuts[2 * i : 2 * i + 2])
        ps = server.worker(f"w{i}", up=up, down=low, connect_timeout_s=60.0)
        async with ps:
            await ps.init()
            for turn in range(6):
                # Whole numbers, so that float32 loses nothing.
                update = np.rint(4 * drawn(i, turn)).astype(np.float32)
                total += update
                model = (await ps.sync({"w": update}))["w"]
            return model, left(ps)

    async def main():
        # A sum: each push counts for itself, in whole numbers.
        spec = {"codec": f"artopk:{density}", "down": down, "server_lr": float(n)}
        async with Cluster(
            params={"w": np.zeros(N, np.float32)}, min_workers=n, **{**SPEC, **spec}
        ) as server:
            totals = [np.zeros(N, np.float32) for _ in range(n)]
            ends = await asyncio.gather(*[work(server, i, totals[i]) for i in range(n)])
            rests = sum(rest for _, rest in ends)
            merged = server.server.params()["w"]
            np.testing.assert_allclose(merged + rests, sum(totals), atol=1e-3)
            if n in (1, 2, 4):
                np.testing.assert_array_equal(merged + rests, sum(totals))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


async def test_a_late_joiner_gets_the_open_rounds_choice_and_the_round_waits_for_it():
    async with house(min_workers=2) as server, members(server, 2) as (a, b):
        for turn in range(2):
            await asyncio.gather(*[ps.sync({"w": drawn(turn, i)}) for i, ps in enumerate((a, b))])
        first = a.sync({"w": drawn(2, 0)})
        await asyncio.sleep(1)
        assert count(server, "choices") == 3
        async with server.worker("late") as late:
            await late.init()
            asked = late.sync({"w": drawn(2, 2)})
            await asyncio.sleep(1)
            second = b.sync({"w": drawn(2, 1)})
            models = [(await ticket)["w"] for ticket in (first, second, asked)]
            for model in models:
                np.testing.assert_array_equal(model, models[0])
            assert (server.server.version, count(server, "pushes_merged")) == (3, 7)


async def test_momentum_and_two_ways_go_together():
    async with (
        house(min_workers=2, down=f"artopk:{DENSITY}", optimizer="momentum:0.1,0.9") as server,
        members(server, 2) as workers,
    ):
        for turn in range(6):
            tickets = [ps.sync({"w": drawn(turn, i)}) for i, ps in enumerate(workers)]
            for ticket in tickets:
                np.testing.assert_array_equal((await ticket)["w"], server.server.params()["w"])
                assert ticket.bytes == CODES + 8 * K


async def test_a_median_of_values_at_the_same_positions_is_one():
    async with (
        house(min_workers=3, aggregation="median") as server,
        members(server, 3) as workers,
    ):
        updates = [np.zeros(N, np.float32) for _ in range(3)]
        for update, size in zip(updates, (1.0, 2.0, 900.0), strict=True):
            update[5] = size
        await asyncio.gather(*[ps.sync({"w": u}) for ps, u in zip(workers, updates, strict=True)])
        assert server.server.params()["w"][5] - START[5] == np.float32(START[5] + 2) - START[5]


@pytest.mark.parametrize("n", [200, 300_000], ids=["on the loop", "in threads"])
@pytest.mark.parametrize("training", [blocking, overlapped])
async def test_training_loops_end_with_one_model(monkeypatch, training, n):
    monkeypatch.setattr("aiops.server.choosing.INLINE_BYTES", n // 100)
    start = np.zeros(n, np.float32)
    work = "fixed:2" if training is blocking else "until_model"
    async with Cluster(
        params={"w": start},
        rounds=6,
        min_workers=2,
        codec="artopk:0.05",
        down="artopk:0.05",
        work=work,
    ) as server:

        async def train(i):
            target = np.random.default_rng(i).standard_normal(n).astype(np.float32)

            async def step(x):
                await asyncio.sleep(0.05 * (i + 1))
                x += np.float32(0.1) * (target - x)

            links = {"up": Link(0.02), "down": Link(0.02)}
            async with server.worker(f"w{i}", **links) as ps:
                await ps.init()
                x = np.zeros(n, np.float32)
                return (await training(ps, x, step)).copy()

        ends = await asyncio.gather(train(0), train(1))
        for end in ends:
            np.testing.assert_array_equal(end, server.server.params()["w"])
        assert ends[0].any()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_leader_that_dies_before_or_after_its_choice_holds_nobody_up(when):
    async with house(min_workers=3, **LEASE) as server, members(server, 2) as (a, b):
        far = {"up": Link(0.5), "down": Link(0.5)}
        async with server.worker("ghost", give_up_s=0.01, **far) as ghost:
            await ghost.init()
            for turn in range(2):
                updates = [(ps, drawn(turn, i)) for i, ps in enumerate((a, b, ghost))]
                await asyncio.gather(*[ps.sync({"w": update}) for ps, update in updates])
            # Worker 2 leads the third round. It is gone before its choice is there, or before its values are.
            dying = ghost.sync({"w": drawn(2, 2)})
            others = [ps.sync({"w": drawn(2, i)}) for i, ps in enumerate((a, b))]
            await asyncio.sleep(0.2 if when == "before" else 0.7)
            assert count(server, "choices") == (2 if when == "before" else 3)
            began = asyncio.get_running_loop().time()
            server.connections["ghost"][-1].abort()
            await asyncio.sleep(0.6)
            # Another one leads at once; that worker's push is waited for as any one's is, until its lease ends.
            assert count(server, "choices") == 3
            await asyncio.gather(*others)
            assert asyncio.get_running_loop().time() - began < 1.2 * LEASE["lease_s"]
            assert (server.server.version, count(server, "pushes_merged")) == (3, 8)
            with pytest.raises(ConnectFailed, match="no connection for"):
                await dying
