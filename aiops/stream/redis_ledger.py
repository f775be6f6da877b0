"""Which entries of a Redis stream are where between the server and the reader; pure bookkeeping."""

from __future__ import annotations

from aiops.errors import ConfigError
from aiops.stream.base import Record
from aiops.stream.redis_entry import ZERO, Entries, order, record


class Ledger:
    """Entries on their way: fetched, then handed out, then acknowledged, and forgotten once the server knows that.

    What is handed out is remembered until it is acknowledged, as the server does too.

    Args:
        cursor: Where the reader begins; empty for wherever the group is.

    Attributes:
        cursor: The newest id that was acknowledged, or the one to begin with.
        handed: Ids that are handed out and not acknowledged, in that order.
        owed: Ids that are acknowledged, which the server does not know yet.
        lost: Entries that the server threw away unread.
    """

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        self.handed: dict[str, None] = {}
        self.owed: dict[str, None] = {}
        self.lost = 0
        self._ready: dict[str, Record] = {}
        self._newest = cursor or ZERO
        self._n = 0
        self._n_bytes = 0

    @property
    def ready(self) -> bool:
        """Whether a record can be handed out."""
        return bool(self._ready)

    @property
    def mean_bytes(self) -> float:
        """Mean size of a value; 0 before the first."""
        return self._n_bytes / self._n if self._n else 0.0

    def take_in(self, entries: Entries) -> None:
        """Take what the server sent; what is known already changes nothing."""
        for entry_id, fields in entries:
            if self._knows(entry_id):
                continue
            if fields is None:
                self.owed[entry_id] = None
                self.lost += 1
                continue
            found = record(entry_id, fields)
            self._n += 1
            self._n_bytes += len(found.value)
            self._ready[entry_id] = found

    def miss(self, ids: list[str]) -> None:
        """Hear which entries the server has thrown away; of those that are here it does not matter."""
        self.lost += sum(not self._knows(entry_id) for entry_id in ids)

    def hand_out(self) -> Record:
        """Return the next record that is ready."""
        entry_id = next(iter(self._ready))
        self.handed[entry_id] = None
        self._newest = max(self._newest, entry_id, key=order)
        return self._ready.pop(entry_id)

    def done(self, cursor: str) -> None:
        """Acknowledge everything that was handed out up to a record; one that is done already changes nothing.

        Raises:
            ConfigError: Nothing as new was handed out.
        """
        if cursor not in self.handed:
            if order(cursor) > order(self._newest):
                raise ConfigError(
                    f"cursor {cursor!r} was not handed out, the last was {self._newest!r}"
                )
            return
        for entry_id in list(self.handed):
            del self.handed[entry_id]
            self.owed[entry_id] = None
            self.cursor = max(self.cursor or ZERO, entry_id, key=order)
            if entry_id == cursor:
                return

    def paid(self, ids: list[str]) -> None:
        """Hear which acknowledgements the server knows now."""
        for entry_id in ids:
            self.owed.pop(entry_id, None)

    def _knows(self, entry_id: str) -> bool:
        return entry_id in self._ready or entry_id in self.handed or entry_id in self.owed
