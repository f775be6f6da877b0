"""A partition whose rounds are more than a weighted sum, and the state of the rules that make them so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aiops.buffers import BufferPool
from aiops.codec.base import DENSE, Codec
from aiops.merge.base import Rules, Selection
from aiops.server.downlink import Coded, Downlink
from aiops.server.ruled_job import RuledDraft, RuledJob
from aiops.server.shard import Draft, MergeJob, Origin, Part, Shard
from aiops.server.state import StateDraft, States
from aiops.types import Key, ShardId, WorkerId


class RuledShard(Shard):
    """A partition that is merged by rules, and what they keep.

    Args:
        shard: Its number.
        sizes: Number of float32 values of each of its keys.
        pool: Where blocks come from.
        averaged: Those of its keys that hold running statistics.
        rules: How its rounds become parameters.
        down: How what they change travels down; None where the values do.

    Attributes:
        downlink: What has changed in the newest round; None where the values travel.
    """

    __slots__ = ("_compensated", "_rules", "_states", "downlink")

    def __init__(
        self,
        shard: ShardId,
        sizes: Mapping[Key, int],
        pool: BufferPool,
        averaged: frozenset[Key] = frozenset(),
        *,
        rules: Rules,
        down: Codec | None = None,
    ) -> None:
        super().__init__(shard, sizes, pool, averaged)
        self.downlink = None if down is None else Downlink(down)
        self._rules = rules
        # By key, from the first round on that brings it.
        self._states: States[Key] = States(pool, rules.optimizer.initial)
        rule = rules.compensation
        # By worker and key, from its first push on until it leaves.
        self._compensated: States[tuple[WorkerId, Key]] = States(
            pool, () if rule is None else rule.initial
        )

    def begin(
        self,
        pushes: Sequence[Mapping[Key, Part]],
        weights: Sequence[float],
        gain: float,
        drafts: Mapping[Key, Draft],
        origins: Sequence[Origin] = (),
    ) -> RuledJob:
        """Take the memory for a merge of ``pushes`` and for the state after it.

        Of drafts, which :meth:`begin_key` has made, all that comes of them goes over to the job.
        """
        return self._begin(self._sizes, pushes, weights, gain, drafts, origins)

    def _begin(
        self,
        whole: Mapping[Key, int],
        pushes: Sequence[Mapping[Key, Part]],
        weights: Sequence[float],
        gain: float,
        drafts: Mapping[Key, Draft],
        origins: Sequence[Origin] = (),
    ) -> RuledJob:
        # What travels as a change is coded for every key; else keys that no push has keep their memory.
        touched = whole.keys() if self.downlink is not None else set().union(*pushes)
        sizes = {key: n for key, n in whole.items() if key in touched and key not in drafts}
        rules, largest = self._rules, 4 * max(sizes.values(), default=0)
        coded = max([_coded(key, pushes) for key in sizes], default=0)
        # Sparse pushes of a sum are added up where they lie, unless each is looked at first.
        summed = rules.aggregation.linear and rules.compensation is None
        apart = not summed or isinstance(rules.aggregation, Selection)
        job = RuledJob(
            fresh={key: self._fresh(key, sizes, drafts) for key in whole},
            todo_bytes=4 * sum(sizes.values()),
            bad=None,
            distances=np.zeros((len(pushes), len(pushes))),
            states=self._states.begin(
                {
                    key: size
                    for key, size in sizes.items()
                    if key not in self._averaged and any(key in push for push in pushes)
                }
            ),
            compensated=self._begin_compensated(pushes, origins),
            coded=Coded(),
            _old=self._published,
            _pushes=pushes,
            _weights=weights,
            _gain=gain,
            _drafts=drafts,
            _scratch=self._pool.take(largest) if coded and summed else None,
            _averaged=self._averaged,
            _rules=rules,
            _origins=origins,
            _decoded=[self._pool.take(largest) for _ in range(coded if apart else 0)],
            _downlink=self.downlink,
            _change=None if self.downlink is None else self._pool.take(largest),
        )
        for key, draft in drafts.items():
            if key in whole:
                assert isinstance(draft, RuledDraft)
                job.take_over(draft.job)
        return job

    def publish(self, job: MergeJob) -> None:
        """Swap a finished merge in, with the state that goes with it."""
        assert isinstance(job, RuledJob)
        super().publish(job)
        self._states.keep(job.states)
        self._compensated.keep(job.compensated)
        if self.downlink is not None:
            self.downlink.keep(job.coded)
            if self.downlink.ending:
                self.downlink = None

    def turn_down(self, codec: Codec | None) -> None:
        """Say how what the next rounds change travels down, between two rounds; None sends values.

        What a downlink has left behind goes into the next version, whose values travel.
        """
        if codec is None:
            if self.downlink is not None:
                self.downlink.ending = True
        elif self.downlink is None or self.downlink.ending:
            rests = self.downlink
            self.downlink = rests or Downlink(codec)
            self.downlink.ending = False

    def discard(self, job: MergeJob) -> None:
        """Give a merge up; the published snapshot and all state stay."""
        assert isinstance(job, RuledJob)
        super().discard(job)
        self._states.drop(job.states)
        self._compensated.drop(job.compensated)
        job.forget_coded()

    def forget(self, worker: WorkerId) -> None:
        """Drop what is kept of a worker that has left; not while a merge is under way."""
        self._compensated.forget(lambda owner: owner[0] == worker)

    def close(self) -> None:
        """Release the published snapshot and the state."""
        super().close()
        self._states.forget(lambda _: True)
        self._compensated.forget(lambda _: True)

    def _begin_compensated(
        self, pushes: Sequence[Mapping[Key, Part]], origins: Sequence[Origin]
    ) -> StateDraft[tuple[WorkerId, Key]]:
        rule = self._rules.compensation
        if rule is None:
            return self._compensated.begin({})
        return self._compensated.begin(
            {
                (origin.worker, key): self._sizes[key]
                for origin, push in zip(origins, pushes, strict=True)
                for key in push
                if key in self._sizes and (rule.averages or key not in self._averaged)
            }
        )


def _coded(key: Key, pushes: Sequence[Mapping[Key, Part]]) -> int:
    return sum([key in push and push[key].codec.wire_id != DENSE for push in pushes])
