"""Every async test runs on asyncio and on uvloop, or on virtual time; no test leaves a block behind."""

import asyncio
import gc

import hypothesis
import pytest

import aiops.buffers
from aiops.api.serving import serve
from aiops.sim.virtual import VirtualLoop
from aiops.sync import LoopThread

try:
    import uvloop
except ImportError:  # not on Windows
    uvloop = None

# No test is a timed one; what takes long, the machine may have been busy with others.
hypothesis.settings.register_profile("aiops", deadline=None)
hypothesis.settings.load_profile("aiops")


def pytest_asyncio_loop_factories(config, item):
    if item.get_closest_marker("virtual"):
        return {"virtual": VirtualLoop}
    factories = {"asyncio": asyncio.new_event_loop}
    if uvloop is not None:
        factories["uvloop"] = uvloop.new_event_loop
    return factories


def pytest_collection_finish(session):
    # What was collected stays for good: no garbage collection of a test has to go through all of it.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_block_is_left(monkeypatch):
    pools = []
    make = aiops.buffers.BufferPool.__init__

    def remember(self, **options):
        make(self, **options)
        pools.append(self)

    monkeypatch.setattr(aiops.buffers.BufferPool, "__init__", remember)
    yield
    if any(pool.outstanding for pool in pools):
        # A failing test's traceback, or a cycle, may still hold the one who would release.
        gc.collect()
    assert [pool.outstanding for pool in pools] == [0] * len(pools)


@pytest.fixture
def serving():
    """Start servers in a loop of their own; returns a function that gives a running server."""
    thread = LoopThread("server")
    servers = []

    def start(**spec):
        async def enter():
            return await serve(**spec).__aenter__()

        servers.append(thread.run(enter()))
        return servers[-1]

    yield start
    for server in servers:
        thread.run(server.stop())
    thread.close()
