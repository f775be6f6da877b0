"""A merge that is more than a weighted sum: by a rule, by an optimizer, or coded for the way down.

Bucket by bucket and piece by piece: what is merged stays in the cache, and what is needed beside the parameters and the
state of the rules is a few pieces, and a bucket for every push that must be decoded. A merge works on copies of all
state, which count with its parameters or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from aiops.buffers import Block
from aiops.codec.base import DENSE, PlacedCodec
from aiops.errors import NotFinite
from aiops.kernels import first_nonfinite, merge_checked
from aiops.merge.base import Rules, Selection, Vector
from aiops.server.downlink import Coded, Downlink
from aiops.server.draft import CHUNK_BYTES
from aiops.server.shard import Draft, MergeJob, Origin, Part
from aiops.server.state import StateDraft
from aiops.types import Key, WorkerId


@runtime_checkable
class RuledDraft(Draft, Protocol):
    """A draft that a merge of its bucket alone has made."""

    @property
    def job(self) -> RuledJob:
        """That merge."""


class RuledJob(MergeJob, kw_only=True):
    """A merge by rules. :meth:`measure` and :meth:`run` may happen in another thread.

    Attributes:
        distances: What this shard contributes to the distances between the pushes; set by :meth:`measure`.
        states: The optimizer's next state by key.
        compensated: The compensation's next state by worker and key.
        coded: What goes down in place of the values, and what that leaves behind.
    """

    distances: NDArray[np.float64]
    states: StateDraft[Key]
    compensated: StateDraft[tuple[WorkerId, Key]]
    coded: Coded
    _rules: Rules
    _origins: Sequence[Origin]
    _decoded: list[Block]
    _downlink: Downlink | None
    # What a bucket's round would change, where that is coded first.
    _change: Block | None

    def measure(self) -> None:
        """Compare this shard's part of the pushes with each other."""
        rule = self._rules.aggregation
        assert isinstance(rule, Selection)
        n = len(self._pushes)
        for key, block in self.fresh.items():
            size = len(block) // 4
            here = [i for i, push in enumerate(self._pushes) if key in push]
            if not here:
                continue
            vectors = dict(zip(here, self._vectors(key, here), strict=True))
            for piece in _pieces(size):
                nothing = np.zeros(min(piece.stop, size) - piece.start, np.float32)
                self.distances += rule.compare(
                    [vectors[i][piece] if i in vectors else nothing for i in range(n)]
                )

    def forget_coded(self) -> None:
        """Give back what the downlink keeps for its next rounds, of a merge that does not count."""
        if self._downlink is not None:
            self._downlink.drop(self.coded)

    def weigh(self, weights: Sequence[float]) -> None:
        """Merge with these weights instead."""
        self._weights = weights

    def take_over(self, draft: RuledJob) -> None:
        """Count what a merge of some of the buckets has made of state, and coded, as this one's."""
        self.states.fresh.update(draft.states.fresh)
        self.compensated.fresh.update(draft.compensated.fresh)
        self.coded.payloads.update(draft.coded.payloads)
        self.coded.rests.update(draft.coded.rests)

    def end(self) -> None:
        """Give back what was needed on the way."""
        super().end()
        for block in self._decoded:
            block.release()
        self._decoded = []
        if self._change is not None:
            self._change.release()
            self._change = None

    def run(self) -> None:
        """Compute the next parameters and the optimizer's next state."""
        if self.error is None:
            with np.errstate(all="ignore"):
                super().run()

    def _merge(self, key: Key, values: Vector) -> int:
        old = self._old[key].float32()
        if self._downlink is None or key in self._averaged:
            return self._apply(key, old, values)
        assert self._change is not None
        # From nothing: what is added to large parameters and taken off again has lost its last bits.
        change = self._change.float32()[: values.size]
        position = self._apply(key, None, change)
        if position >= 0:
            return position
        try:
            place = _place(self._pushes, key)
            self._downlink.encode(key, change, old, out=values, coded=self.coded, place=place)
        except NotFinite as error:
            name = self._downlink.codec.name
            self.error = NotFinite(
                f"what the round changes does not fit down codec {name}: {error}"
            )
            return -1
        return first_nonfinite(values)

    # What the round makes of these values, or of zeros; the position of the first result that is not finite, or -1.
    def _apply(self, key: Key, old: Vector | None, out: Vector) -> int:
        shares, gain = self._shares(key)
        here = [i for i, push in enumerate(self._pushes) if key in push]
        chosen = [i for i in here if shares[i]]
        self._carry_over(key, [i for i in here if not shares[i]], moves=bool(chosen))
        if not chosen:
            # Nothing of it came, so nothing of it moves, whatever velocity it has.
            np.copyto(out, np.float32(0.0) if old is None else old)
            return -1
        sources, weights = self._sources(key, chosen, [shares[i] for i in chosen])
        memory = np.zeros((2, min(CHUNK_BYTES // 4, out.size)), np.float32)
        for piece in _pieces(out.size):
            target = out[piece]
            update, start = memory[0, : target.size], memory[1, : target.size]
            pieces = [source[piece] for source in sources]
            position = self._compensate(key, chosen, piece, pieces)
            if position < 0:
                self._rules.aggregation.combine(pieces, weights, update)
                if gain != 1.0:
                    update *= np.float32(gain)
                before = start if old is None else old[piece]
                position = self._step(key, piece, before, update, target)
            if position >= 0:
                return int(piece.start) + position
        return -1

    # State of what does not move stays as it is.
    def _carry_over(self, key: Key, weightless: Sequence[int], *, moves: bool) -> None:
        if not moves and key in self.states.fresh:
            self.states.carry(key)
        for i in weightless:
            if self._origins and (self._origins[i].worker, key) in self.compensated.fresh:
                self.compensated.carry((self._origins[i].worker, key))

    # Put what fits the present parameters in the place of these pieces of pushes.
    def _compensate(
        self, key: Key, chosen: Sequence[int], piece: slice, pieces: list[Vector]
    ) -> int:
        rule = self._rules.compensation
        if rule is None or (key in self._averaged and not rule.averages):
            return -1
        params = self._old[key].float32()[piece]
        states: dict[WorkerId, list[Vector]] = {}
        for place, i in enumerate(chosen):
            origin = self._origins[i]
            # Several pushes of one worker move its state on one after the other.
            if origin.worker not in states:
                states[origin.worker] = self.compensated.carry((origin.worker, key), piece)
            state = states[origin.worker]
            base = origin.base[key].float32()[piece]
            out = np.empty_like(params)
            position = rule.correct(pieces[place], params, base, state, out)
            if position >= 0:
                return position
            pieces[place] = out
        return -1

    def _step(self, key: Key, piece: slice, old: Vector, update: Vector, out: Vector) -> int:
        if key in self._averaged:
            return merge_checked(old, [update], [1.0], out=out)
        state = self.states.carry(key, piece)
        return self._rules.optimizer.step(old, update, state, out)

    # What is combined, and at which weights: sparse pushes of a sum are added up first, where they lie.
    def _sources(
        self, key: Key, chosen: Sequence[int], weights: Sequence[float]
    ) -> tuple[list[Vector], Sequence[float]]:
        if self._scratch is None:
            return self._vectors(key, chosen), weights
        acc = self._scratch.float32()[: len(self.fresh[key]) // 4]
        acc.fill(0.0)
        for i, weight in zip(chosen, weights, strict=True):
            part = self._pushes[i][key]
            part.codec.add_to(acc, part.payload, weight)
        return [acc], [1.0]

    # The pushes' parts as vectors: those that are plain where they lie, the others decoded one beside the other.
    def _vectors(self, key: Key, which: Sequence[int]) -> list[Vector]:
        vectors: list[Vector] = []
        spare = iter(self._decoded)
        for i in which:
            part = self._pushes[i][key]
            if part.codec.wire_id == DENSE:
                vectors.append(np.frombuffer(part.payload, np.float32))
                continue
            vector = next(spare).float32()[: len(self.fresh[key]) // 4]
            vector.fill(0.0)
            part.codec.add_to(vector, part.payload, 1.0)
            vectors.append(vector)
        return vectors


# Where the pushes of a round have a bucket's values, where positions were chosen for all.
def _place(pushes: Sequence[Mapping[Key, Part]], key: Key) -> PlacedCodec | None:
    codec = pushes[0][key].codec if pushes and key in pushes[0] else None
    return codec if isinstance(codec, PlacedCodec) else None


def _pieces(size: int) -> Iterator[slice]:
    step = CHUNK_BYTES // 4
    for at in range(0, size, step):
        yield slice(at, min(at + step, size))
