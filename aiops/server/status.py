"""The server's state for people and scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from aiops.types import WorkerId

if TYPE_CHECKING:
    from aiops.server.members import Member
    from aiops.server.service import Service

# Members listed one by one, and characters of each one's name.
MAX_LISTED = 200
MAX_NAME = 64

# A report is a control message: it must stay below 64 KiB whatever workers call themselves.
REPORT_BYTES = 60_000


def status(service: Service, *, listed: int = MAX_LISTED) -> dict[str, object]:
    """Return what is going on, as plain values; the first ``listed`` members one by one."""
    engine, members = service.engine, service.members.all()
    clocks = engine.clocks()
    return {
        "version": engine.version,
        "seeded": service.store.seeded,
        "started": engine.started,
        "waiting": waiting(service, listed=listed),
        "members": [
            {
                "worker": member.worker,
                "name": member.name[:MAX_NAME],
                "connected": member.peer is not None,
                "clock": clocks.get(member.worker, 0),
                "merged": member.merged,
                **_shared(service, member),
            }
            for member in members[:listed]
        ],
        "n_members": len(members),
        **({} if service.autopilot is None else {"auto": service.autopilot.report()}),
        "counters": dict(sorted(service.counters.items())),
        "pool": {
            "outstanding": service.pool.outstanding,
            "outstanding_bytes": service.pool.outstanding_bytes,
            "peak_bytes": service.pool.peak_bytes,
        },
        **service.landings.report(),
        **service.sharing.report(),
    }


def waiting(service: Service, *, listed: int = MAX_LISTED) -> str:
    """Return what the open round waits for, as a phrase; empty when nothing is held up."""
    engine, config = service.engine, service.config
    if not service.store.seeded:
        return "waiting for the first worker's parameters"
    if not engine.started:
        return (
            f"waiting for {config.min_workers - engine.n_pushed} of {config.min_workers} workers "
            "(min_workers)"
        )
    late = engine.waiting_for()
    if not late:
        return ""
    more = f" and {len(late) - listed} more" if len(late) > listed else ""
    return f"waiting for {worker_names(late[:listed])}{more}"


def report(service: Service) -> str:
    """Return :func:`status` as JSON text, with as many members as a message holds."""
    listed = MAX_LISTED
    while True:
        text = msgspec.json.encode(status(service, listed=listed))
        if len(text) <= REPORT_BYTES or not listed:
            return text.decode()
        listed //= 2


def worker_names(workers: Iterable[WorkerId]) -> str:
    """Return worker numbers as a phrase for people."""
    return ", ".join(f"worker {worker}" for worker in workers)


def _shared(service: Service, member: Member) -> dict[str, int]:
    if service.config.injection is None:
        return {}
    return {"gave_bytes": member.gave_bytes, "took_bytes": member.took_bytes}
