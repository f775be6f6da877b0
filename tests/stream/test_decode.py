"""Bad records are counted, kept out and acknowledged with the rest; too many of them are named."""

import logging

import pytest

from aiops.errors import BadRecords, ConfigError
from aiops.stream.base import Record
from aiops.stream.decode import Samples
from aiops.stream.replay import replay_samples
from tests.stream.kit import read

pytestmark = pytest.mark.virtual


class Texts:
    def __init__(self, *texts):
        self._texts = texts

    def __len__(self):
        return len(self._texts)

    def __getitem__(self, index):
        return b"", self._texts[index]


def samples(*texts, count=None, **options):
    source = replay_samples(Texts(*texts), rate=100.0, count=count)
    return Samples(source, int, **options)


async def test_bad_records_are_kept_out_and_counted(caplog):
    found = samples(b"1", b"two", b"3", b"", count=8)
    with caplog.at_level(logging.WARNING):
        assert [each.value async for each in found] == [1, 3, 1, 3]
    assert (found.good, found.bad) == (4, 4)
    assert found.fault.startswith("ValueError: invalid literal for int()")
    assert len(caplog.messages) == 1


async def test_a_record_that_the_source_makes_no_sense_of_is_never_decoded():
    class Faulty:
        name = "faulty"

        def __init__(self):
            self.acked = []
            self.records = [
                Record("1", b"", b"", 0.0, fault="no field 'value'"),
                Record("2", b"", b"x", 0.0),
            ]

        async def __anext__(self):
            return self.records.pop(0)

        async def ack(self, cursor):
            self.acked.append(cursor)

    source = Faulty()
    found = Samples(source, bytes.decode)
    assert (await anext(found)).value == "x"
    assert found.fault == "ValueError: no field 'value'"
    # Nothing good was outstanding, so it is done at once.
    assert source.acked == ["1"]


async def test_bad_records_after_the_last_sample_are_acknowledged_with_it():
    found = samples(b"1", b"x", b"y", count=3)
    (sample,) = await read(found, 1)
    with pytest.raises(StopAsyncIteration):
        await anext(found)
    assert found.source.cursor == ""
    await found.ack(sample.record.cursor)
    assert found.source.cursor == "3"


async def test_bad_records_between_samples_do_not_run_ahead_of_them():
    found = samples(b"1", b"x", b"2", b"y")
    first, second = await read(found, 2)
    await found.ack(first.record.cursor)
    assert found.source.cursor == "1"
    await found.ack(second.record.cursor)
    assert found.source.cursor == "3"


async def test_bad_records_after_an_acknowledged_sample_are_done_at_once():
    found = samples(b"1", b"x", count=2)
    (sample,) = await read(found, 1)
    await found.ack(sample.record.cursor)
    with pytest.raises(StopAsyncIteration):
        await anext(found)
    assert found.source.cursor == "2"


async def test_a_stream_of_bad_records_alone_goes_on_and_holds_nothing_back():
    found = samples(b"x", count=1000)
    assert [each async for each in found] == []
    assert found.bad == 1000
    assert found.source.cursor == "1000"


async def test_too_large_a_share_of_bad_records_is_named():
    found = samples(b"1", b"x", b"2", b"y", max_bad_share=0.4, window=10)
    with pytest.raises(BadRecords) as caught:
        await read(found, 1000)
    assert str(caught.value).startswith(
        "5 of the last 10 records of replay could not be decoded, max_bad_share is 0.4; the last: "
    )
    assert (caught.value.n_bad, caught.value.n_records, caught.value.limit) == (5, 10, 0.4)
    # Not before the window was full.
    assert found.good + found.bad == 10


async def test_a_share_at_the_limit_is_put_up_with():
    found = samples(b"1", b"x", max_bad_share=0.5, window=10, count=200)
    assert len([each async for each in found]) == 100


async def test_old_bad_records_leave_the_window():
    texts = [b"x"] * 4 + [b"1"] * 96
    found = samples(*texts, max_bad_share=0.4, window=10, count=200)
    assert len([each async for each in found]) == 192


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_bad_share": 1.5}, r"max_bad_share is 1.5, it must be in \[0, 1\]"),
        ({"window": 0}, "window is 0, it must be >= 1"),
    ],
)
async def test_limits_that_are_none_are_refused(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        samples(b"1", **options)
