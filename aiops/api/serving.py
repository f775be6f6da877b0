"""The server's door: :func:`serve`. Wiring only."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from aiops.api.version import version
from aiops.codec.table import WIRE_IDS
from aiops.config import ServerConfig, ServerSpec
from aiops.errors import ConfigError
from aiops.policy.place import by_bytes
from aiops.server.peer import Peer
from aiops.server.service import GRACE_S, Service
from aiops.server.status import status
from aiops.transport import nearest
from aiops.transport.base import Connection, Listener, Receiver
from aiops.transport.certificate import Tls, server_context
from aiops.transport.congestion import check
from aiops.transport.lane import Lane
from aiops.worker.bucket import check_finite, pack, specs_of, unpack

if TYPE_CHECKING:
    import ssl


class Listen(Protocol):
    """Binds an address and hands every accepted connection to a new receiver."""

    async def __call__(
        self,
        make_receiver: Callable[[], Receiver],
        *,
        max_frame_bytes: int,
        idle_timeout_s: float,
        made: Callable[[Any, Any], None],
    ) -> Listener:
        """Return the listener, bound."""


class Server:
    """A parameter server in this process; use it as ``async with``. Made by :func:`serve`."""

    def __init__(
        self,
        listen: Listen,
        config: ServerConfig,
        *,
        params: Mapping[str, object] | None,
        rounds: int | None,
        lanes: Sequence[Lane] = (),
        scheme: str = "aiops",
    ) -> None:
        self._listen = listen
        self._scheme = scheme
        self._lanes = lanes
        self._config = config
        self._params = params
        self._rounds = rounds
        self.service: Service
        self._listener: Listener
        self._main: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        """Bind and serve.

        Raises:
            ConfigError: The address cannot be bound.
        """
        codecs = {**WIRE_IDS, self._config.codec.wire_id: self._config.codec}
        self.service = service = Service(
            self._config,
            place=by_bytes(),
            codecs=codecs,
            library=version(),
            rounds=self._rounds,
            lanes=self._lanes,
        )
        if self._params is not None:
            self._seed(service, self._params)

        def made(receiver: Peer, connection: Connection) -> None:
            receiver.connection = connection
            service.adopt(receiver)

        # Owned by this object: ended and awaited in __aexit__.
        self._main = asyncio.get_running_loop().create_task(service.run(), name="aiops server")
        try:
            await service.ready.wait()
            self._listener = await self._listen(
                service.make_peer,
                max_frame_bytes=self._config.max_frame_bytes,
                idle_timeout_s=self._config.idle_timeout_s,
                made=made,
            )
        except BaseException:
            service.stop("cannot bind")
            await self._end()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Say goodbye to all workers, within half a second, and close."""
        await self.stop()

    async def stop(self, reason: str = "server stops") -> None:
        """Stop accepting, say goodbye to all workers, cut those that do not listen; idempotent."""
        try:
            await self._listener.close()
            self.service.stop(reason)
            await asyncio.wait([self._main], timeout=GRACE_S)
        finally:
            # Whoever cancels the wait for the goodbyes is in a hurry, and gets an end all the same.
            self.service.stop(reason)
            self.service.cut()
            await self._end()

    async def wait(self) -> None:
        """Wait until the server ends; raises if it failed."""
        await asyncio.shield(self._main)

    @property
    def url(self) -> str:
        """What a worker on this machine connects to."""
        host, port = self._listener.addresses[0]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"{self._scheme}://" + (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    @property
    def version(self) -> int:
        """Rounds closed so far."""
        return self.service.engine.version

    async def version_after(self, version: int) -> int:
        """Wait until more than ``version`` rounds are closed; return how many are."""
        return await self.service.waiters.version_after(version)

    def status(self) -> dict[str, Any]:
        """Return the server's state as plain values."""
        return status(self.service)

    def params(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the parameters by name.

        Raises:
            UnknownKey: There are none yet.
        """
        flat = self.service.store.vector()
        return unpack(self.service.store.require(), flat)

    # The service has been told to; whoever cancels this cancels it.
    async def _end(self) -> None:
        try:
            await self._main
        finally:
            for lane in self._lanes:
                lane.close()

    @staticmethod
    def _seed(service: Service, params: Mapping[str, object]) -> None:
        specs = specs_of(params)
        table = service.store.agree(specs)
        flat = np.empty(table.size, np.float32)
        pack(table, params, flat)
        check_finite(table, flat, "params")
        service.seed(specs, flat)


def serve(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    config: ServerConfig | None = None,
    params: Mapping[str, object] | None = None,
    rounds: int | None = None,
    congestion: str | None = None,
    shared_memory: bool = True,
    tls: Tls | ssl.SSLContext | None = None,
    **spec: Unpack[ServerSpec],
) -> Server:
    """Return a parameter server to be entered with ``async with``.

    Args:
        host: Address to bind.
        port: Port to bind; 0 takes a free one, see :attr:`Server.url`.
        config: Settings; or give them one by one as ``sync="bulk"``, ``codec="topk:0.01"``, ... (the fields of
            :class:`ServerConfig`).
        params: Parameters to start from, by name; the first worker's unless given.
        rounds: Versions after which workers are told that training is over.
        congestion: TCP congestion control, such as ``"bbr"``; the system's unless given, and on loopback the fastest
            one that is allowed.
        shared_memory: Whether workers of the same user on this machine may go past TCP (Linux); under TLS they may not.
        tls: The certificate to show, and if clients must have one too (mutual TLS), the authorities that sign theirs;
            without it connections are not encrypted.

    Raises:
        ConfigError: A setting or a certificate is wrong; no socket was bound.
    """
    settings = _config(config, spec)
    if not 0 <= port <= 65535:
        raise ConfigError(f"port is {port}, it must be in 0..65535")

    if congestion is not None:
        check(congestion)
    context = None if tls is None else server_context(tls)
    # Under TLS there is nothing for them to do.
    n_lanes = settings.shards if context is None else 0
    lanes = [Lane(f"aiops shard {number} lane") for number in range(n_lanes)]
    listen = functools.partial(
        nearest.listen,
        host,
        port,
        shared_memory=shared_memory,
        lanes=lanes,
        congestion=congestion,
        tls=context,
    )
    return Server(
        listen,
        settings,
        params=params,
        rounds=_rounds(rounds),
        lanes=lanes,
        scheme="aiops" if context is None else "aiops+tls",
    )


def serve_on(
    listen: Listen,
    *,
    config: ServerConfig | None = None,
    params: Mapping[str, object] | None = None,
    rounds: int | None = None,
    **spec: Unpack[ServerSpec],
) -> Server:
    """Return a server on any transport; see :func:`serve`."""
    return Server(listen, _config(config, spec), params=params, rounds=_rounds(rounds))


def _config(config: ServerConfig | None, spec: ServerSpec) -> ServerConfig:
    if config is None:
        return ServerConfig.parse(**spec)
    if spec:
        raise ConfigError(f"give config or single settings, not both (got {', '.join(spec)})")
    return config


def _rounds(rounds: int | None) -> int | None:
    if rounds is not None and rounds < 1:
        raise ConfigError(f"rounds is {rounds}, it must be >= 1")
    return rounds
