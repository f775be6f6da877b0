"""NBSync's invariants, on a cluster in virtual time."""

import asyncio
import itertools
from contextlib import AsyncExitStack

import numpy as np
import pytest

from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.worker.meter import Meter
from aiops.worker.overlap import Step, overlapped

STEP_S = (1.0, 1.0, 2.3)
UP_S, DOWN_S = 0.75, 0.5


class Lab:
    """Runs NBSync on integers, so that every sum is exact, and keeps what happened."""

    def __init__(self, *, step_s=STEP_S, up_s=UP_S, down_s=DOWN_S, rule=None, rounds=12, **spec):
        self.step_s, self.rule, self.spec = step_s, rule, spec
        self.links = {"up": Link(up_s), "down": Link(down_s)}
        self.rounds = rounds
        n = len(step_s)
        self.steps, self.pushes = [[] for _ in range(n)], [[] for _ in range(n)]
        self.meters, self.flying, self.most_flying = [None] * n, [0] * n, 0
        self.adopted, self.closed = {}, []
        self.left_over = [None] * n

    async def run(self):
        n = len(self.step_s)
        settings = {"min_workers": n, "weights": "uniform", "work": "until_model", **self.spec}
        loop = asyncio.get_running_loop()
        async with Cluster(rounds=self.rounds, **settings) as cluster, AsyncExitStack() as stack:
            self.cluster = cluster
            clients = [cluster.worker(f"w{i}", **self.links) for i in range(n)]
            for ps in clients:
                await stack.enter_async_context(ps)
                await ps.init({"w": np.zeros(3, np.float32)})
            self.t0 = loop.time()
            watching = stack.enter_context(Watching(cluster, self.closed, loop))
            await asyncio.gather(*(self.worker(i, ps) for i, ps in enumerate(clients)))
            del watching
        return self

    async def worker(self, i, ps):
        loop, x = asyncio.get_running_loop(), np.zeros(3, np.float32)
        self.meters[i] = meter = Meter(loop.time())
        rng = np.random.default_rng(i)

        async def step(x):
            await asyncio.sleep(self.step_s[i])
            change = rng.integers(-3, 4, 3).astype(np.float32)
            x += change
            self.steps[i].append(change)
            return Step(n_samples=4)

        push = ps.push_flat

        def spy(update, **options):
            self.pushes[i].append((options["base"], options["n_steps"], update.copy()))
            self.flying[i] += 1
            self.most_flying = max(self.most_flying, self.flying[i])
            ticket = push(update, **options)
            ticket.then(lambda snapshot: self.landed(i, snapshot))
            return ticket

        ps.push_flat = spy
        await overlapped(ps, x, step, rule=self.rule, meter=meter)

    def landed(self, i, snapshot):
        self.flying[i] -= 1
        self.adopted.setdefault(snapshot.version, []).append(snapshot.flat.tobytes())


class Watching:
    """Notes when each version was closed, and how late the pushes in it were."""

    def __init__(self, cluster, closed, loop):
        self.engine, self.closed, self.loop = cluster.server.service.engine, closed, loop

    def __enter__(self):
        handle = type(self.engine).handle

        def spy(engine, event, now):
            actions = handle(engine, event, now)
            for action in actions:
                if type(action).__name__ == "Answer":
                    self.closed.append((action.version, now, action.staleness))
            return actions

        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(type(self.engine), "handle", spy)
        return self

    def __exit__(self, *exception):
        self.patch.undo()


@pytest.mark.virtual
async def test_every_local_step_is_counted_in_exactly_one_push():
    lab = await Lab().run()
    for steps, pushes in zip(lab.steps, lab.pushes, strict=True):
        pushed = sum(n_steps for _, n_steps, _ in pushes)
        assert 0 < pushed < len(steps)
        np.testing.assert_array_equal(
            sum(update for _, _, update in pushes), sum(steps[:pushed], np.zeros(3))
        )


@pytest.mark.virtual
async def test_the_global_model_is_the_mean_of_everything_pushed():
    lab = await Lab(step_s=(1.0, 2.3), rounds=9).run()
    merged = [update for pushes in lab.pushes for _, _, update in pushes[:9]]
    want = sum((0.5 * update for update in merged), np.zeros(3))
    # Halves of small integers are exact.
    final = np.frombuffer(lab.adopted[9][0], np.float32)
    np.testing.assert_array_equal(final, want)


@pytest.mark.virtual
async def test_a_worker_never_has_two_pushes_under_way():
    assert (await Lab().run()).most_flying == 1


