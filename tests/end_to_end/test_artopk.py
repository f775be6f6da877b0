"""AR-Topk over real sockets, on both loops: workers come, die in the middle of a round, and are led by others."""

import asyncio
import contextlib

import numpy as np
import pytest

from aiops import connect, serve

SPEC = {
    "codec": "artopk:0.05",
    "down": "artopk:0.05",
    "weights": "uniform",
    "work": "fixed:1",
    "shards": 2,
    "lease_s": 1.0,
    "heartbeat_s": 0.1,
}


def update(n, *seed):
    return {"w": np.rint(4 * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)}


def left(ps):
    return np.concatenate([ps.residuals()[key] for key in sorted(ps.residuals())])


async def choices(server, n):
    while server.status()["counters"].get("choices", 0) < n:  # noqa: ASYNC110 -- it tells nobody
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("n", "victim", "shared_memory"),
    [
        *[pytest.param(3000, i, False, id=f"small, worker {i} dies") for i in range(3)],
        # These go through threads and lanes, in buckets of several segments.
        pytest.param(1_200_000, 1, False, id="large, the leader dies"),
        pytest.param(1_200_000, 0, True, id="large and in shared memory"),
    ],
)
async def test_a_worker_that_dies_in_mid_round_holds_the_others_up_no_longer_than_its_lease(
    n, victim, shared_memory
):
    async with contextlib.AsyncExitStack() as stack:
        start = {"w": np.zeros(n, np.float32)}
        options = {"shared_memory": shared_memory}
        server = await stack.enter_async_context(
            serve(params=start, min_workers=3, bucket_bytes=2 << 20, **SPEC, **options)
        )
        workers = []
        for i in range(3):
            ps = connect(
                server.url, name=f"w{i}", give_up_s=0.0 if i == victim else 60.0, **options
            )
            workers.append(await stack.enter_async_context(ps))
            await ps.init()
        for turn in range(4):
            tickets = []
            for i, ps in enumerate(workers):
                tickets.append(ps.sync(update(n, turn, i)))
                # Who asks first leads the first round, and from there on it is known whose turn it is.
                await choices(server, turn or 1)
            models = [(await ticket)["w"] for ticket in tickets]
            for model in models:
                np.testing.assert_array_equal(model, models[0])
        # Worker 1 leads the next round: it dies having chosen, another one waiting for what is chosen or for values.
        others = [ps for i, ps in enumerate(workers) if i != victim]
        dying = workers[victim].sync(update(n, 4, victim))
        if victim == 1:
            await choices(server, 5)
        workers[victim]._link._closing.set()
        workers[victim]._link.cut()
        tickets = [ps.sync(update(n, 4, i)) for i, ps in enumerate(workers) if ps in others]
        async with asyncio.timeout(15):
            models = [(await ticket)["w"] for ticket in tickets]
        np.testing.assert_array_equal(models[0], models[1])
        merged = server.status()["counters"]["pushes_merged"]
        assert (server.version, merged) in {(5, 14), (5, 15)}
        assert server.status()["counters"]["choices"] in {5, 6}
        # And on they go, all that is left of them in turn.
        for turn in range(5, 9):
            tickets = [ps.sync(update(n, turn, i)) for i, ps in enumerate(others)]
            models = [(await ticket)["w"] for ticket in tickets]
            np.testing.assert_array_equal(models[0], models[1])
        np.testing.assert_array_equal(models[0], server.params()["w"])
        assert dying.done()


async def test_nothing_is_lost_over_real_lines_of_four_workers():
    n, rounds = 5000, 6
    spec = {**SPEC, "server_lr": 4.0, "min_workers": 4}
    async with serve(params={"w": np.zeros(n, np.float32)}, **spec) as server:

        async def work(i):
            async with connect(server.url, name=f"w{i}") as ps:
                await ps.init()
                for turn in range(rounds):
                    await ps.sync(update(n, turn, i))
                return left(ps)

        rests = await asyncio.gather(*map(work, range(4)))
        total = sum(update(n, turn, i)["w"] for turn in range(rounds) for i in range(4))
        np.testing.assert_array_equal(server.params()["w"] + sum(rests), total)
