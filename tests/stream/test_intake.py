"""A stream, a buffer and a trainer on virtual time: what stops, floods, ends or is malformed leaves training going."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from aiops.errors import BadRecords, ConfigError
from aiops.stream.buffer import Persistence, Truncation
from aiops.stream.decode import Samples
from aiops.stream.intake import Intake
from aiops.stream.replay import replay_samples
from tests.stream.kit import Numbers

pytestmark = pytest.mark.virtual

SIZE = 100


@asynccontextmanager
async def running(source, buffer, **options):
    intake = Intake(Samples(source, int, **options), buffer)
    async with asyncio.TaskGroup() as group:
        group.create_task(intake.run())
        yield intake
        await source.aclose()


def now():
    return asyncio.get_running_loop().time()


def stream(rate, **options):
    return replay_samples(Numbers(10_000, size=SIZE), rate=rate, **options)


def numbers(batch):
    return [sample.value for sample in batch]


async def test_a_batch_comes_when_it_is_complete():
    async with running(stream(10.0), Persistence(10_000)) as intake:
        assert numbers(await intake.take(8)) == list(range(8))
        assert now() == pytest.approx(0.8)


async def test_a_stream_that_stops_keeps_nobody_waiting_and_goes_on_later():
    source = stream(10.0)
    async with running(source, Persistence(10_000)) as intake:
        await intake.take(5)
        source.set_pace(0.0)
        began = now()
        assert await intake.take(5, within_s=1.0) == []
        assert now() == pytest.approx(began + 1.0)
        source.set_pace(10.0)
        assert numbers(await intake.take(5, within_s=1.0)) == [5, 6, 7, 8, 9]


async def test_part_of_a_batch_comes_when_the_time_is_over():
    async with running(stream(10.0), Persistence(10_000)) as intake:
        assert len(await intake.take(64, within_s=1.05)) == 10


async def test_a_flood_waits_at_the_source_and_nothing_is_lost():
    source = stream(10.0)
    buffer = Persistence(50 * SIZE)
    seen = []
    async with running(source, buffer) as intake:
        for step in range(100):
            source.set_pace(1000.0 if 20 <= step < 80 else 10.0)
            seen += numbers(await intake.take(10, within_s=1.0))
            await asyncio.sleep(0.1)
        waiting = await source.backlog()
    assert seen == list(range(len(seen)))
    assert buffer.most_bytes == 50 * SIZE
    assert buffer.dropped == 0
    assert waiting.n_records > 1000


async def test_a_flood_under_truncation_leaves_a_seconds_worth():
    source = stream(10.0, smoothing_s=0.5)
    buffer = Truncation(10_000 * SIZE)
    async with running(source, buffer) as intake:
        await asyncio.sleep(60.0)
        assert len(buffer) == pytest.approx(10, abs=1)
        source.set_pace(1000.0)
        await asyncio.sleep(10.0)
        assert len(buffer) == pytest.approx(1000, rel=0.02)
        source.set_pace(10.0)
        await asyncio.sleep(10.0)
        batch = await intake.take(len(buffer))
        assert len(batch) == pytest.approx(10, abs=1)
        await intake.ack(batch[-1].record.cursor)
    # What was dropped on the way is done too.
    assert int(source.cursor) == pytest.approx(600 + 10_000 + 100, abs=1)
    assert buffer.dropped == int(source.cursor) - len(batch)


async def test_truncation_gives_the_fixed_batch_that_is_larger_than_a_second():
    async with running(stream(10.0), Truncation(10_000)) as intake:
        for _ in range(5):
            assert len(await intake.take(64)) == 64


async def test_a_stream_that_ends_gives_its_rest_and_then_nothing():
    async with running(stream(10.0, count=25), Persistence(10_000)) as intake:
        assert [len(await intake.take(10)) for _ in range(4)] == [10, 10, 5, 0]
        assert intake.ended


async def test_a_batch_larger_than_the_buffer_is_cut_and_not_waited_for():
    async with running(stream(1000.0), Persistence(10 * SIZE)) as intake:
        assert len(await intake.take(64)) == 10


async def test_too_many_bad_records_are_heard_by_the_trainer_after_what_was_good():
    class Worse:
        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return b"", b"%d" % index if index < 20 else b"x"

    source = replay_samples(Worse(), rate=10.0)
    async with running(source, Persistence(10_000), max_bad_share=0.5, window=10) as intake:
        assert len(await intake.take(64)) == 20
        with pytest.raises(BadRecords, match="6 of the last 10 records of replay"):
            await intake.take(64)


async def test_a_reader_with_much_waiting_leaves_the_loop_to_others():
    source = stream(100_000.0)
    await asyncio.sleep(1.0)
    turns = 0
    async with running(source, Persistence(10**9)) as intake:
        while len(intake.buffer) < 100_000:
            turns += 1
            await asyncio.sleep(0)
    assert turns > 1000


async def test_no_batch_is_refused():
    async with running(stream(10.0), Persistence(10_000)) as intake:
        with pytest.raises(ConfigError, match="n_samples is 0, it must be >= 1"):
            await intake.take(0)
