"""The start of a training loop's link: what the server says, what the caller wants, and whether they go together."""

from __future__ import annotations

from dataclasses import replace

from aiops.errors import ConfigError
from aiops.worker.client import Client
from aiops.worker.machine import Rule, machine_of
from aiops.worker.streaming import Machine, streaming_of
from aiops.worker.ticket import Snapshot


def start(
    client: Client, snapshot: Snapshot, rule: Rule | None, *, exact: bool, holds: bool
) -> Machine:
    """Return the machine of a training loop.

    Args:
        client: The client, greeted and with a table.
        snapshot: The parameters to start from.
        rule: How an overlapped worker merges; the server's unless given. The bootstrap is the server's always.
        exact: Whether the parameters hold any float32 value.
        holds: Whether the training loop adds a proximal term to its steps.

    Raises:
        ConfigError: The rule or the parameters do not go with what the server says.
    """
    policy = client.policy
    if rule is not None:
        if not policy.overlap:
            raise ConfigError(
                f"merge {rule.merge!r} is for overlapped workers, this server's rounds are blocking"
            )
        rule = replace(rule, bootstrap=policy.bootstrap)
    if not exact and (policy.drift != "off" or policy.fragments):
        raise ConfigError(
            "drift correction adds to the parameters what 16-bit floats round away, and fragments would push what "
            "they round: train in float32, or tell the server drift 'off' and work until_model or fixed"
        )
    if policy.proximal > 0 and not holds:
        raise ConfigError(
            f"the server has a proximal term of {policy.proximal:g}, which this training loop does not add to its "
            "steps: tell the server proximal 0"
        )
    if policy.fragments:
        return streaming_of(policy, client.table, snapshot.flat, snapshot.version, rule=rule)
    return machine_of(
        policy,
        snapshot.flat,
        snapshot.version,
        accumulated=client.table.accumulated,
        rule=rule,
        exact=exact,
    )
