"""Whatever interrupts the end of a server or a worker, its threads end with it and nothing of it goes on."""

import asyncio
import contextlib
import threading

import numpy as np
import pytest

from aiops import connect, serve

# Two buckets that go through lanes.
START = {"w": np.zeros(1_200_000, np.float32)}
ONES = {"w": np.ones(1_200_000, np.float32)}


def lanes(of):
    """The threads of a server's shards or of a worker that are alive."""
    return [t for t in threading.enumerate() if t.name.startswith(f"aiops {of} ")]


async def interrupted(ending, cancels):
    """End something, and be impatient: cancel it so many times, each when it has waited for a moment."""
    task = asyncio.ensure_future(ending)
    for _ in range(cancels):
        for _ in range(2):
            await asyncio.sleep(0)
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await task
    return task


@pytest.mark.parametrize("cancels", range(4))
@pytest.mark.parametrize("shared_memory", [True, False], ids=["shm", "tcp"])
async def test_a_server_whose_end_is_cancelled_ends_all_the_same(cancels, shared_memory):
    server = await serve(params=START, shards=2, shared_memory=shared_memory).__aenter__()
    async with connect(server.url, give_up_s=0.1) as ps:
        await ps.init()
        await ps.sync(ONES)
        assert lanes("shard")
        task = await interrupted(server.stop(), cancels)
        assert task.cancelled() == bool(cancels)
        assert server._main.done()
        assert not lanes("shard")
        assert server.service.pool.outstanding == 0


@pytest.mark.parametrize("cancels", range(4))
@pytest.mark.parametrize("shared_memory", [True, False], ids=["shm", "tcp"])
async def test_a_worker_whose_end_is_cancelled_ends_all_the_same(cancels, shared_memory):
    async with serve(params=START) as server:
        ps = await connect(server.url, shared_memory=shared_memory).__aenter__()
        await ps.init()
        await ps.sync(ONES)
        assert lanes("worker")
        task = await interrupted(ps.leave(), cancels)
        assert task.cancelled() == bool(cancels)
        assert ps._keeper.done()
        assert ps._pushing.done()
        assert not lanes("worker")


@pytest.mark.parametrize("cancels", range(4))
async def test_a_worker_that_cannot_use_the_servers_codec_ends_whatever_interrupts_it(cancels):
    def none(name):
        raise ZeroDivisionError(name)

    async with serve(params=START) as server:
        client = connect(server.url)
        client._make_codec = none
        task = asyncio.ensure_future(client.__aenter__())
        while "joined" not in server.service.counters:  # noqa: ASYNC110 -- it tells nobody
            await asyncio.sleep(0.001)
        with contextlib.suppress(ZeroDivisionError):
            await interrupted(task, cancels)
        assert client._keeper.done()
