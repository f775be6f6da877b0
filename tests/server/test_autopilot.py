"""An automatic server: what it measures, and improvements that come and go while workers train."""

import asyncio
import math

import numpy as np
import pytest

import aiops
from aiops.codec.topk_coded import topk_int8
from aiops.policy.base import Change, Choice
from aiops.server.autopilot import mean_cosine
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.types import TensorSpec
from tests.server.kit import count

pytestmark = pytest.mark.virtual

N = 6000
BUCKETS = [3008, 2992]
START = np.linspace(-1, 1, N, dtype=np.float32)
PLAIN, TOPK, DRIFT = Choice.PLAIN, Choice.TOPK, Choice.DRIFT
SPEC = {"auto": True, "weights": "uniform", "lease_s": 1e4, "heartbeat_s": 1e3}


class Script:
    """Decides what is written down, by version."""

    measuring = range(0)

    def __init__(self, **choices):
        self.choices = {int(name[1:]): choice for name, choice in choices.items()}

    def decide(self, seen):
        choice = self.choices.get(seen.version)
        return choice and Change(choice, f"it is {choice.value}")

    def agreement(self, cosines, losses):
        return None

    def dense_s(self, before_s, settled_s, now_s, *, share):
        return now_s

    def corrected(self, weights):
        return aiops.by_steps(weights)


def scripted(house, **choices):
    house.server.service.autopilot._policy = Script(**choices)


def updates(n, *, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(N).astype(np.float32) for _ in range(n)]


async def close_round(house, workers, given):
    """Sync one update of each worker; return the bytes that each moved, once all have the server's model."""
    tickets = [ps.sync({"w": u}) for ps, u in zip(workers, given, strict=True)]
    for ticket in tickets:
        np.testing.assert_array_equal((await ticket)["w"], house.server.params()["w"])
    return {ticket.bytes for ticket in tickets}


def house(**spec):
    return Cluster(params={"w": START}, **{**SPEC, **spec})


def test_the_mean_cosine_is_over_pairs_and_a_missing_bucket_is_zeros():
    a, b, c = ({0: np.array(v, np.float32)} for v in ([3.0, 0.0], [0.0, 2.0], [1.0, 1.0]))
    assert mean_cosine([a, b, c]) == pytest.approx((0 + 2 * math.sqrt(0.5)) / 3)
    assert mean_cosine([a, {0: a[0], 1: np.array([3.0], np.float32)}]) == pytest.approx(
        math.sqrt(0.5)
    )
    assert mean_cosine([a, {0: np.zeros(2, np.float32)}]) is None


async def test_the_model_goes_in_a_sixteenth_of_it_but_not_in_less_than_16_kib():
    async with house() as server:
        table = server.server.service.store.table
        assert [bucket.size for bucket in table.buckets] == BUCKETS
    async with Cluster(params={"w": np.zeros(160_000, np.float32)}, **SPEC) as server:
        assert len(server.server.service.store.table.buckets) == 16
    async with house(stream_bytes=4000) as server:
        assert len(server.server.service.store.table.buckets) == 6


async def test_topk_comes_and_goes_between_rounds_and_nothing_is_lost():
    async with house(min_workers=2) as server, server.worker("a") as a, server.worker("b") as b:
        scripted(server, v2=TOPK, v6=PLAIN, v9=TOPK, v12=PLAIN)
        await a.init()
        await b.init()
        whole = 4 * N
        ways = (topk_int8(0.05), topk_int8(0.1))
        sparse = sum(way.payload_bytes(size) for way in ways for size in BUCKETS)
        moved, total = [], START.astype(np.float64)
        for _ in range(16):
            given = updates(2, seed=len(moved))
            total += (given[0].astype(np.float64) + given[1]) / 2
            moved.append(await close_round(server, [a, b], given))
        assert moved[:3] == [{2 * whole}] * 3
        # Decided at version 2, told with version 3, and from then on only what has changed travels, both ways.
        assert moved[3:7] == [{sparse}] * 4
        # The round after version 7 is whole again, and takes what was left over at both ends.
        assert moved[7:10] == [{2 * whole}] * 3
        assert moved[10:13] == [{sparse}] * 3
        assert moved[13:] == [{2 * whole}] * 3
        np.testing.assert_allclose(server.server.params()["w"], total, atol=2e-5)
        assert (count(server, "auto_topk"), count(server, "auto_plain")) == (2, 2)
        assert not a.residuals()


@pytest.mark.parametrize("version", range(1, 9))
async def test_a_worker_that_is_cut_while_the_policy_changes_has_the_servers_model(version):
    async with house(min_workers=2) as server, server.worker("a") as a, server.worker("b") as b:
        scripted(server, v2=TOPK, v5=PLAIN)
        await a.init()
        await b.init()
        for turn in range(1, 11):
            given = updates(2, seed=turn)
            tickets = [ps.sync({"w": u}) for ps, u in zip((a, b), given, strict=True)]
            if turn == version:
                a._link.cut()
            for ticket in tickets:
                np.testing.assert_array_equal((await ticket)["w"], server.server.params()["w"])
        assert server.server.version == 10
        assert a.connections == 2


async def test_a_late_joiner_is_told_what_is_on():
    async with house(min_workers=2) as server, server.worker("a") as a, server.worker("b") as b:
        scripted(server, v1=TOPK)
        await a.init()
        await b.init()
        for turn in range(3):
            await close_round(server, [a, b], updates(2, seed=turn))
        async with server.worker("c") as c:
            assert (c.policy.codec, c.policy.down) == ("topk_int8:0.05", "topk_int8:0.1")
            await c.init()
            for turn in range(3):
                await close_round(server, [c, a, b], updates(3, seed=turn))


