"""The in-process stream, on virtual time: what arrives when, and what does not depend on the reader."""

import asyncio

import numpy as np
import pytest

from aiops.errors import ConfigError
from aiops.stream.replay import replay_samples, replay_stamped
from aiops.stream.tape import Labelled
from tests.stream.kit import Numbers, read, stamped, values

pytestmark = pytest.mark.virtual


def now():
    return asyncio.get_running_loop().time()


async def test_records_arrive_at_their_deadlines():
    source = replay_samples(Numbers(), rate=4.0)
    seen = []
    for _ in range(3):
        record = await anext(source)
        seen.append((record.cursor, record.key, record.value, record.time_s, now()))
    assert seen == [
        ("1", b"0", b"0", 0.25, 0.25),
        ("2", b"1", b"1", 0.5, 0.5),
        ("3", b"2", b"2", 0.75, 0.75),
    ]


async def test_a_reader_that_was_slow_finds_all_that_arrived_at_once():
    source = replay_samples(Numbers(), rate=10.0)
    await asyncio.sleep(5.0)
    records = await read(source, 50)
    assert now() == pytest.approx(5.0)
    assert records[-1].time_s == pytest.approx(5.0)
    await read(source, 1)
    assert now() == pytest.approx(5.1)


async def test_a_million_seconds_do_not_drift():
    source = replay_samples(Numbers(), rate=0.001, count=1000)
    assert len([record async for record in source]) == 1000
    assert now() == pytest.approx(1e6, abs=1e-3)


async def test_samples_come_again_and_again():
    source = replay_samples(Numbers(3), rate=100.0)
    assert values(await read(source, 7)) == [b"0", b"1", b"2", b"0", b"1", b"2", b"0"]


async def test_a_seed_shuffles_every_pass_and_is_the_same_after_a_restart():
    samples = Numbers(50)
    first = values(await read(replay_samples(samples, rate=1e4, seed=3), 100))
    assert (
        sorted(first[:50])
        == sorted(first[50:])
        == sorted(v for _, v in map(samples.__getitem__, range(50)))
    )
    assert first[:50] != first[50:]
    assert first[:50] != values(await read(replay_samples(samples, rate=1e4, seed=4), 50))
    again = replay_samples(samples, rate=1e4, seed=3, cursor="75")
    assert values(await read(again, 25)) == first[75:]


async def test_the_stream_ends_after_its_count():
    source = replay_samples(Numbers(), rate=10.0, count=25)
    assert len([record async for record in source]) == 25
    with pytest.raises(StopAsyncIteration):
        await anext(source)


async def test_the_rate_changes_while_a_reader_waits():
    source = replay_samples(Numbers(), rate=0.0)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read(source, 100))
        await asyncio.sleep(60.0)
        source.set_pace(100.0)
    assert now() == pytest.approx(61.0)
    assert len(reading.result()) == 100


async def test_the_rate_is_that_of_the_stream_and_not_of_its_reader():
    source = replay_samples(Numbers(), rate=64.0)
    await asyncio.sleep(20.0)
    assert source.rate() == pytest.approx(64.0, rel=0.01)
    await read(source, 10)
    source.set_pace(0.0)
    await asyncio.sleep(60.0)
    assert source.rate() < 0.01
    source.set_pace(6400.0)
    await asyncio.sleep(60.0)
    assert source.rate() == pytest.approx(6400.0, rel=0.01)


async def test_the_smoothing_of_the_rate_can_be_said():
    slow, quick = (replay_samples(Numbers(), rate=10.0, smoothing_s=s) for s in (60.0, 1.0))
    for source in (slow, quick):
        source.rate()
    await asyncio.sleep(60.0)
    for source in (slow, quick):
        source.set_pace(100.0)
    await asyncio.sleep(5.0)
    assert slow.rate() < 30.0
    assert quick.rate() > 90.0


async def test_the_backlog_counts_what_waits():
    source = replay_samples(Numbers(size=100), rate=10.0, count=35)
    await asyncio.sleep(2.0)
    backlog = await source.backlog()
    assert (backlog.n_records, backlog.n_bytes) == (20, 2000)
    await read(source, 5)
    assert (await source.backlog()).n_records == 15
    await asyncio.sleep(1000.0)
    assert (await source.backlog()).n_records == 30


async def test_stamped_records_come_at_a_multiple_of_their_speed_and_end():
    source = replay_stamped(stamped(1000.0, 4600.0, 4600.0, 8200.0), speed=3600.0)
    seen = [(record.value, record.time_s, now()) async for record in source]
    assert seen == [
        (b"v0", 1000.0, 0.0),
        (b"v1", 4600.0, 1.0),
        (b"v2", 4600.0, 1.0),
        (b"v3", 8200.0, 2.0),
    ]


async def test_stamped_records_go_on_from_a_cursor():
    source = replay_stamped(stamped(0.0, 10.0, 40.0), speed=1.0, cursor="1")
    assert values([record async for record in source]) == [b"v1", b"v2"]
    assert now() == pytest.approx(30.0)


async def test_arrays_are_samples_filed_under_their_label():
    rows = np.arange(6, dtype=np.uint8).reshape(3, 2)
    source = replay_samples(Labelled(rows, np.array([7, 8, 9])), rate=10.0)
    record = (await read(source, 2))[1]
    assert (record.key, record.value) == (b"8", b"\x02\x03")


async def test_nothing_is_refused_late():
    with pytest.raises(ConfigError, match="there are no samples to replay"):
        replay_samples(Numbers(0), rate=1.0)
    with pytest.raises(ConfigError, match="count is -1, it must be >= 0"):
        replay_samples(Numbers(), rate=1.0, count=-1)
    with pytest.raises(ConfigError, match="cursor '12-0' is none of this replay of None records"):
        replay_samples(Numbers(), rate=1.0, cursor="12-0")
    with pytest.raises(ConfigError, match="cursor '9' is none of this replay of 2 records"):
        replay_stamped(stamped(0.0, 1.0), cursor="9")
    with pytest.raises(ConfigError, match="2 rows but 1 labels"):
        Labelled(np.zeros((2, 2)), np.zeros(1))
