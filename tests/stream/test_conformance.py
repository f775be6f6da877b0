"""What every source does, whatever is behind it."""

import asyncio

import pytest

from aiops.errors import ConfigError
from aiops.stream import kafka, redis
from aiops.stream.buffer import Persistence
from aiops.stream.decode import Samples
from aiops.stream.dedup import Dedup
from aiops.stream.intake import Intake
from tests.stream.kit import read, read_for, values


def texts(*numbers):
    return [b"%d" % number for number in numbers]


async def test_records_come_in_order_with_key_value_and_time(stream):
    source = await stream.open()
    await stream.publish(texts(7, 8, 9))
    records = await read(source, 3)
    assert values(records) == texts(7, 8, 9)
    assert [record.key for record in records] == [b"key"] * 3
    assert [record.time_s for record in records] == [0.0, 1.0, 2.0]
    assert len({record.cursor for record in records}) == 3
    assert not any(record.fault for record in records)


async def test_records_published_while_a_reader_waits_wake_it(stream):
    source = await stream.open()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read(source, 2))
        await asyncio.sleep(0.05)
        await stream.publish(texts(1))
        await asyncio.sleep(0)
        await stream.publish(texts(2))
    assert values(reading.result()) == texts(1, 2)


async def test_a_restart_goes_on_after_what_was_acknowledged(stream):
    await stream.publish(texts(*range(10)))
    source = await stream.open()
    records = await read(source, 10)
    await source.ack(records[3].cursor)
    assert source.cursor == records[3].cursor
    await stream.kill(source)
    again = await stream.open()
    assert values(await read(again, 6)) == texts(*range(4, 10))


async def test_a_killed_worker_goes_on_from_its_checkpoint_and_loses_nothing(stream):
    await stream.publish(texts(*range(600)))
    source = await stream.open()
    dedup = Dedup()
    trained = []
    for record in await read(source, 400):
        assert dedup.is_new(record)
        trained.append(record)
    checkpoint = trained[249].cursor
    # Acknowledged too early, after the checkpoint: the cursor still brings it back.
    await source.ack(trained[299].cursor)
    await stream.kill(source)
    await stream.publish(texts(*range(600, 700)))

    again = await stream.open(checkpoint)
    records = await read(again, 450)
    assert values(records) == texts(*range(250, 700))
    assert [dedup.is_new(record) for record in records] == [False] * 150 + [True] * 300
    assert dedup.duplicates == 150
    await again.ack(records[-1].cursor)
    await stream.kill(again)
    last = await stream.open()
    assert (await last.backlog()).n_records == 0


async def test_a_restart_without_acknowledgement_brings_everything_again(stream):
    await stream.publish(texts(*range(5)))
    source = await stream.open()
    first = await read(source, 5)
    await stream.kill(source)
    second = await read(await stream.open(), 5)
    assert first == second


async def test_a_closed_source_has_told_what_was_acknowledged(stream):
    await stream.publish(texts(*range(5)))
    source = await stream.open()
    records = await read(source, 5)
    await source.ack(records[1].cursor)
    await source.aclose()
    assert values(await read(await stream.open(), 3)) == texts(2, 3, 4)


async def test_a_paused_source_hands_out_nothing_until_it_is_resumed(stream):
    source = await stream.open()
    await stream.publish(texts(*range(4)))
    await read(source, 1)
    source.pause()
    source.pause()
    assert await read_for(source, 0.2) == []
    await stream.publish(texts(4))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read(source, 4))
        await asyncio.sleep(0.05)
        assert not reading.done()
        source.resume()
    assert values(reading.result()) == texts(*range(1, 5))


async def test_the_backlog_counts_what_was_not_handed_out(stream):
    source = await stream.open()
    assert (await source.backlog()).n_records == 0
    await stream.publish([b"x" * 100] * 30)
    records = await read(source, 10)
    backlog = await source.backlog()
    assert (backlog.n_records, backlog.n_bytes) == (20, 2000)
    await source.ack(records[-1].cursor)
    assert (await source.backlog()).n_records == 20


async def test_a_cancelled_wait_loses_nothing(stream):
    source = await stream.open()
    seen = []
    for number in range(20):
        # Cancelled at another moment each time, in the middle of a reply too.
        seen += await read_for(source, 0.0005 * number)
        await stream.publish(texts(2 * number, 2 * number + 1))
    seen += await read(source, 40 - len(seen))
    assert sorted(values(seen), key=int) == texts(*range(40))


