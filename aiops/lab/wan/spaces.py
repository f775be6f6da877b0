"""A WAN of network namespaces: one for the server, one per worker, and links between them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Literal, Self

import msgspec

from aiops.errors import ConfigError, ConnectFailed
from aiops.lab.wan import namespace, netem
from aiops.lab.wan.address import Place, address
from aiops.lab.wan.base import Kind, check_links
from aiops.lab.wan.counters import Counters, Job, Ready
from aiops.lab.wan.link import LinkSpec
from aiops.launch.netns import inside
from aiops.launch.process import Child

# Making two hundred interfaces on a busy machine.
STARTING_S = 30.0
ANSWER_S = 5.0

# A link that loses the first packets of a connection answers after 1, 3 and 7 s.
ANSWERING_S = 10.0

LABELS: dict[Kind, str] = {"tun": "TUN emulator", "netem": "netem"}


class SpaceWan:
    """Namespaces and links between them; use it as ``async with``.

    Nothing of it outlives its process, however that ends: namespaces have no names and are gone with who holds them,
    the emulator ends with its stdin and kills who is left in them, and what `command` starts ends with its parent.

    Args:
        links: What each worker's link is like.
        kind: Who emulates: a process of ours on TUN interfaces, or the kernel.
        congestion: TCP's congestion control in the namespaces; None for the system's.
        slow_start_after_idle: As in `namespace.make`.
        seed: Of losses and jitter.

    Raises:
        ConfigError: The kernel lacks the congestion control, or there are too many links.
        ConnectFailed: A link does not answer.
        OSError: There is no privilege to make namespaces or interfaces.
    """

    def __init__(
        self,
        links: Sequence[LinkSpec],
        *,
        kind: Literal["tun", "netem"] = "tun",
        congestion: str | None = None,
        slow_start_after_idle: bool | None = None,
        seed: int = 0,
    ) -> None:
        check_links(links)
        if kind == "netem":
            netem.check(links)
        self.kind: Kind = kind
        self.label = LABELS[kind]
        self.links = tuple(links)
        self.congestion = congestion or "unknown"
        self.server_host = address("server")
        self._asked = congestion
        self._slow_start = slow_start_after_idle
        self._seed = seed
        self._spaces = list[int]()
        self._carrier: Child
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Make everything, and wait until every link answers."""
        if missing := namespace.missing_tools():
            raise ConfigError(f"a WAN of namespaces needs the commands {' and '.join(missing)}")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            await self._make()
            self._carrier = await stack.enter_async_context(
                Child("aiops.lab.wan.carrier", name="the emulator")
            )
            await self._carrier.say(msgspec.json.encode(self._job()))
            ready = msgspec.json.decode(await self._carrier.hear(STARTING_S), type=Ready)
            if not ready.priority:
                self.label += " without priority"
            if self.kind == "netem":
                for space, command in netem.commands(self._spaces, self.links):
                    netem.run(space, command)
                    await asyncio.sleep(0)
            await self._answer()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """End the emulator and whoever is left in the namespaces, which are gone then."""
        await self._stack.aclose()

    def command(self, place: Place, argv: Sequence[str]) -> list[str]:
        """Return the command that runs ``argv`` at a place; it ends with the thread that starts it."""
        return [*namespace.prefix(self._space(place)), *argv]

    def socket(self, place: Place) -> socket.socket:
        """Return a fresh TCP socket of a place, which does not block; the caller closes it."""
        with inside(self._space(place)):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        return sock

    async def address_for(self, worker: int, port: int) -> tuple[str, int]:
        """Return the host and port at which a worker reaches a port of the server's."""
        self._space(worker)
        return self.server_host, port

    async def url_for(self, worker: int, port: int) -> str:
        """Return the URL of it."""
        return "aiops://{}:{}".format(*await self.address_for(worker, port))

    async def begin(self) -> None:
        """Set the links to what they begin with, and let their schedules of changes begin."""
        if self.kind == "tun":
            await self._carrier.say(b"begin")

    async def reset(self) -> None:
        """Set the links to what they begin with, and let no changes come until the next `begin`."""
        if self.kind == "tun":
            await self._carrier.say(b"reset")

    async def counters(self) -> Counters | None:
        """Return what the emulator counted so far; None where the kernel emulates."""
        if self.kind == "netem":
            return None
        await self._carrier.say(b"counters")
        return msgspec.json.decode(await self._carrier.hear(ANSWER_S), type=Counters)

    def _space(self, place: Place) -> int:
        index = 0 if place == "server" else place + 1
        if not 0 <= index < len(self._spaces):
            raise ConfigError(f"worker {place} has no link, there are {len(self.links)}")
        return self._spaces[index]

    # Each takes a millisecond of the loop: a thread would go on with it after a cancellation.
    async def _make(self) -> None:
        for _ in range(1 + len(self.links)):
            self._spaces.append(
                namespace.make(congestion=self._asked, slow_start_after_idle=self._slow_start)
            )
            await asyncio.sleep(0)
        with inside(self._spaces[0]):
            self.congestion = namespace.congestion_here()

    def _job(self) -> Job:
        links = list(self.links) if self.kind == "tun" else []
        server, *workers = self._spaces
        return Job(owner=os.getpid(), server=server, workers=workers, links=links, seed=self._seed)

    # Whether packets get through: a connection of each worker to the server.
    async def _answer(self) -> None:
        loop = asyncio.get_running_loop()
        with self.socket("server") as door:
            door.bind((self.server_host, 0))
            door.listen(len(self.links))
            for worker in range(len(self.links)):
                with self.socket(worker) as sock:
                    try:
                        async with asyncio.timeout(ANSWERING_S):
                            await loop.sock_connect(sock, door.getsockname())
                    except OSError as error:
                        raise ConnectFailed(
                            f"the link of worker {worker} does not answer: {error}"
                        ) from None

    async def _close(self) -> None:
        spaces, self._spaces = self._spaces, []
        try:
            await asyncio.to_thread(namespace.end_all, spaces)
        finally:
            for space in spaces:
                os.close(space)
