"""Workers driven by hand, and threads that wait for the test."""

import itertools

import pytest

from aiops.wire.frame import Kind
from tests.server.kit import Hand, Threads


@pytest.fixture
def hand():
    """Connect to a cluster by hand: ``await hand(cluster, "name")`` has said hello, without a name not yet."""
    names = itertools.count()

    async def connect(cluster, identity=None, incarnation=1, *, greet=True, up=None, down=None):
        made = Hand()
        made.connection = await cluster._network.connect(
            "server",
            lambda: made,
            max_frame_bytes=1 << 30,
            idle_timeout_s=15.0,
            up=up,
            down=down,
        )
        if greet:
            event = await made.hello(identity or f"hand{next(names)}", incarnation)
            assert event.kind is Kind.WELCOME
            made.worker = event.body.worker
        return made

    return connect


@pytest.fixture(autouse=True)
def a_megabyte_goes_to_a_thread(monkeypatch):
    """Bulk is small here, so that tests of threads stay quick."""
    for room in ("merger", "merging"):
        monkeypatch.setattr(f"aiops.server.{room}.INLINE_BYTES", 1 << 20)


@pytest.fixture
def threads(monkeypatch):
    """What goes to a shard's thread waits until the test says so."""
    return Threads(monkeypatch)


@pytest.fixture
def small_chunks(monkeypatch):
    """Drafts of buckets of a kilobyte, chunk by chunk of 256 bytes: the same paths as with megabytes."""
    for room in ("draft", "arrival", "shard", "ruled_job"):
        monkeypatch.setattr(f"aiops.server.{room}.CHUNK_BYTES", 256)
    monkeypatch.setattr("aiops.server.arrival.DRAFTED_BYTES", 1024)
