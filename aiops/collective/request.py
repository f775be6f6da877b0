"""What a rank asks of its group, one request at a time, and what each costs on a link.

An exchange of gradients is a generator that yields requests and is sent replies. So it knows no torch, no clock and no
socket: :class:`aiops.collective.group.Group` answers with collectives of torch.distributed, :mod:`aiops.sim.ranks` with
sums in memory and virtual seconds.

Every request has a route. ``ring`` is what Gloo does: a ring for sums and gathers, a binomial tree for a broadcast.
``tree`` sums along a binomial tree to rank 0 and broadcasts the sum. ``direct`` sends each byte straight to whom it is
for, over all links at once: one hop where the ring takes N - 1.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Route = Literal["ring", "tree", "direct"]
ROUTES: dict[str, Route] = {"ring": "ring", "tree": "tree", "direct": "direct"}
Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float32]
Bytes: TypeAlias = NDArray[np.uint8]
Positions: TypeAlias = NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class Broadcast:
    """Give everybody what ``source`` has.

    Attributes:
        data: One-dimensional, of the same size and dtype on every rank; overwritten but on ``source``. The reply is
            this array.
        source: Rank of the sender.
        route: See the module.
    """

    data: Array
    source: int
    route: Route


@dataclass(frozen=True, slots=True, eq=False)
class Gather:
    """Give everybody what each rank has.

    Attributes:
        data: Shape (m,), the same on every rank; read only. The reply has shape (ranks, m), a row for each rank.
        route: See the module.
    """

    data: Array
    route: Route


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """Give everybody the sum over all ranks, the same bits to each.

    Attributes:
        data: float32, shape (m,), overwritten with the sum, which is the reply.
        route: See the module.
    """

    data: Floats
    route: Route


@dataclass(frozen=True, slots=True, eq=False)
class Deal:
    """Give rank r the r-th row of each rank; always direct.

    Attributes:
        data: Shape (ranks, m), the same on every rank; read only. The reply has that shape, its r-th row is rank r's.
    """

    data: Array


@dataclass(frozen=True, slots=True)
class Ping:
    """Send a few bytes to another rank and have them back; always direct.

    Attributes:
        turn: Who is paired: with an even one ranks 0 and 1, 2 and 3, ..., with an odd one 1 and 2, 3 and 4, ...
        count: Round trips. The reply is float64, shape (count,), the seconds of each, or (0,) on who only answers.
    """

    turn: int
    count: int


Request: TypeAlias = Broadcast | Gather | Sum | Deal | Ping


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What a request came to.

    Attributes:
        data: See each request.
        seconds: How long this rank was busy with it, waiting for others included.
    """

    data: Array
    seconds: float


T = TypeVar("T")
Dialogue: TypeAlias = Generator[Request, Reply, T]


@dataclass(frozen=True, slots=True)
class Path:
    """What a request costs the link that is busiest with it: ``hops * latency + n_bytes / bandwidth`` seconds.

    Attributes:
        hops: Messages that wait for each other.
        n_bytes: Bytes that pass one after the other.
    """

    hops: int
    n_bytes: float

    def __add__(self, other: Path) -> Path:
        return Path(self.hops + other.hops, self.n_bytes + other.n_bytes)


def path(request: Request, ranks: int) -> Path:
    """Return what a request costs among ``ranks``; nothing where there is one.

    The terms are those of :mod:`aiops.policy.cost` (Tyagi and Swany, 2023, Table I, and how Gloo does it).
    """
    others = ranks - 1
    if not others:
        return Path(0, 0.0)
    match request:
        case Broadcast(data, _, "direct"):
            return Path(1, others * data.nbytes)
        case Broadcast(data):
            return Path(rounds(ranks), rounds(ranks) * data.nbytes)
        case Gather(data, route):
            return Path(1 if route == "direct" else others, others * data.nbytes)
        case Sum(data, "tree"):
            return Path(2 * rounds(ranks), 2 * rounds(ranks) * data.nbytes)
        case Sum(data, route):
            return Path(2 if route == "direct" else 2 * others, 2 * others / ranks * data.nbytes)
        case Deal(data):
            return Path(1, others / ranks * data.nbytes)
        case Ping(_, count):
            return Path(2 * count, 16.0 * count)


def rounds(ranks: int) -> int:
    """Return how many rounds a binomial tree takes to reach ``ranks``: log2, rounded up."""
    return (ranks - 1).bit_length()
