"""A WAN without privilege: every worker reaches the server through a TCP relay on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Self

from aiops.errors import ConfigError
from aiops.lab.wan.address import Place
from aiops.lab.wan.base import Kind, check_links
from aiops.lab.wan.link import LinkSpec
from aiops.sim.relay import Relay, WanLink


class RelayWan:
    """Relays in this process's loop; use it as ``async with``.

    TCP is split in two, so there is neither loss nor slow start nor a queue: what is emulated is how long bytes take.
    The loop must not be busy otherwise.

    Args:
        links: What each worker's link is like.

    Raises:
        ConfigError: A link has jitter, loss or a queue, or there are too many.
    """

    kind: Kind = "relay"
    label = "split TCP"
    server_host = "127.0.0.1"
    congestion = "none"

    def __init__(self, links: Sequence[LinkSpec]) -> None:
        check_links(links)
        for worker, link in enumerate(links):
            _check(worker, link)
        self.links = tuple(links)
        self._states = [
            [
                (at_s, WanLink(state.up_bits_s, state.delay_s, state.down_bits_s))
                for at_s, state in link.states()
            ]
            for link in links
        ]
        self._relays: dict[tuple[int, int], Relay] = {}
        self._began_s: float | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Make nothing yet: a relay is made for the first who asks for its address."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Cut every connection."""
        await self._stack.aclose()

    def command(self, place: Place, argv: Sequence[str]) -> list[str]:
        """Return ``argv`` as it is: every place is this machine."""
        return list(argv)

    def socket(self, place: Place) -> socket.socket:
        """Return a fresh TCP socket, which does not block; the caller closes it."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        return sock

    async def address_for(self, worker: int, port: int) -> tuple[str, int]:
        """Return the host and port at which a worker reaches a port of the server's.

        Connections of a worker to the same port share its link.
        """
        if not 0 <= worker < len(self.links):
            raise ConfigError(f"worker {worker} has no link, there are {len(self.links)}")
        if (worker, port) not in self._relays:
            relay = Relay(self.server_host, port, self._link_of(worker))
            self._relays[worker, port] = await self._stack.enter_async_context(relay)
        return self.server_host, self._relays[worker, port].port

    async def url_for(self, worker: int, port: int) -> str:
        """Return the URL of it."""
        return "aiops://{}:{}".format(*await self.address_for(worker, port))

    async def begin(self) -> None:
        """Set the links to what they begin with, and let their schedules of changes begin."""
        self._began_s = asyncio.get_running_loop().time()

    async def reset(self) -> None:
        """Set the links to what they begin with, and let no changes come until the next `begin`."""
        self._began_s = None

    async def counters(self) -> None:
        """Return None: nobody counts packets, there are none."""
        return

    def _link_of(self, worker: int) -> Callable[[], WanLink]:
        states, loop = self._states[worker], asyncio.get_running_loop()

        def now() -> WanLink:
            t_s = 0.0 if self._began_s is None else loop.time() - self._began_s
            return [link for at_s, link in states if at_s <= t_s][-1]

        return now


def _check(worker: int, link: LinkSpec) -> None:
    for _, state in link.states():
        for name in ("jitter_s", "loss"):
            if value := getattr(state, name):
                raise ConfigError(
                    f"the link of worker {worker} has a {name} of {value:g}, a relay splits TCP and has none: "
                    "this takes kind tun or netem"
                )
        if state.queue_bytes is not None:
            raise ConfigError(
                f"the link of worker {worker} has a queue of {state.queue_bytes} bytes, a relay splits TCP "
                "and has none: this takes kind tun or netem"
            )
