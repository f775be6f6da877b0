"""Servers and streams for the tests of this room."""

import itertools

import pytest

from tests.stream import servers
from tests.stream.streams import KafkaStream, RedisStream, ReplayedStream

names = itertools.count()


@pytest.fixture(scope="session")
def redis_port():
    if servers.REDIS is None:
        pytest.skip(servers.NO_REDIS)
    pytest.importorskip("redis")
    server = servers.redis_server()
    server.start()
    yield server.port
    server.stop()


@pytest.fixture(scope="session")
def kafka_port():
    if servers.tansu() is None:
        pytest.skip(servers.NO_KAFKA)
    server = servers.kafka_server()
    server.start()
    yield server.port
    server.stop()


@pytest.fixture(params=["replay", "redis", "kafka"])
async def stream(request):
    """One stream of every kind, empty, with a writer and readers."""
    if request.param == "replay":
        made = ReplayedStream()
    elif request.param == "redis":
        made = RedisStream(request.getfixturevalue("redis_port"), f"stream-{next(names)}")
    else:
        made = KafkaStream(request.getfixturevalue("kafka_port"), f"topic-{next(names)}")
    await made.begin()
    yield made
    await made.end()


@pytest.fixture
async def redis_stream(redis_port):
    made = RedisStream(redis_port, f"stream-{next(names)}")
    await made.begin()
    yield made
    await made.end()
