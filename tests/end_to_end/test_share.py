"""Samples that workers share over real sockets, on both loops, in messages of several segments."""

import asyncio
import contextlib

import numpy as np
import pytest

from aiops import connect, serve

# Records of 3 MB for each of the others.
N, SHAPE = 3072, (32, 32, 3)


@pytest.mark.parametrize("shared_memory", [False, True])
async def test_large_shares_arrive_as_they_were_given(shared_memory):
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            serve(port=0, injection="random:1,0.5", shared_memory=shared_memory)
        )
        workers = []
        for i in range(2):
            ps = connect(server.url, name=f"w{i}", shared_memory=shared_memory)
            workers.append(await stack.enter_async_context(ps))
        batches = [
            (np.random.default_rng(i).integers(0, 256, (N, *SHAPE), np.uint8), np.arange(N) + N * i)
            for i in range(2)
        ]
        # Until both have asked there is nobody to share with.
        for _ in range(4):
            came = await asyncio.gather(
                *[ps.share(*batch) for ps, batch in zip(workers, batches, strict=True)]
            )
        samples, labels = (np.concatenate(each) for each in zip(*batches, strict=True))
        for i, (x, y) in enumerate(came):
            # N / 2 of its own, and half as many of the other's.
            assert (np.count_nonzero(y // N == i), len(y)) == (N // 2, 3 * N // 4)
            np.testing.assert_array_equal(y[: N // 2], labels[N * i :][: N // 2])
            np.testing.assert_array_equal(x, samples[y])
        assert workers[0].shared.took_bytes == workers[1].shared.gave_bytes > 2_000_000
