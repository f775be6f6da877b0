"""What workers are told to do, in the greeting and, where it changes, with every model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiops.policy.base import QueriedWork
from aiops.types import Version, WorkerId
from aiops.wire.message import Policy

if TYPE_CHECKING:
    from aiops.server.service import Service


def policy_of(service: Service, worker: WorkerId, version: Version) -> Policy:
    """Return what a worker is told together with a version: the newest, or the one that the open round makes."""
    config, work = service.config, service.engine.work_of(worker)
    policy = Policy(
        overlap=config.work.overlap,
        min_steps=work.min_steps,
        max_steps=work.max_steps,
        codec=config.codec.name,
        merge=config.merge,
        alpha=config.alpha,
        beta=config.beta,
        bootstrap=config.bootstrap,
        drift=config.drift,
        proximal=config.proximal,
        query=isinstance(config.work, QueriedWork),
        down=config.down.name,
        fragments=config.fragments,
        delay=config.delay,
        injection="" if config.injection is None else config.injection.name,
    )
    return policy if service.autopilot is None else service.autopilot.policy(policy, version)
