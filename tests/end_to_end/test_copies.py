"""How often a bulk byte is copied in user space: on its way up once where it is stored and never where it is merged
as it comes, on its way down never. What the kernel copies is not counted here."""

import asyncio
import importlib
import tracemalloc

import numpy as np
import pytest

from aiops import connect, kernels, serve

VALUES = 8 * 1024 * 1024
MODEL_BYTES = 4 * VALUES
# What a round may allocate for itself: control messages and a chunk's views, nothing that grows with the model.
SMALL_BYTES = 1024 * 1024


@pytest.fixture
def moved(monkeypatch):
    """The memory of every bulk move, as (send or receive, address of its first byte)."""
    seen = []

    def watch(kind, place, name):
        make = getattr(importlib.import_module(place), name)

        class Watched(make):
            def __init__(self, way, memory, *rest, **options):
                seen.append((kind, address(memory if kind == "send" else memory.room())))
                super().__init__(way, memory, *rest, **options)

        monkeypatch.setattr(f"{place}.{name}", Watched)

    watch("send", "aiops.transport.connection", "Send")
    watch("receive", "aiops.transport.connection", "Receive")
    watch("send", "aiops.transport.shm", "Fill")
    watch("receive", "aiops.transport.shm", "Drain")
    return seen


def address(memory):
    return np.frombuffer(memory, np.uint8).__array_interface__["data"][0]


def within(place, array):
    start = array.__array_interface__["data"][0]
    return start <= place < start + array.nbytes


@pytest.mark.parametrize("shared_memory", [False, True])
async def test_a_lent_update_is_sent_from_its_own_memory_and_the_model_lands_in_the_callers(
    moved, shared_memory
):
    async with (
        serve(params={"w": np.zeros(VALUES, np.float32)}, shared_memory=shared_memory) as server,
        connect(server.url) as ps,
    ):
        params = await ps.init()
        update = ps.empty()
        update["w"].fill(1)
        moved.clear()
        assert await ps.sync(update, copy=False, out=params) is params
        assert (params["w"] == 1).all()
        up, down = (
            [place for kind, place in moved if kind == "send"],
            [place for kind, place in moved if kind == "receive"],
        )
        assert any(within(place, update["w"]) for place in up)
        assert any(within(place, params["w"]) for place in down)
        # The other two are the server's: a chunk where the push passes through, and the snapshot that is lent.
        assert (len(up), len(down)) == (2, 2)
        assert not server.service.pool.outstanding_bytes > MODEL_BYTES + SMALL_BYTES


@pytest.mark.skipif(not kernels.COMPILED, reason="the numpy twins have temporaries")
@pytest.mark.parametrize("n_workers", [1, 2])
async def test_a_round_allocates_nothing_of_the_models_size(n_workers):
    async with serve(params={"w": np.zeros(VALUES, np.float32)}, min_workers=n_workers) as server:
        workers = [connect(server.url) for _ in range(n_workers)]
        async with workers[0], workers[-1] if n_workers > 1 else asyncio.timeout(None):
            models = [await ps.init() for ps in workers]
            updates = [ps.empty() for ps in workers]
            for update in updates:
                update["w"].fill(1)

            async def rounds(count):
                for _ in range(count):
                    await asyncio.gather(
                        *(
                            asyncio.wait_for(ps.sync(update, copy=False, out=model), 60)
                            for ps, update, model in zip(workers, updates, models, strict=True)
                        )
                    )

            # Afterwards the server's two snapshots, and what it stores of pushes, are there to be used again.
            await rounds(3)
            tracemalloc.start()
            try:
                await rounds(1)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < SMALL_BYTES
