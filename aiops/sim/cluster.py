"""A server and its workers inside one loop, over links of any speed: for tests, ours and users'.

On :class:`aiops.sim.virtual.VirtualLoop` an hour of it takes under a second, the same each time.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from typing import Self, Unpack

from aiops.api.connecting import connect_over
from aiops.api.serving import Server, serve_on
from aiops.config import ServerConfig, ServerSpec
from aiops.transport.base import Connection, Receiver
from aiops.transport.memory import Link, MemoryConnection, MemoryNetwork
from aiops.worker.client import Client

FRAME_BYTES = 1 << 34


class Cluster:
    """A server on the in-memory transport; enter it with ``async with``, then make workers.

    Args:
        params: Parameters to start from; the first worker's unless given.
        rounds: Versions after which training is over.
        config: The server's settings; or give them one by one, as for :func:`aiops.serve`.
        spec: The server's settings, as for :func:`aiops.serve`.

    Attributes:
        server: The running server.
        connections: The worker ends of every connection made, by worker name, oldest first.
    """

    server: Server

    def __init__(
        self,
        *,
        params: Mapping[str, object] | None = None,
        rounds: int | None = None,
        config: ServerConfig | None = None,
        **spec: Unpack[ServerSpec],
    ) -> None:
        self.connections: dict[str, list[MemoryConnection]] = {}
        self._network = MemoryNetwork()
        self._params, self._rounds, self._config, self._spec = params, rounds, config, spec

    async def __aenter__(self) -> Self:
        """Start the server."""
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Stop the server."""
        await self.server.stop()

    async def start(self) -> None:
        """Start a server, the first or the one after :meth:`Server.stop`."""
        listen = functools.partial(self._network.listen, "server")
        server = serve_on(
            listen, config=self._config, params=self._params, rounds=self._rounds, **self._spec
        )
        self.server = await server.__aenter__()

    def worker(
        self,
        name: str,
        *,
        up: Link | None = None,
        down: Link | None = None,
        incarnation: int = 1,
        token: str | None = None,
        connect_timeout_s: float = 10.0,
        give_up_s: float = 600.0,
    ) -> Client:
        """Return a client to be entered with ``async with``; ``up`` and ``down`` are its link to the server."""

        async def dial(
            make_receiver: Callable[[], Receiver], *, idle_timeout_s: float
        ) -> Connection:
            connection = await self._network.connect(
                "server",
                make_receiver,
                max_frame_bytes=FRAME_BYTES,
                idle_timeout_s=idle_timeout_s,
                up=up,
                down=down,
            )
            self.connections.setdefault(name, []).append(connection)
            return connection

        return connect_over(
            dial,
            token=token,
            name=name,
            incarnation=incarnation,
            connect_timeout_s=connect_timeout_s,
            give_up_s=give_up_s,
            rng=random.Random(name),
        )
