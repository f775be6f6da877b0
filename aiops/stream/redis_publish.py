"""A small producer for Redis streams: what :mod:`aiops.stream.redis` reads, for replays, tests and devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from aiops.errors import ConfigError
from aiops.stream.address import RedisAddress, parse_stream_url
from aiops.stream.redis_entry import words
from aiops.stream.redis_link import RedisLink, Word
from aiops.stream.tape import StampedSample


class RedisPublisher:
    """Adds records to a stream, which begins with the first of them.

    Args:
        url: As for :func:`aiops.stream.opening.open_source`.
        max_records: The server keeps about so many of the newest, >= 1; None for all, which fills its memory.

    Raises:
        ConfigError: The URL or the number is wrong, or the library is not installed.
    """

    def __init__(self, url: str, *, max_records: int | None = None) -> None:
        address = parse_stream_url(url)
        if not isinstance(address, RedisAddress):
            raise ConfigError(f"{address} is no redis stream")
        if max_records is not None and max_records < 1:
            raise ConfigError(f"max_records is {max_records!r}, it must be >= 1")
        self._link = RedisLink(address)
        trim: Sequence[Word] = () if max_records is None else ("MAXLEN", "~", max_records)
        self._add: tuple[Word, ...] = ("XADD", address.stream, *trim, "*")

    async def publish(self, samples: Iterable[StampedSample]) -> list[str]:
        """Add records in one go and return their cursors.

        Raises:
            ConnectionLost: The server is out of reach; some of them may have been added.
            ConfigError: What is stored there is no stream.
        """
        commands = [(*self._add, *words(each.key, each.value, each.time_s)) for each in samples]
        replies = await self._link.commands(commands) if commands else []
        return [cast(bytes, reply).decode() for reply in replies]

    async def aclose(self) -> None:
        """Let go of the server. Idempotent."""
        await self._link.close()