async def train(ps, target, rounds, *, lr=0.1, up=None, slow=None):
    """Descend a quadratic about ``target``, overlapped; return the newest model that came in."""

    def fill(_, flat):
        flat[:] = START

    snapshot = await ps.init_flat([TensorSpec("w", (N,), "float32")], fill)

    async def step(x):
        await asyncio.sleep(0.01)
        loss = float(np.mean((x - target) ** 2))
        x -= np.float32(lr) * (x - target)
        return aiops.Step(n_samples=1, loss=loss)

    return await aiops.overlapped(ps, snapshot.flat, step, stop=lambda: ps.version >= rounds)


def links(count_, rate):
    return [tuple(Link(delay_s=0.005, rate_bytes_s=rate) for _ in "ud") for _ in range(count_)]


async def run(server, lines, targets, until, *, watch):
    """Train one worker per target until the server is at version ``until``; ``watch(version)`` hears of each."""
    async with asyncio.TaskGroup() as group:

        async def work(number):
            up, down = lines[number]
            async with server.worker(f"w{number}", up=up, down=down) as ps:
                return await train(ps, targets[number], until)

        tasks = [group.create_task(work(number)) for number in range(len(targets))]
        version = 0
        while version < until:
            version = await server.server.version_after(version)
            watch(version)
    return [task.result() for task in tasks]


def alike(n):
    rng = np.random.default_rng(3)
    middle = rng.standard_normal(N).astype(np.float32)
    return [middle + np.float32(0.1) * rng.standard_normal(N).astype(np.float32) for _ in range(n)]


# 24 kB take 2.4 ms on the fast link, and 0.48 s on the slow one: 2 and about 50 local steps for a sync.
FAST, SLOW = 10e6, 50e3


async def test_topk_comes_on_where_links_become_slow_and_goes_where_they_are_fast_again(caplog):
    targets = alike(3)
    lines = links(3, FAST)
    on = {}

    async with house(min_workers=3) as server:
        autopilot = server.server.service.autopilot

        def watch(version):
            on[version] = autopilot.choice
            for line in (way for lines_ in lines for way in lines_):
                if version == 30:
                    line.rate_bytes_s = SLOW
                elif version == 70:
                    line.rate_bytes_s = FAST

        await run(server, lines, targets, 200, watch=watch)
        report = server.server.status()["auto"]
        error = np.abs(server.server.params()["w"] - np.mean(targets, axis=0)).mean()
        turned = {v: on[v] for v in range(2, 201) if v - 1 in on and on[v] is not on[v - 1]}
    assert list(turned.values()) == [TOPK, PLAIN]
    slow, fast = turned
    assert 30 < slow <= 35
    assert 70 < fast <= 85
    assert report["on"] == "plain"
    assert report["reason"].startswith("Top-k is off: a sync takes")
    assert report["cosine"] > 0.4
    # The middle of what the workers want is what they all have, as without any of this.
    assert error < 0.02
    said = [r.getMessage() for r in caplog.records if r.name == "aiops.server" and r.levelno >= 30]
    assert len(said) == 2
    assert said[0].startswith(f"from version {slow} on, Top-k both ways is on: a sync takes")


async def test_a_link_that_flutters_changes_ever_less():
    targets = alike(2)
    lines = links(2, FAST)
    async with house(min_workers=2) as server:

        def watch(version):
            for line in (way for lines_ in lines for way in lines_):
                line.rate_bytes_s = SLOW if version // 12 % 2 else FAST

        await run(server, lines, targets, 240, watch=watch)
        changes = count(server, "auto_topk") + count(server, "auto_plain")
    # Twenty times in all the link changed. The changes stand for 10, 10, 20, 40 and 80 rounds.
    assert 2 <= changes <= 6


async def test_drift_correction_comes_on_where_pushes_differ_and_training_goes_on():
    rng = np.random.default_rng(5)
    targets = [np.float32(3) * rng.standard_normal(N).astype(np.float32) for _ in range(4)]
    middle = np.mean(targets, axis=0)
    # A common part that is far away, so that the loss falls, would make them agree: each wants something else here.
    lines = links(4, 400e3)
    choices = []
    async with house(min_workers=4) as server:
        models = await run(
            server, lines, targets, 60,
            watch=lambda _: choices.append(server.server.service.autopilot.choice),
        )  # fmt: skip
        params = server.server.params()["w"]
        report = server.server.status()["auto"]
    assert choices.count(PLAIN) in (11, 12)
    assert choices[-1] is DRIFT
    assert report["cosine"] < 0.11
    assert np.abs(params - middle).mean() < 0.05 * np.abs(START - middle).mean()
    assert len(models) == 4


async def test_lines_that_break_around_the_changes_leave_everybody_with_the_model():
    targets, lines, versions = alike(3), links(3, FAST), []
    async with house(min_workers=3) as server:

        def watch(version):
            versions.append(server.server.params()["w"])
            for line in (way for both in lines for way in both):
                if version in (20, 50):
                    line.rate_bytes_s = SLOW if version == 20 else FAST
            if version in (21, 22, 23, 24, 26, 51, *range(56, 66)):
                server.connections[f"w{version % 3}"][-1].abort()

        models = await run(server, lines, targets, 120, watch=watch)
        counters = server.server.status()["counters"]
    assert counters["auto_topk"] == 1
    assert counters["chunks_ahead"] > 50
    assert sum(map(len, server.connections.values())) == 3 + 16
    # Whatever a worker got, in whole or as changes to what it held, is a version that the server had, bit for bit.
    assert len(versions) == 120
    for model in models:
        assert any(np.array_equal(model, version) for version in versions[-4:])
    error = np.abs(versions[-1] - np.mean(targets, axis=0)).mean()
    assert error < 0.2 * np.abs(START - np.mean(targets, axis=0)).mean()
