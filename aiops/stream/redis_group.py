"""What a consumer asks of its group on a Redis stream, a method a question; remembers nothing."""

from __future__ import annotations

from dataclasses import dataclass

from aiops.errors import ConfigError, RemoteProtocolError
from aiops.stream.address import RedisAddress
from aiops.stream.redis_entry import ZERO, Entries, table
from aiops.stream.redis_link import NoGroup, RedisLink, Reply

# Entries a reply may bring: a few hundred samples of some KB.
PAGE = 256
# Where the server does not tell how far behind a group is, so many are counted.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class GroupState:
    """Where a group is.

    Attributes:
        delivered: Id of the last entry given to any of its consumers.
        pending: Entries given out and not acknowledged.
        behind: Entries not given out yet.
    """

    delivered: str
    pending: int
    behind: int


class RedisGroup:
    """A group on a stream, seen by one consumer.

    Every method raises what :meth:`aiops.stream.redis_link.RedisLink.command` raises.
    """

    def __init__(self, link: RedisLink, address: RedisAddress) -> None:
        self._link = link
        self._address = address
        self._who = ("GROUP", address.group, address.consumer)

    async def check(self) -> None:
        """Refuse a stream that is none, or a server that is too old.

        Raises:
            ConfigError: It is that.
        """
        stream = self._address.stream
        kind = (await self._link.command("TYPE", stream)).decode()
        if kind == "none" and not self._address.create:
            raise ConfigError(f"there is no stream {self._link.name} (create=true makes one)")
        if kind not in {"none", "stream"}:
            raise ConfigError(f"what {self._link.name} holds is a {kind}, not a stream")
        found = table(await self._link.command("HELLO"))
        if int(found[b"version"].partition(b".")[0]) < 7:
            version = found[b"version"].decode()
            raise ConfigError(
                f"{self._link.name} is Redis {version}, 7.0 is the oldest that will do"
            )

    async def create(self, after: str) -> bool:
        """Make the group, and the stream if need be, to begin after an id; return whether it was not there."""
        words = ("XGROUP", "CREATE", self._address.stream, self._address.group, after, "MKSTREAM")
        try:
            await self._link.command(*words)
        except RemoteProtocolError as error:
            if "BUSYGROUP" not in str(error):
                raise
            return False
        return True

    async def added(self) -> int:
        """Return how many entries were ever added to the stream."""
        found = table(await self._link.command("XINFO", "STREAM", self._address.stream))
        return int(found[b"entries-added"])

    async def state(self) -> GroupState:
        """Return where the group is."""
        name = self._address.group.encode()
        for flat in await self._link.command("XINFO", "GROUPS", self._address.stream):
            found = table(flat)
            if found[b"name"] == name:
                delivered = found[b"last-delivered-id"].decode()
                behind = found[b"lag"]
                if behind is None:
                    behind = await self._count_after(delivered)
                return GroupState(delivered, int(found[b"pending"]), int(behind))
        raise NoGroup(f"{self._link.name} has no group {self._address.group!r}")

    async def own(self, after: str) -> Entries:
        """Return entries that this consumer was given and has not acknowledged."""
        return await self._read_group(after, ())

    async def new(self, wait_s: float) -> Entries:
        """Wait for entries that no consumer was given; none come if none arrive in time."""
        return await self._read_group(">", ("BLOCK", max(1, round(wait_s * 1000))))

    async def between(self, after: str, until: str) -> Entries:
        """Return the stream's entries after one id up to another, whoever was given them."""
        words = ("XRANGE", self._address.stream, f"({after}", until, "COUNT", PAGE)
        return _entries(await self._link.command(*words))

    async def claim(self, after: str) -> tuple[str, Entries, list[str]]:
        """Take over what consumers of the group were silent about for too long.

        Returns:
            Where to go on ("0-0" at the end), what was taken over, and which of it the server had thrown away.
        """
        address = self._address
        idle_ms = max(1, round(address.claim_s * 1000))
        reply = await self._link.command(
            "XAUTOCLAIM",
            address.stream,
            address.group,
            address.consumer,
            idle_ms,
            after,
            "COUNT",
            PAGE,
        )
        return reply[0].decode(), _entries(reply[1]), [gone.decode() for gone in reply[2]]

    async def ack(self, ids: list[str]) -> None:
        """Acknowledge entries; those that are already change nothing."""
        await self._link.command("XACK", self._address.stream, self._address.group, *ids)

    async def _read_group(self, after: str, options: tuple[str | int, ...]) -> Entries:
        stream = self._address.stream
        reply = await self._link.command(
            "XREADGROUP", *self._who, "COUNT", PAGE, *options, "STREAMS", stream, after
        )
        return _entries(reply[0][1]) if reply else []

    async def _count_after(self, entry_id: str) -> int:
        counted = 0
        while counted < MOST_COUNTED:
            page = await self.between(entry_id, "+")
            counted += len(page)
            if len(page) < PAGE:
                break
            entry_id = page[-1][0]
        return counted


def first_id(address: RedisAddress, cursor: str) -> str:
    """Return after which id a group that is not there yet begins."""
    return cursor or (ZERO if address.start == "first" else "$")


def _entries(reply: Reply) -> Entries:
    return [(entry_id.decode(), fields) for entry_id, fields in reply]