async def test_the_rate_is_that_of_the_stream_and_not_of_its_reader(stream, monkeypatch):
    monkeypatch.setattr(redis, "LOOK_S", 0.1)
    monkeypatch.setattr(kafka, "LOOK_S", 0.1)
    source = await stream.open()
    source.rate()
    began = asyncio.get_running_loop().time()
    await stream.publish(texts(*range(200)))
    await read(source, 1)
    source.pause()
    # A look waits for its turn: Kafka's broker answers a connection in order, after a fetch that may take 0.5 s.
    while source.rate() == 0:
        assert await read_for(source, 0.3) == []
    measured = source.rate()
    elapsed = asyncio.get_running_loop().time() - began
    # 200 arrived some time between the first look and the last; one was read.
    assert 200 / elapsed * 0.5 <= measured <= 200 / 0.1


async def test_closing_ends_a_reader_that_waits_and_may_be_repeated(stream):
    source = await stream.open()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(anext(source, None))
        await asyncio.sleep(0.05)
        await source.aclose()
    assert reading.result() is None
    await source.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(source)


async def test_only_what_was_handed_out_can_be_acknowledged(stream):
    await stream.publish(texts(*range(5)))
    source = await stream.open()
    records = await read(source, 5)
    await source.ack(records[1].cursor)
    await stream.kill(source)
    again = await stream.open()
    with pytest.raises(ConfigError, match="was not handed out"):
        await again.ack(records[4].cursor)
    with pytest.raises(ConfigError, match="'yesterday' is none of"):
        await again.ack("yesterday")


async def test_an_older_acknowledgement_changes_nothing(stream):
    await stream.publish(texts(*range(5)))
    source = await stream.open()
    records = await read(source, 5)
    await source.ack(records[3].cursor)
    await source.ack(records[1].cursor)
    assert source.cursor == records[3].cursor
    await stream.kill(source)
    assert values(await read(await stream.open(), 1)) == texts(4)


async def test_what_is_no_cursor_is_refused_at_once(stream):
    with pytest.raises(ConfigError, match="cursor 'yesterday' is none of"):
        await stream.open("yesterday")


async def test_a_stream_that_stops_and_goes_on(stream):
    source = await stream.open()
    intake = Intake(Samples(source, int), Persistence(10_000))
    async with asyncio.TaskGroup() as group:
        group.create_task(intake.run())
        await stream.publish(texts(1, 2))
        assert len(await intake.take(2)) == 2
        assert await intake.take(2, within_s=0.05) == []
        await stream.publish(texts(3, 4))
        assert [sample.value for sample in await intake.take(2)] == [3, 4]
        await source.aclose()


async def test_a_flood_is_held_back_and_comes_whole(stream):
    source = await stream.open()
    buffer = Persistence(5000)
    intake = Intake(Samples(source, int), buffer)
    seen = []
    async with asyncio.TaskGroup() as group:
        group.create_task(intake.run())
        # 20 records a turn of 20 are what the trainer takes; then a hundred times as many come in one.
        for turn in range(3):
            await stream.publish(texts(*range(20 * turn, 20 * turn + 20)))
            seen += await intake.take(20)
        await stream.publish([b"%d" % number for number in range(60, 2060)])
        while len(seen) < 2060:
            batch = await intake.take(20)
            seen += batch
            await intake.ack(batch[-1].record.cursor)
        assert (await source.backlog()).n_records == 0
        await source.aclose()
    assert [sample.value for sample in seen] == list(range(2060))
    # At most the limit and one sample of 4 bytes.
    assert buffer.most_bytes <= 5004


async def test_malformed_records_are_kept_out_and_done_with_the_rest(stream):
    source = await stream.open()
    found = Samples(source, int)
    await stream.publish([b"1", b"one", b"2", b"two", b"\xff"])
    await stream.publish(texts(3))
    samples = await read(found, 3)
    assert [sample.value for sample in samples] == [1, 2, 3]
    assert (found.good, found.bad) == (3, 3)
    await found.ack(samples[-1].record.cursor)
    await stream.kill(source)
    assert (await (await stream.open()).backlog()).n_records == 0
