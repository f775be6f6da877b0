"""What only a Kafka-protocol broker shows; the cursors, without one."""

import asyncio
import itertools
import logging
import os
import random
import signal

import pytest

from aiops.errors import ConfigError, ConnectFailed, ConnectionLost
from aiops.stream import kafka, kafka_link
from aiops.stream.kafka import make_cursor, parse_cursor
from aiops.stream.opening import open_source
from tests.stream import servers
from tests.stream.kit import read, values
from tests.stream.streams import KafkaStream


def test_a_cursor_names_the_next_offset_of_every_partition():
    assert make_cursor({1: 5, 0: 17}) == "0:17,1:5"
    assert parse_cursor("0:17,1:5") == {0: 17, 1: 5}
    assert parse_cursor("") == {}


@pytest.mark.parametrize("cursor", ["17", "0:", ":1", "0:1,", "0:-1", "0:x", "1-0"])
def test_what_is_no_cursor_is_refused(cursor):
    with pytest.raises(ConfigError, match=f"cursor '{cursor}' is none of a kafka topic"):
        parse_cursor(cursor)


names = itertools.count()


@pytest.fixture
def own_broker():
    if servers.tansu() is None:
        pytest.skip(servers.NO_KAFKA)
    broker = servers.kafka_server()
    broker.start()
    yield broker
    broker.stop(kill=True)


@pytest.fixture
async def two_partitions(kafka_port):
    made = KafkaStream(kafka_port, f"two-{next(names)}")
    await made.begin(n_partitions=2)
    yield made
    await made.end()


async def fill(stream, count):
    for number in range(count):
        await stream.producer.send_and_wait(stream.topic, b"%d" % number, partition=number % 2)


async def test_all_partitions_are_read_and_each_goes_on_where_it_was(two_partitions):
    await fill(two_partitions, 10)
    source = await two_partitions.open()
    records = await read(source, 10)
    assert sorted(values(records)) == [b"%d" % number for number in range(10)]
    await source.ack(records[5].cursor)
    await two_partitions.kill(source)
    again = await two_partitions.open()
    assert sorted(values(await read(again, 4))) == sorted(values(records[6:]))


async def test_a_worker_may_read_one_partition_alone(two_partitions):
    await fill(two_partitions, 10)
    source = await open_source(two_partitions.url + "&partition=1")
    assert values(await read(source, 5)) == [b"1", b"3", b"5", b"7", b"9"]
    assert (await source.backlog()).n_records == 0
    await source.aclose()


async def test_a_group_may_begin_with_what_comes(two_partitions):
    await fill(two_partitions, 4)
    source = await open_source(two_partitions.url + "&start=next")
    await two_partitions.producer.send_and_wait(two_partitions.topic, b"new", partition=0)
    assert values(await read(source, 1)) == [b"new"]
    await source.aclose()


async def test_what_is_not_there_is_refused(two_partitions):
    url = two_partitions.url
    with pytest.raises(ConfigError, match=r"there is no topic kafka://.*/nothing"):
        await open_source(url.replace(f"/{two_partitions.topic}", "/nothing"))
    with pytest.raises(ConfigError, match="has 2 partitions, there is no 7"):
        await open_source(url + "&partition=7")
    with pytest.raises(
        ConfigError, match=r"cursor '5:1' names partition 5, of .* are read \[0, 1\]"
    ):
        await open_source(url, cursor="5:1")


async def test_a_record_without_a_value_has_a_fault(two_partitions):
    await two_partitions.producer.send_and_wait(two_partitions.topic, None, key=b"k", partition=0)
    (record,) = await read(await two_partitions.open(), 1)
    assert (record.key, record.value, record.fault) == (b"k", b"", "the record has no value")


async def test_a_broker_that_is_not_there_is_named_at_once(caplog):
    pytest.importorskip("aiokafka")
    caplog.set_level(logging.CRITICAL, "aiokafka")
    port = servers.free_port()
    with pytest.raises(ConnectFailed, match=f"cannot reach kafka://127.0.0.1:{port}/t: "):
        await open_source(f"kafka://127.0.0.1:{port}/t?group=g")


# Tansu keeps its records in memory, so it cannot be restarted; that it answers nothing for a while is the same to us.
async def test_a_broker_that_falls_silent_and_comes_back_loses_nothing(own_broker, monkeypatch):
    monkeypatch.setattr(kafka_link, "ANSWER_S", 0.3)
    monkeypatch.setattr(kafka, "LOOK_S", 0.1)
    stream = KafkaStream(own_broker.port, "t")
    await stream.begin()
    await stream.publish([b"0", b"1", b"2"])
    source = await stream.open(rng=random.Random(1))
    first = await read(source, 3)
    await source.ack(first[0].cursor)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read(source, 1))
        os.kill(own_broker.pid, signal.SIGSTOP)
        await asyncio.sleep(0.8)
        # Nobody hears this now; it is told when the broker is back.
        await source.ack(first[1].cursor)
        os.kill(own_broker.pid, signal.SIGCONT)
        await stream.publish([b"3"])
    assert values(reading.result()) == [b"3"]
    assert source.reconnects >= 1
    await stream.kill(source)
    assert values(await read(await stream.open(), 2)) == [b"2", b"3"]
    await stream.end()


async def test_a_broker_that_does_not_come_back_is_named(own_broker, monkeypatch):
    monkeypatch.setattr(kafka_link, "ANSWER_S", 0.3)
    monkeypatch.setattr(kafka, "LOOK_S", 0.1)
    stream = KafkaStream(own_broker.port, "t")
    await stream.begin()
    source = await stream.open(give_up_s=0.3)
    os.kill(own_broker.pid, signal.SIGSTOP)
    with pytest.raises(ConnectionLost, match=r"/t did not come back in time: .*no answer in 0.3 s"):
        await read(source, 1)
    os.kill(own_broker.pid, signal.SIGCONT)
    await stream.end()
