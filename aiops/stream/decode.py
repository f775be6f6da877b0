"""From records to samples: what cannot be decoded is counted and kept out, and never ends the stream."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from aiops.errors import BadRecords, ConfigError
from aiops.stream.base import Record, StreamSource

log = logging.getLogger("aiops.stream")

T = TypeVar("T")

WINDOW = 100


@dataclass(frozen=True, slots=True)
class Sample(Generic[T]):
    """A record that could be decoded.

    Attributes:
        record: Where it came from.
        value: What it is to the model.
    """

    record: Record
    value: T


class Samples(Generic[T]):
    """An async iterator of the samples of a source.

    What cannot be decoded is acknowledged with the sample before it, or at once where that is done already.

    Args:
        source: Where records come from; read by nobody else.
        decode: Makes a sample of a record's value; whatever Exception it raises makes the record a bad one. It runs on
            the loop, so it has to be quick.
        max_bad_share: The largest share of bad records among the last ``window`` that is put up with, in [0, 1]; None
            for any.
        window: How many records that share is taken over, >= 1; nothing is judged before so many have come.

    Attributes:
        source: The source.
        good: Records decoded.
        bad: Records kept out.
        fault: What was wrong with the last bad one; empty before the first.

    Raises:
        ConfigError: A number is not as said.
    """

    def __init__(
        self,
        source: StreamSource,
        decode: Callable[[bytes], T],
        *,
        max_bad_share: float | None = None,
        window: int = WINDOW,
    ) -> None:
        if max_bad_share is not None and not 0 <= max_bad_share <= 1:
            raise ConfigError(f"max_bad_share is {max_bad_share!r}, it must be in [0, 1]")
        if window < 1:
            raise ConfigError(f"window is {window!r}, it must be >= 1")
        self.source = source
        self.good = 0
        self.bad = 0
        self.fault = ""
        self._decode = decode
        self._limit = max_bad_share
        self._last: deque[bool] = deque(maxlen=window)
        self._newest = ""  # cursor of the last good record
        self._acked = ""
        self._bad_after = ""  # cursor of the last bad one that came after it

    def __aiter__(self) -> Samples[T]:
        """Return itself."""
        return self

    async def __anext__(self) -> Sample[T]:
        """Wait for the next sample.

        Raises:
            StopAsyncIteration: The stream has ended.
            ConnectionLost: The source's server is gone for good.
            BadRecords: The share of bad records is over its limit.
        """
        while True:
            record = await self.source.__anext__()
            try:
                if record.fault:
                    raise ValueError(record.fault)
                value = self._decode(record.value)
            # Not our code: any error of it says that this record is no sample.
            except Exception as error:
                await self._keep_out(record, error)
                continue
            self.good += 1
            self._last.append(False)
            self._newest, self._bad_after = record.cursor, ""
            return Sample(record, value)

    async def ack(self, cursor: str) -> None:
        """Declare everything up to that sample's record done, and the bad records right after it."""
        # Bad records between good ones are done with the later one; only those after the last need a word of their own.
        newest = cursor == self._newest
        await self.source.ack(self._bad_after if newest and self._bad_after else cursor)
        if newest:
            self._acked = cursor

    async def _keep_out(self, record: Record, error: Exception) -> None:
        self.bad += 1
        self._last.append(True)
        self.fault = f"{type(error).__name__}: {error}"
        level = logging.WARNING if self.bad == 1 else logging.DEBUG
        log.log(
            level,
            "%s: kept out the record before %s: %s",
            self.source.name,
            record.cursor,
            self.fault,
        )
        if self._newest == self._acked:
            await self.source.ack(record.cursor)
        else:
            self._bad_after = record.cursor
        n_bad = sum(self._last)
        full = len(self._last) == self._last.maxlen
        if self._limit is not None and full and n_bad > self._limit * len(self._last):
            raise BadRecords(self.source.name, n_bad, len(self._last), self._limit, self.fault)
