"""Which records come a second time."""

from __future__ import annotations

from collections.abc import Iterable

from aiops.errors import ConfigError
from aiops.stream.base import Record

CAPACITY = 100_000


class Dedup:
    """Counts the records that were seen before, by their cursors, among the last ones.

    Sources hand out at least once. Whoever must not take a record twice asks here before training on it, and puts
    :meth:`state` beside the cursor in the checkpoint: then what a restart brings again is known again.

    The cursors of Redis and of a Kafka topic with one partition name a record for good. With several partitions a
    cursor also says how far the others were read, so there records have to carry an identity of their own.

    Args:
        capacity: How many of the last records are remembered, >= 1.
        seen: What another one's `state` gave.

    Attributes:
        duplicates: Records that had been seen before.

    Raises:
        ConfigError: The capacity is less than 1.
    """

    def __init__(self, capacity: int = CAPACITY, seen: Iterable[str] = ()) -> None:
        if capacity < 1:
            raise ConfigError(f"capacity is {capacity!r}, it must be >= 1")
        self.duplicates = 0
        self._capacity = capacity
        self._seen: dict[str, None] = {}
        for cursor in seen:
            self._remember(cursor)

    def is_new(self, record: Record) -> bool:
        """Return whether the record comes for the first time; remember it, or count it as a duplicate."""
        if record.cursor in self._seen:
            self.duplicates += 1
            return False
        self._remember(record.cursor)
        return True

    def state(self) -> list[str]:
        """Return the cursors that are remembered, oldest first, for a checkpoint."""
        return list(self._seen)

    def _remember(self, cursor: str) -> None:
        self._seen[cursor] = None
        if len(self._seen) > self._capacity:
            del self._seen[next(iter(self._seen))]