@pytest.mark.virtual
async def test_an_applied_update_is_exactly_one_version_old_but_for_the_first():
    lab = await Lab().run()
    assert {version for version, _, _ in lab.closed} == set(range(1, 13))
    for version, _, staleness in lab.closed:
        assert staleness == (0 if version == 1 else 1)


@pytest.mark.virtual
async def test_without_network_time_it_is_one_step_delayed_sgd():
    lab = await Lab(step_s=(1.0, 1.0), up_s=0.0, down_s=0.0, rounds=8).run()
    assert [n for pushes in lab.pushes for _, n, _ in pushes] == [1] * 16
    models = [np.zeros(3, np.float32)]
    for r in range(8):
        step = np.float32(0.5) * lab.steps[0][r] + np.float32(0.5) * lab.steps[1][r]
        models.append(models[-1] + step)
    # The step taken in phase r starts from version r - 1 and lands in version r + 1: steps here do not depend on
    # where they start, so the sum alone shows that none is lost or doubled, and the bases show the delay.
    assert [base for base, _, _ in lab.pushes[0]] == [0, 0, 1, 2, 3, 4, 5, 6]
    assert lab.adopted[8] == [models[8].tobytes()] * 2


@pytest.mark.virtual
async def test_a_round_takes_the_slower_of_computing_and_network_not_their_sum():
    lab = await Lab().run()
    ends = sorted({(version, now) for version, now, _ in lab.closed})
    for (_, start), (_, stop) in itertools.pairwise(ends[1:]):
        assert max(STEP_S[2], UP_S + DOWN_S) - 1e-9 <= stop - start < STEP_S[2] + UP_S + DOWN_S


@pytest.mark.virtual
async def test_nobody_stalls_without_a_largest_number_of_steps():
    lab = await Lab().run()
    for meter in lab.meters:
        assert meter.waits == 0
        assert meter.overlap_ratio == pytest.approx(1.0)
        assert meter.utilisation(meter.started + meter.compute_s) == pytest.approx(1.0)


@pytest.mark.virtual
async def test_all_workers_receive_the_same_bits_in_a_version():
    lab = await Lab().run()
    assert sorted(lab.adopted) == list(range(1, 13))
    for models in lab.adopted.values():
        assert len(models) == 3
        assert len(set(models)) == 1


@pytest.mark.virtual
async def test_a_capped_worker_waits_and_the_wait_is_counted():
    lab = await Lab(step_s=(0.1, 2.0), rounds=6, work="until_model:1,3").run()
    fast, slow = lab.meters
    assert fast.waits >= 5
    assert fast.wait_s > 0
    assert slow.waits == 0
    assert max(n for _, n, _ in lab.pushes[0]) == 3


@pytest.mark.virtual
async def test_a_fast_worker_takes_as_many_steps_as_fit():
    lab = await Lab(step_s=(0.1, 2.0), rounds=6).run()
    assert lab.pushes[0][3][1] == pytest.approx(20, abs=2)
    assert lab.pushes[1][3][1] == 1


@pytest.mark.virtual
async def test_an_error_in_a_step_comes_out_as_itself_and_ends_the_sync_side():
    async with Cluster(work="until_model") as cluster, cluster.worker("w") as ps:
        await ps.init({"w": np.zeros(1, np.float32)})

        async def step(x):
            await asyncio.sleep(1)
            raise FloatingPointError("a bug of the user's")

        with pytest.raises(FloatingPointError, match="a bug of the user's"):
            await overlapped(ps, np.zeros(1, np.float32), step)
        assert len(asyncio.all_tasks()) < 12


@pytest.mark.virtual
async def test_stop_ends_training_at_a_boundary_and_returns_the_newest_model():
    async with Cluster(work="until_model") as cluster, cluster.worker("w") as ps:
        await ps.init({"w": np.zeros(1, np.float32)})
        steps = 0

        async def step(x):
            nonlocal steps
            await asyncio.sleep(1)
            steps += 1
            x += 1

        newest = await overlapped(ps, np.zeros(1, np.float32), step, stop=lambda: steps == 5)
        assert steps == 5
        # What the four pushes before the last boundary made.
        assert newest == 4.0


@pytest.mark.virtual
async def test_an_hour_of_training_takes_no_time():
    loop = asyncio.get_running_loop()
    before = loop.time()
    await Lab(step_s=(1.0, 100.0), up_s=3.0, down_s=3.0, rounds=40).run()
    assert loop.time() - before > 3600
