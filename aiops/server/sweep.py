"""Who is silent for too long: strangers, members, and donors that others wait for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiops.server.handshake import HANDSHAKE_S

if TYPE_CHECKING:
    from aiops.server.service import Service

# How often they are looked at, in a lease.
SWEEPS_PER_LEASE = 8


async def sweep(service: Service) -> None:
    """End, again and again, what has taken too long on a service; until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(min(service.config.lease_s / SWEEPS_PER_LEASE, HANDSHAKE_S))
        now = loop.time()
        for peer in list(service.peers):
            if peer.member is not None:
                heard = max(peer.member.last_heard, peer.connection.last_heard)
                peer.member.last_heard = heard
            else:
                service.handshake.hurry(peer, now)
        for member in service.members.expired(now):
            service.drop(member, "lease")
        service.sharing.sweep(now)
