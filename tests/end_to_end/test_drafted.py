"""Large pushes through lanes into drafts, over links that are cut: every round is exact, on real threads."""

import asyncio
import contextlib
import random

import numpy as np
import pytest

from aiops import connect, serve
from aiops.errors import NotFinite

# Two buckets of 2.2 MB, one per shard: each in a lane of its own.
N = 1_100_000
BYTES = 4 * N


def ones(value=1.0):
    return {"w": np.full(N, value, np.float32)}


@contextlib.asynccontextmanager
async def together(chaos, n, **spec):
    """A server and workers that reach it through relays of their own."""
    async with contextlib.AsyncExitStack() as stack:
        start = {"w": np.zeros(N, np.float32)}
        server = await stack.enter_async_context(
            serve(params=start, shards=2, min_workers=n, weights="uniform", **spec)
        )
        relays = [await stack.enter_async_context(chaos(server.url)) for _ in range(n)]
        workers = []
        for number, relay in enumerate(relays):
            ps = connect(relay.url, name=f"w{number}")
            workers.append(await stack.enter_async_context(ps))
            await ps.init()
        yield server, relays, workers


@pytest.mark.timeout(60)
@pytest.mark.parametrize("n", [1, 2, 3])
async def test_rounds_stay_exact_whichever_link_is_cut_wherever(chaos, n):
    rng = random.Random(n)
    async with together(chaos, n) as (server, relays, workers):
        params = [await ps.pull() for ps in workers]
        updates = [ps.empty() for ps in workers]
        for version in range(1, 7):
            if version % 3:
                way = rng.choice(["up", "up", "down"])
                rng.choice(relays).cut_after[way] = rng.randrange(BYTES + 300)
            for update in updates:
                update["w"][...] = version
            tickets = [
                ps.sync(update, copy=False, out=out)
                for ps, update, out in zip(workers, updates, params, strict=True)
            ]
            for ticket, out in zip(tickets, params, strict=True):
                assert await ticket is out
                expected = version * (version + 1) / 2
                np.testing.assert_allclose(out["w"][[0, -1]], expected, rtol=1e-6)
                assert (out["w"] == out["w"][0]).all()
            assert server.version == version
        counters = server.status()["counters"]
        assert counters["pushes_merged"] == 6 * n
        assert counters["buckets_drafted"] >= 2 * 2
        assert server.status()["pool"]["outstanding"] == 2


@pytest.mark.timeout(60)
async def test_pushes_that_are_added_as_they_come_are_exact_whichever_link_is_cut(chaos):
    rng = random.Random(3)
    async with together(chaos, 3, fold="arrival") as (server, relays, workers):
        params = [await ps.pull() for ps in workers]
        for version in range(1, 7):
            if version % 3:
                rng.choice(relays).cut_after["up"] = rng.randrange(BYTES + 300)
            tickets = [
                ps.sync(ones(version), out=out) for ps, out in zip(workers, params, strict=True)
            ]
            for ticket, out in zip(tickets, params, strict=True):
                assert await ticket is out
                expected = version * (version + 1) / 2
                np.testing.assert_allclose(out["w"][[0, -1]], expected, rtol=1e-6)
                assert (out["w"] == out["w"][0]).all()
            assert server.version == version
        counters = server.status()["counters"]
        assert (counters["pushes_merged"], counters["pushes_folded"]) == (18, 18)
        assert counters["buckets_drafted"] == 0
        assert server.status()["pool"]["outstanding"] == 2


@pytest.mark.parametrize("n", [1, 2])
async def test_a_lent_update_with_a_bad_value_anywhere_is_refused_and_the_round_goes_on(chaos, n):
    async with together(chaos, n) as (server, _, workers):
        first, *others = workers
        for version, at in enumerate([0, N // 2 - 1, N // 2 + 200_000, N - 1], 1):
            tickets = [ps.sync(ones()) for ps in others]
            update = first.empty()
            update["w"][...] = 1
            update["w"][at] = np.nan
            with pytest.raises(NotFinite, match=f"'w' .value {at} of {N}"):
                await first.sync(update, copy=False)
            assert server.version == version - 1
            update["w"][at] = 1
            for ticket in [first.sync(update, copy=False), *tickets]:
                assert ((await ticket)["w"] == float(version)).all()
        await asyncio.sleep(0)
        assert server.status()["pool"]["outstanding"] == 2
