"""What a worker's machine takes over of a policy that changes while it trains."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from aiops.config import check_drift_merge
from aiops.errors import ConfigError
from aiops.wire.message import Policy
from aiops.worker.drift import Drift
from aiops.worker.rule import Rule
from aiops.worker.ticket import Snapshot

log = logging.getLogger("aiops.worker")


@dataclass(frozen=True, slots=True)
class Follower:
    """How far a worker follows its server.

    What a worker cannot follow makes it a worse one of its round and no wrong one: it goes on as it is.

    Attributes:
        own: The rule that this worker was given, and keeps; None takes the server's.
        accumulated: Leading values that drift correction is about.
        exact: Whether the parameters hold any float32 value, as corrections need it.
    """

    own: Rule | None
    accumulated: int
    exact: bool = True

    def rule(self, present: Rule, policy: Policy) -> Rule:
        """Return how models are merged from now on."""
        if self.own is not None:
            return present
        try:
            return Rule(policy.merge, policy.alpha, policy.beta, policy.bootstrap)
        except ConfigError as error:
            log.warning("this worker goes on with merge %s: %s", present.merge, error)
            return present

    def drift(
        self, present: Drift | None, policy: Policy, rule: Rule, new: Snapshot
    ) -> Drift | None:
        """Return what corrects the drift from the model ``new`` on; one that begins has no corrections yet."""
        if policy.drift == "off":
            return None
        if present is not None or policy.drift != "infer":
            return present
        if not self.exact:
            log.warning(
                "this worker's 16-bit parameters would round the server's drift correction away"
            )
            return None
        try:
            if policy.overlap:
                check_drift_merge(rule.merge, rule.beta)
        except ConfigError as error:
            log.warning("this worker goes without the server's drift correction: %s", error)
            return None
        return Drift(new.flat, new.version, accumulated=self.accumulated)
