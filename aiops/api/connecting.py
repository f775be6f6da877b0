"""The worker's door: :func:`connect`. Wiring only."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aiops.api.version import version
from aiops.config import parse_codec
from aiops.errors import ConfigError
from aiops.policy.table import parse_injection
from aiops.transport import nearest
from aiops.transport.base import Connection, Receiver
from aiops.transport.certificate import Tls, client_context
from aiops.transport.congestion import check
from aiops.transport.lane import Lane
from aiops.url import parse_url
from aiops.worker.client import Client
from aiops.worker.count import whole
from aiops.worker.link import Dial, Identity, Link

if TYPE_CHECKING:
    import ssl


def connect(
    url: str,
    *,
    name: str | None = None,
    incarnation: int | None = None,
    connect_timeout_s: float = 10.0,
    give_up_s: float = 600.0,
    max_frame_bytes: int = 16 * 1024**3,
    congestion: str | None = None,
    shared_memory: bool = True,
    tls: Tls | ssl.SSLContext | None = None,
    n_data: int = 0,
) -> Client:
    """Return a client to be entered with ``async with``.

    Args:
        url: ``aiops://[token@]host[:port][,host[:port]...]``, or ``aiops+tls://...``; the hosts are tried in order.
        name: What this worker is called, unique among workers. A worker that comes back under its name takes the
            place of its earlier life at once. A random one unless given.
        incarnation: Which life of that name this is; the number of nanoseconds on the system's clock unless given.
        connect_timeout_s: How long the first connection may take to come about.
        give_up_s: How long a lost connection is tried to be replaced before tickets fail.
        max_frame_bytes: Largest frame accepted from the server.
        congestion: TCP congestion control, such as ``"bbr"``; the system's unless given, and on loopback the fastest
            one that is allowed.
        shared_memory: Whether to go past TCP where the server is a process of the same user on this machine (Linux)
            and TLS is not asked for; silently, TCP is what remains.
        tls: For ``aiops+tls://``: which authorities to trust instead of the system's, and the certificate to show to
            a server that asks for one.
        n_data: Training samples that this worker has, for weights ``by_data``; 0 does not say.

    Raises:
        ConfigError: The URL, a certificate or ``n_data`` is wrong, or the system does not allow that congestion
            control; no connection was tried.
    """
    size = whole(n_data)
    if size is None:
        raise ConfigError(f"n_data is {n_data!r}, it must be a whole number >= 0")
    if congestion is not None:
        check(congestion)
    endpoints = parse_url(url)
    context = _context(tls, wanted=endpoints[0].tls)
    # Bulk payloads of both directions take turns on it; the loop is the caller's.
    lanes = (Lane("aiops worker lane"),)
    addresses = [(endpoint.host, endpoint.port) for endpoint in endpoints]

    async def dial(make_receiver: Callable[[], Receiver], *, idle_timeout_s: float) -> Connection:
        return await nearest.connect(
            addresses,
            make_receiver,
            shared_memory=shared_memory,
            max_frame_bytes=max_frame_bytes,
            idle_timeout_s=idle_timeout_s,
            lanes=lanes,
            congestion=congestion,
            tls=context,
            connect_timeout_s=min(10.0, connect_timeout_s),
        )

    client = connect_over(
        dial,
        token=endpoints[0].token,
        name=name,
        incarnation=incarnation,
        connect_timeout_s=connect_timeout_s,
        give_up_s=give_up_s,
        lanes=lanes,
    )
    client.n_data = size
    return client


def _context(tls: Tls | ssl.SSLContext | None, *, wanted: bool) -> ssl.SSLContext | None:
    if wanted:
        return client_context(Tls() if tls is None else tls)
    if tls is not None:
        raise ConfigError(
            "tls is given and the url is aiops://, which goes without: say aiops+tls://"
        )
    return None


def connect_over(
    dial: Dial,
    *,
    token: str | None = None,
    name: str | None = None,
    incarnation: int | None = None,
    connect_timeout_s: float = 10.0,
    give_up_s: float = 600.0,
    rng: random.Random | None = None,
    lanes: Sequence[Lane] = (),
) -> Client:
    """Return a client over any transport; see :func:`connect`.

    Args:
        dial: Opens connections.
        token: Secret to show.
        name: See :func:`connect`.
        incarnation: See :func:`connect`.
        connect_timeout_s: See :func:`connect`.
        give_up_s: See :func:`connect`.
        rng: Spreads the redials of many workers.
        lanes: The transport's threads, which end with the client.
    """
    identity = Identity(
        identity=name or uuid.uuid4().hex,
        incarnation=time.time_ns() if incarnation is None else incarnation,
        name=name or "",
        token=token,
        library=version(),
    )

    def make_link() -> Link:
        return Link(
            dial,
            identity,
            connect_timeout_s=connect_timeout_s,
            give_up_s=give_up_s,
            rng=rng or random.Random(identity.identity),
        )

    return Client(make_link, parse_codec, lanes, make_injection=parse_injection)
