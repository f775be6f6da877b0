"""What every emulated WAN can do, however it is made."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Literal, Protocol

from aiops.errors import ConfigError
from aiops.lab.wan.address import MOST_WORKERS, Place
from aiops.lab.wan.counters import Counters
from aiops.lab.wan.link import LinkSpec

Kind = Literal["tun", "netem", "relay"]


class Wan(Protocol):
    """Emulated links between a server and its workers, up as long as its ``async with`` lasts.

    Attributes:
        kind: How it is made.
        label: The same for people, to stand beside every result.
        links: What each worker's link is like.
        congestion: TCP's congestion control on the links.
        server_host: The address for the server to listen on.
    """

    kind: Kind
    label: str
    links: tuple[LinkSpec, ...]
    congestion: str
    server_host: str

    def command(self, place: Place, argv: Sequence[str]) -> list[str]:
        """Return the command that runs ``argv`` at a place, a worker's index or "server".

        Where places are network namespaces, it ends with the thread that starts it.
        """

    def socket(self, place: Place) -> socket.socket:
        """Return a fresh TCP socket of a place, which does not block; the caller closes it."""

    async def address_for(self, worker: int, port: int) -> tuple[str, int]:
        """Return the host and port at which a worker reaches a port of the server's."""

    async def url_for(self, worker: int, port: int) -> str:
        """Return the URL of it."""

    async def begin(self) -> None:
        """Set the links to what they begin with, and let their schedules of changes begin."""

    async def reset(self) -> None:
        """Set the links to what they begin with, and let no changes come until the next `begin`."""

    async def counters(self) -> Counters | None:
        """Return what the emulator counted so far; None where nobody counts."""


def check_links(links: Sequence[LinkSpec]) -> None:
    """Refuse too few and too many.

    Raises:
        ConfigError: There are.
    """
    if not 0 < len(links) <= MOST_WORKERS:
        raise ConfigError(
            f"there are {len(links)} links, between 1 and {MOST_WORKERS} can be emulated"
        )
