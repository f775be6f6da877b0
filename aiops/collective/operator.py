"""What the ranks do with a step's gradients: all of them, each one's largest, or one choice of positions for everybody.

Each is a dialogue from a rank's gradient to what all ranks add up to. Nothing of it lasts: the reducer looks at the
tally first, and then commits or drops the draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from aiops.collective import message
from aiops.collective.leader import Var, star
from aiops.collective.memory import Draft, Memory
from aiops.collective.message import Guess
from aiops.collective.position import PositionCode
from aiops.collective.request import Bytes, Dialogue, Floats, Positions, Route, Sum
from aiops.collective.select import Select, largest
from aiops.collective.value import ValueCode, total
from aiops.errors import RemoteProtocolError
from aiops.kernels import scatter_add

# Makes the tail once the energies are known: sent, and there.
Telling = Callable[[Draft, float], Floats]


@dataclass(slots=True, eq=False)
class Seat:
    """What a rank brings to every step.

    Attributes:
        rank: This rank.
        ranks: How many there are.
        memory: Its residual.
        values: How selected values are written.
        positions: How positions are written.
        select: Which values are selected.
        var: Its energy's average.
        guesses: Expected lengths of messages, by what they hold.
    """

    rank: int
    ranks: int
    memory: Memory
    values: ValueCode
    positions: PositionCode
    select: Select = largest
    var: Var = field(default_factory=Var)
    guesses: dict[tuple[str, int], Guess] = field(default_factory=dict)

    def guess(self, what: str, k: int, extra_bytes: int = 0) -> Guess:
        """Return how long a message of ``k`` positions is expected to be, and ``extra_bytes`` behind them."""
        if (what, k) not in self.guesses:
            # Another density: what was learnt of the last one is of no use, and there may be hundreds of them.
            for known in [key for key in self.guesses if key[0] == what]:
                del self.guesses[known]
            n_bytes = self.positions.expected(k, self.memory.n) + extra_bytes
            margin = 0.0 if self.positions.fixed else 0.02
            self.guesses[what, k] = Guess(n_bytes, margin=margin)
        return self.guesses[what, k]


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """What a step's exchange came to on this rank.

    Attributes:
        draft: What is left behind, once the step counts.
        index: What of this rank was sent; None is all.
        parts: Positions and values whose sum is the sum over all ranks, the same on each; positions None are all.
        tail: Sum of the tails.
        score: What :class:`aiops.collective.leader.Var` goes on from; None with other operators.
    """

    draft: Draft
    index: Positions | None
    parts: Sequence[tuple[Positions | None, Floats]]
    tail: Floats
    score: float | None = None

    def write(self, out: Floats, weight: float) -> None:
        """Let ``out`` be ``weight`` times the sum over all ranks.

        Args:
            out: float32, shape (n,), overwritten.
            weight: Dimensionless, 1 / ranks for the mean.
        """
        (index, value), *_ = self.parts
        if index is None:
            np.multiply(value, np.float32(weight), out=out)
            return
        out[:] = 0.0
        for index, value in self.parts:
            scatter_add(out, cast(Positions, index), value, weight)


def dense(
    seat: Seat, gradient: Floats, step: int, k: int, route: Route, tell: Telling
) -> Dialogue[Sent]:
    """Sum all values; what was left behind before goes with them, and nothing is left."""
    draft = seat.memory.draft(gradient, 0, largest)
    value = np.zeros_like(draft.left) if draft.bad >= 0 else draft.left
    both = np.concatenate([value, tell(draft, draft.energy)])
    both = cast(Floats, (yield Sum(both, route)).data)
    if draft.bad < 0:
        draft.left[:] = 0.0
    return Sent(draft, None, [(None, both[: value.size])], both[value.size :])


def allgather(
    seat: Seat, gradient: Floats, step: int, k: int, route: Route, tell: Telling
) -> Dialogue[Sent]:
    """Send every rank's own k largest, positions and values, to all."""
    draft = seat.memory.draft(gradient, k, seat.select)
    coded, seen = seat.values.encode(draft.value)
    tail = tell(draft, draft.moved_energy).view(np.uint8)
    index = seat.positions.encode(draft.index, seat.memory.n)
    fixed = tail.size + coded.size
    rows = yield from message.gather(
        np.concatenate([tail, coded, index]), seat.guess("allgather", k, fixed), route
    )
    if not seat.values.exact:
        draft.give(draft.index, draft.value - seen)
    tails, parts = np.zeros(tail.size // 4, np.float32), []
    for rank, row in enumerate(rows):
        tails += np.frombuffer(row[: tail.size].tobytes(), np.float32)
        value = seat.values.decode(row[tail.size : fixed], k)
        parts.append((_positions(seat, row[fixed:], k, rank), value))
    return Sent(draft, draft.index, parts, tails)


def artopk(
    seat: Seat, gradient: Floats, step: int, k: int, route: Route, tell: Telling
) -> Dialogue[Sent]:
    """Send the values at one leader's k largest, where all ranks lead in turn (STAR-Topk)."""
    leader = star(step, seat.ranks)
    draft = seat.memory.draft(gradient, k if leader == seat.rank else 0, seat.select)
    return (yield from _follow(seat, draft, leader, k, route, tell))


def var(
    seat: Seat, gradient: Floats, step: int, k: int, route: Route, tell: Telling
) -> Dialogue[Sent]:
    """Send the values at the k largest of the rank where those hold most energy (VAR-Topk)."""
    draft = seat.memory.draft(gradient, k, seat.select)
    score = seat.var.next(draft.moved_energy)
    leader = yield from seat.var.ask(score, route)
    if leader != seat.rank:
        draft.put_back()
    sent = yield from _follow(seat, draft, leader, k, route, tell)
    return Sent(sent.draft, sent.index, sent.parts, sent.tail, score)


def vote(
    seat: Seat, gradient: Floats, step: int, k: int, route: Route, tell: Telling
) -> Dialogue[Sent]:
    """Send the values at what any rank has among its own k / ranks largest."""
    share = max(1, k // seat.ranks) if k else 0
    draft = seat.memory.draft(gradient, share, seat.select)
    code = seat.positions.encode(draft.index, seat.memory.n)
    rows = yield from message.gather(code, seat.guess("vote", share), route)
    votes = [_positions(seat, row, share, rank) for rank, row in enumerate(rows)]
    draft.put_back()
    return (yield from _values(seat, draft, np.unique(np.concatenate(votes)), route, tell))


OPERATORS = {"dense": dense, "allgather": allgather, "artopk": artopk, "var": var, "vote": vote}


def _follow(
    seat: Seat, draft: Draft, leader: int, k: int, route: Route, tell: Telling
) -> Dialogue[Sent]:
    leads = leader == seat.rank
    code: Bytes | None = seat.positions.encode(draft.index, seat.memory.n) if leads else None
    seen = yield from message.broadcast(code, leader, seat.guess("leader", k), route)
    index = draft.index if leads else _positions(seat, seen, k, leader)
    if leads:
        draft.put_back()
    return (yield from _values(seat, draft, index, route, tell))


def _values(
    seat: Seat, draft: Draft, index: Positions, route: Route, tell: Telling
) -> Dialogue[Sent]:
    value = draft.take(index)
    tail = tell(draft, draft.moved_energy)
    summed = yield from total(
        seat.values, value, tail, rank=seat.rank, ranks=seat.ranks, route=route
    )
    draft.give(index, summed.lost)
    return Sent(draft, index, [(index, summed.value)], summed.tail)


def _positions(seat: Seat, code: Bytes, k: int, rank: int) -> Positions:
    try:
        return seat.positions.decode(np.ascontiguousarray(code), k, seat.memory.n)
    except ValueError as error:
        raise RemoteProtocolError(f"positions from rank {rank} make no sense: {error}") from None
