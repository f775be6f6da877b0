"""Grounds: every transport on every loop it runs on. A test that asks for ``ground`` runs once on each."""

import asyncio

import pytest

from aiops.sim.virtual import VirtualLoop
from aiops.transport.handover import AVAILABLE
from tests.transport.kit import Ground

try:
    import uvloop
except ImportError:  # not on Windows
    LOOPS = {"asyncio": asyncio.new_event_loop}
else:
    LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

SHARED = ("shm", "shm with lanes") if AVAILABLE else ()
GROUNDS = {
    f"{transport}-{name}": Ground(transport, make_loop)
    for transport in ("tcp", "tcp with lanes", "tls", *SHARED, "memory")
    for name, make_loop in LOOPS.items()
}
GROUNDS["memory-virtual"] = Ground("memory", VirtualLoop)


def pytest_asyncio_loop_factories(config, item):
    # None leaves the choice to the hook of all tests.
    return GROUNDS if "ground" in item.fixturenames else None


@pytest.fixture
def ground(request):
    return next(
        value for value in request.node.callspec.params.values() if isinstance(value, Ground)
    )
