"""One entry of a Redis stream as a record, and the other way; pure."""

from __future__ import annotations

import math
import re
from typing import TypeAlias

from aiops.errors import ConfigError
from aiops.stream.base import Record
from aiops.stream.redis_link import Reply, Word

KEY, VALUE, TIME = b"key", b"value", b"time"
ZERO = "0-0"

Entries: TypeAlias = "list[tuple[str, list[bytes] | None]]"
"""Ids and fields; None for an entry that the server threw away while it was in somebody's hands."""


def words(key: bytes, value: bytes, time_s: float) -> list[Word]:
    """Return the fields of an entry."""
    return [KEY, key, VALUE, value, TIME, repr(time_s)]


def record(entry_id: str, fields: list[bytes]) -> Record:
    """Return an entry as a record: its field ``value``, and ``key`` and ``time`` where it has them.

    The id's milliseconds, which are when the server got it, stand in for a time. Without a value, or with a time that
    is no number, the record has a fault.
    """
    found = dict(zip(fields[::2], fields[1::2], strict=True))
    key, value = found.get(KEY, b""), found.get(VALUE)
    arrived_s = order(entry_id)[0] / 1000
    if value is None:
        names = ", ".join(sorted(repr(name.decode("utf-8", "replace")) for name in found))
        return Record(entry_id, key, b"", arrived_s, fault=f"no field 'value', only {names}")
    if TIME not in found:
        return Record(entry_id, key, value, arrived_s)
    try:
        time_s = float(found[TIME])
    except ValueError:
        time_s = math.nan
    if not math.isfinite(time_s):
        return Record(entry_id, key, b"", arrived_s, fault=f"time is {found[TIME]!r}")
    return Record(entry_id, key, value, time_s)


def order(entry_id: str) -> tuple[int, int]:
    """Return what entry ids are ordered by.

    Raises:
        ConfigError: It is none.
    """
    match = re.fullmatch(r"([0-9]{1,20})-([0-9]{1,20})", entry_id)
    if match is None:
        raise ConfigError(f"cursor {entry_id!r} is none of a redis stream")
    return int(match[1]), int(match[2])


def table(flat: Reply) -> dict[bytes, Reply]:
    """Return a reply of names and values in turn as a dict."""
    return dict(zip(flat[::2], flat[1::2], strict=True))
