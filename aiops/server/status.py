"""The server's state for people and scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aiops.server.engine import worker_names

if TYPE_CHECKING:
    from aiops.server.service import Service

# Members listed one by one; a report is a control message and must stay small.
MAX_LISTED = 200


def status(service: Service) -> dict[str, object]:
    """Return what is going on, as plain values."""
    engine, members = service.engine, service.members.all()
    clocks = engine.clocks()
    return {
        "version": engine.version,
        "started": engine.started,
        "waiting": waiting(service),
        "members": [
            {
                "worker": member.worker,
                "name": member.name,
                "connected": member.peer is not None,
                "clock": clocks.get(member.worker, 0),
                "merged": member.merged,
            }
            for member in members[:MAX_LISTED]
        ],
        "n_members": len(members),
        "counters": dict(sorted(service.counters.items())),
        "pool": {
            "outstanding": service.pool.outstanding,
            "outstanding_bytes": service.pool.outstanding_bytes,
        },
    }


def waiting(service: Service) -> str:
    """Return what the open round waits for, as a phrase; empty when nothing is held up."""
    engine, config = service.engine, service.config
    if not service.store.seeded:
        return "waiting for the first worker's parameters"
    if not engine.started:
        pushed = len(engine.clocks())
        return (
            f"waiting for {config.min_workers - pushed} of {config.min_workers} workers "
            "(min_workers)"
        )
    late = engine.waiting_for()
    return f"waiting for {worker_names(late)}" if late else ""


def report(service: Service) -> str:
    """Return :func:`status` as JSON text."""
    return msgspec.json.encode(status(service)).decode()
