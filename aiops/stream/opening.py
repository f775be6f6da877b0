"""The door to streams of servers: :func:`open_source`. Wiring only."""

from __future__ import annotations

import random

from aiops.errors import ConfigError
from aiops.stream.address import RedisAddress, parse_stream_url
from aiops.stream.base import StreamSource
from aiops.stream.meter import SMOOTHING_S

GIVE_UP_S = 300.0


async def open_source(
    url: str,
    *,
    cursor: str = "",
    give_up_s: float = GIVE_UP_S,
    smoothing_s: float = SMOOTHING_S,
    rng: random.Random | None = None,
) -> StreamSource:
    """Open a stream of a Redis or Kafka server; the caller closes it with ``aclose()``.

    Args:
        url: As for :func:`aiops.stream.address.parse_stream_url`.
        cursor: Where to go on, from a checkpoint; empty for after what the group has acknowledged.
        give_up_s: How long a server that went away is tried to be reached again, in seconds, > 0.
        smoothing_s: Time constant of the measured rate, in seconds, > 0.
        rng: Spreads the tries of many workers; None for one that is seeded by the system.

    Raises:
        ConfigError: The URL or a number is wrong, its library is not installed, or the server has no such stream.
        ConnectFailed: No server answers there.
        Rejected: The server turned the name or the password away.
    """
    address = parse_stream_url(url)
    if not give_up_s > 0:
        raise ConfigError(f"give_up_s is {give_up_s!r}, it must be > 0")
    rng = rng or random.Random()
    if isinstance(address, RedisAddress):
        from aiops.stream.redis import open_redis

        return await open_redis(
            address, cursor=cursor, give_up_s=give_up_s, smoothing_s=smoothing_s, rng=rng
        )
    from aiops.stream.kafka import open_kafka

    return await open_kafka(
        address, cursor=cursor, give_up_s=give_up_s, smoothing_s=smoothing_s, rng=rng
    )
