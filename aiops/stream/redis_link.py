"""Commands to a Redis server as plain replies, and its errors as ours. Knows nothing of streams' records.

Replies have the shapes of Redis' own documentation (RESP2), whatever version the client library has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from aiops.errors import AiopsError, ConfigError, ConnectionLost, Rejected, RemoteProtocolError
from aiops.stream.address import RedisAddress

Reply: TypeAlias = "Any"
Word: TypeAlias = "bytes | str | int | float"

CONNECT_S = 5.0
# Blocking reads end by themselves after a second, so a longer silence is a dead line.
SILENCE_S = 5.0

_REJECTED = ("WRONGPASS", "NOAUTH", "NOPERM")
# A server that is starting, failing over, or read-only for a while; the client library strips some of these words.
_LATER = ("LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY")


class NoGroup(RemoteProtocolError):
    """The server knows no such consumer group, or no such stream (any more)."""


class RedisLink:
    """A pool of connections to one server; nothing is tried twice here, because who reads has to know of a lost reply.

    Args:
        address: Where it is.

    Attributes:
        name: The stream, for people.

    Raises:
        ConfigError: The library is not installed.
    """

    def __init__(self, address: RedisAddress) -> None:
        try:
            import redis.asyncio
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise ConfigError(
                "redis:// streams need the package redis: pip install 'aiops-ps[redis]'"
            ) from None
        self.name = str(address)
        self._errors = redis.exceptions
        client: Any = redis.asyncio.Redis(
            host=address.host,
            port=address.port,
            db=address.db,
            username=address.username,
            password=address.password,
            ssl=address.tls,
            socket_connect_timeout=CONNECT_S,
            # The library would wait by asyncio.wait_for, which before 3.12 swallows a cancellation now and then.
            socket_timeout=None,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        client.response_callbacks.clear()
        self._client = client

    async def command(self, *words: Word) -> Reply:
        """Send one command and return its reply.

        Raises:
            ConnectionLost: The server is out of reach, or not ready.
            Rejected: It does not let this user in.
            NoGroup: It has no such group or stream.
            ConfigError: What is stored there is no stream.
            RemoteProtocolError: It refuses the command.
        """
        try:
            async with asyncio.timeout(SILENCE_S):
                return await self._client.execute_command(*words)
        except (self._errors.RedisError, OSError) as error:
            raise self._translated(error) from error

    async def commands(self, many: Sequence[Sequence[Word]]) -> list[Reply]:
        """Send commands at once and return their replies; raises as `command` does, for the first that fails."""
        pipeline = self._client.pipeline(transaction=False)
        for words in many:
            pipeline.execute_command(*words)
        try:
            async with asyncio.timeout(SILENCE_S):
                replies: list[Reply] = await pipeline.execute()
        except (self._errors.RedisError, OSError) as error:
            raise self._translated(error) from error
        return replies

    async def close(self) -> None:
        """Close all connections, those in use too."""
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    def _translated(self, error: Exception) -> AiopsError:
        if isinstance(error, TimeoutError):
            return ConnectionLost(f"{self.name}: no answer in {SILENCE_S:g} s")
        text = " ".join(str(error).split())
        first = text.partition(" ")[0].rstrip(":")
        known = self._errors
        refused = known.AuthenticationError | known.AuthorizationError | known.NoPermissionError
        if isinstance(error, refused) or first in _REJECTED:
            return Rejected(f"{self.name} lets us not in: {text}")
        away = known.ConnectionError | known.TimeoutError | known.ReadOnlyError | OSError
        if isinstance(error, away) or first in _LATER:
            return ConnectionLost(f"{self.name}: {text or type(error).__name__}")
        if first == "NOGROUP" or "no such key" in text:
            return NoGroup(f"{self.name}: {text}")
        if first == "WRONGTYPE":
            return ConfigError(f"what {self.name} holds is no stream")
        return RemoteProtocolError(f"{self.name}: {text}")
