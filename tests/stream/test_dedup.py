"""Records that come twice are told apart and counted."""

import pytest

from aiops.errors import ConfigError
from aiops.stream.base import Record
from aiops.stream.dedup import Dedup


def record(cursor):
    return Record(cursor, b"", b"", 0.0)


def news(dedup, cursors):
    return [dedup.is_new(record(cursor)) for cursor in cursors]


def test_what_comes_again_is_a_duplicate():
    dedup = Dedup()
    assert news(dedup, ["1", "2", "1", "3", "1"]) == [True, True, False, True, False]
    assert dedup.duplicates == 2


def test_only_the_last_ones_are_remembered():
    dedup = Dedup(capacity=2)
    assert news(dedup, ["1", "2", "3", "2", "1"]) == [True, True, True, False, True]
    assert dedup.state() == ["3", "1"]


def test_a_checkpoint_carries_what_was_seen():
    before = Dedup()
    news(before, ["1", "2"])
    after = Dedup(seen=before.state())
    assert news(after, ["2", "3"]) == [False, True]
    assert after.duplicates == 1


def test_no_capacity_is_refused():
    with pytest.raises(ConfigError, match="capacity is 0, it must be >= 1"):
        Dedup(0)
