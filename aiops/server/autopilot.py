"""The hands of an automatic server's policy: measures rounds, and goes over to what is decided at version boundaries.

What is decided when version v is published is told with every model from v + 1 on, since answers of v may have left
ahead of it, and counts for the round that starts from v + 1: its pushes are coded, weighed and answered so.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import DENSE, Codec
from aiops.policy.base import AutoPolicy, Change, Choice, Measured, WorkerView
from aiops.server.admission import AdmittedPush
from aiops.types import Key, Version, WorkerId
from aiops.wire.message import Policy

if TYPE_CHECKING:
    from aiops.server.service import Service

log = logging.getLogger("aiops.server")

# Every push is compared with every other one, so of a large round these must do.
MOST_COMPARED = 8

# Syncs with Top-k that are looked at together: the slowest of them decides whether it is needed no more.
CODED_ROUNDS = 8


class Autopilot:
    """Decides for one server.

    Args:
        service: Whose rounds are measured.
        policy: What decides.
        topk: How updates travel up, and what rounds change down, where Top-k is on.

    Attributes:
        choice: What is turned on in the open round.
        reason: Why, for people; "" before the first change.
        cosine: Mean cosine of the pushes over the measuring rounds; None while it is not known.
        ratio: S/c at the newest version; 0 while it is not known.
    """

    def __init__(self, service: Service, policy: AutoPolicy, topk: tuple[Codec, Codec]) -> None:
        self.choice = Choice.PLAIN
        self.reason = ""
        self.cosine: float | None = None
        self.ratio = 0.0
        self._service = service
        self._policy = policy
        self._up, self._down = topk
        self._coming: tuple[Version, Change] | None = None
        self._since, self._changes = Version(0), 0
        self._cosines: list[float] = []
        self._losses: list[float] = []
        # What the last syncs took without Top-k, of which the slower one may have met a line that broke; and with it.
        self._dense: deque[float] = deque(maxlen=2)
        self._settled_s = 0.0
        self._coded: deque[float] = deque(maxlen=CODED_ROUNDS)

    def policy(self, policy: Policy, version: Version) -> Policy:
        """Return what workers are told together with a version of the model.

        Args:
            policy: What they are told where nothing is turned on.
            version: The newest version, or the one that the open round makes.
        """
        coming = self._coming
        choice = self.choice if coming is None or version < coming[0] else coming[1].choice
        if choice is Choice.TOPK:
            return msgspec.structs.replace(policy, codec=self._up.name, down=self._down.name)
        return msgspec.structs.replace(policy, drift="infer") if choice is Choice.DRIFT else policy

    def measured_bytes(self, pushes: Sequence[AdmittedPush]) -> int:
        """Return how many bytes :meth:`measure` reads of the pushes of a round; 0 where it does nothing."""
        if not self._is_measuring:
            return 0
        n = len(self._compared(pushes))
        return n * sum([len(part.payload) for part in pushes[0].parts.values()]) if n > 1 else 0

    def measure(self, pushes: Sequence[AdmittedPush]) -> None:
        """Compare the pushes of a round that is being merged; may happen in another thread."""
        compared = self._compared(pushes) if self._is_measuring else []
        if len(compared) < 2:
            return
        averaged = {
            Key(key) for key, b in enumerate(self._service.store.require().buckets) if b.averaged
        }
        cosine = mean_cosine(
            [
                {
                    key: np.frombuffer(part.payload, np.float32)
                    for key, part in push.parts.items()
                    if key not in averaged
                }
                for push in compared
            ]
        )
        if cosine is not None:
            self._cosines.append(cosine)
            self._losses.append(math.fsum([p.message.loss for p in pushes]) / len(pushes))

    def published(self, version: Version) -> None:
        """Take note of a version before anybody hears of it: go over to what was decided, and decide anew."""
        if self._coming is not None and version >= self._coming[0]:
            self._go_over(self._coming[1], version)
            self._coming = None
        self._observe(self._service.engine.views())
        if self._coming is not None:
            return
        judged = self._judge(version)
        seen = Measured(
            version, self.ratio, self.cosine, judged, self.choice, self._since, self._changes
        )
        change = self._policy.decide(seen)
        if change is not None:
            self._coming = Version(version + 1), change

    def report(self) -> dict[str, object]:
        """Return what is turned on, and why, for people and scripts."""
        return {
            "on": self.choice.value,
            "reason": self.reason,
            "sync_steps": round(self.ratio, 1),
            "cosine": self.cosine,
        }

    @property
    def _is_measuring(self) -> bool:
        version = self._service.engine.version + 1
        return self.choice is Choice.PLAIN and version in self._policy.measuring

    def _compared(self, pushes: Sequence[AdmittedPush]) -> Sequence[AdmittedPush]:
        dense = [
            push
            for push in pushes
            if all(part.codec.wire_id == DENSE for part in push.parts.values())
        ]
        return dense[:MOST_COMPARED]

    # Say whether it is known how far the workers differ, or will not be known.
    def _judge(self, version: Version) -> bool:
        measuring = self._policy.measuring
        if version + 1 < measuring.stop and self._changes == 0:
            return False
        if len(self._cosines) == len(measuring):
            self.cosine = self._policy.agreement(self._cosines, self._losses)
            self._cosines = []
        return True

    def _observe(self, views: dict[WorkerId, WorkerView]) -> None:
        steps = [view.step_s for view in views.values() if 0.0 < view.step_s < math.inf]
        link_s = max((view.link_s for view in views.values()), default=0.0)
        if not steps or not 0.0 < link_s < math.inf:
            return
        if self.choice is not Choice.TOPK:
            self._dense.append(link_s)
            self.ratio = min(self._dense) / min(steps)
            return
        self._coded.append(link_s)
        # The first ones after a change are of pushes from before it.
        if len(self._coded) < CODED_ROUNDS:
            return
        if not self._settled_s:
            self._settled_s = min(self._coded)
        dense_s = self._policy.dense_s(
            min(self._dense), self._settled_s, max(self._coded), share=self._share
        )
        self.ratio = dense_s / min(steps)

    @property
    def _share(self) -> float:
        sizes = [bucket.size for bucket in self._service.store.require().buckets]
        ways = (self._up, self._down)
        coded = sum([way.payload_bytes(size) for way in ways for size in sizes])
        return min(0.99, coded / max(1, 8 * sum(sizes)))

    def _go_over(self, change: Change, version: Version) -> None:
        service, choice = self._service, change.choice
        shares = service.config.weights
        service.engine.weights = (
            self._policy.corrected(shares) if choice is Choice.DRIFT else shares
        )
        service.store.turn_down(self._down if choice is Choice.TOPK else None)
        self.choice, self.reason, self._since = choice, change.reason, version
        self._changes += 1
        self._settled_s = 0.0
        self._coded.clear()
        service.counters[f"auto_{choice.value}"] += 1
        log.warning("from version %d on, %s", version, change.reason)


def mean_cosine(pushes: Sequence[dict[Key, NDArray[np.float32]]]) -> float | None:
    """Return the mean cosine between any two of some pushes; None where fewer than two of them hold anything.

    Args:
        pushes: float32 vectors by key, read where they lie; a key that a push lacks is zeros.
    """
    n = len(pushes)
    products = np.zeros((n, n))
    for i in range(n):
        for j in range(i, n):
            products[i, j] = math.fsum(
                [
                    float(np.dot(a, pushes[j][key]))
                    for key, a in pushes[i].items()
                    if key in pushes[j]
                ]
            )
    lengths = np.sqrt(products.diagonal())
    cosines = [
        float(products[i, j] / (lengths[i] * lengths[j]))
        for i in range(n)
        for j in range(i + 1, n)
        if lengths[i] > 0.0 and lengths[j] > 0.0
    ]
    return math.fsum(cosines) / len(cosines) if cosines else None
