"""Ranks of a collective job in one process, in lockstep: their requests are answered in memory, in virtual seconds.

Sums are added in the order of the ranks, so that runs repeat bit for bit, and every rank gets the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from aiops.collective.request import (
    Array,
    Broadcast,
    Deal,
    Dialogue,
    Gather,
    Ping,
    Reply,
    Request,
    Sum,
    path,
)
from aiops.policy.exchange import Network

T = TypeVar("T")

_INSTANT = Network(0.0, 0.0)


def converse(
    dialogues: Sequence[Dialogue[T]], *, network: Network = _INSTANT
) -> tuple[list[T], float]:
    """Run one dialogue per rank to their ends.

    Args:
        dialogues: In the order of the ranks. All ask for the same thing each time.
        network: What a request costs on it is what its reply says.

    Returns:
        What each dialogue returns, and the virtual seconds of their requests.

    Raises:
        RuntimeError: The ranks do not ask for the same, or not all end at the same time.
        Exception: Whatever the dialogues raise; where they raise different things, an ExceptionGroup.
    """
    replies: list[Reply | None] = [None] * len(dialogues)
    elapsed_s = 0.0
    while True:
        requests: list[Request] = []
        results: list[T] = []
        errors: list[Exception] = []
        for dialogue, reply in zip(dialogues, replies, strict=True):
            try:
                requests.append(dialogue.send(reply))  # type: ignore[arg-type]  # None starts a generator
            except StopIteration as end:
                results.append(end.value)
            except Exception as error:
                errors.append(error)
        if errors:
            _raise(errors, len(dialogues))
        if not requests:
            return results, elapsed_s
        if results:
            raise RuntimeError(f"{len(results)} of {len(dialogues)} ranks are done, the others ask")
        cost = path(requests[0], len(requests))
        seconds = cost.hops * network.latency_s + cost.n_bytes * network.byte_s
        elapsed_s += seconds
        data = _answer(requests, network)
        replies = [Reply(each, seconds) for each in data]


def _raise(errors: list[Exception], ranks: int) -> None:
    if len(errors) < ranks:
        raise ExceptionGroup(f"{len(errors)} of {ranks} ranks failed, the others go on", errors)
    if len({(type(error), str(error).partition(" (here")[0]) for error in errors}) > 1:
        raise ExceptionGroup("every rank failed, not all alike", errors)
    raise errors[0]


def _answer(requests: Sequence[Request], network: Network) -> list[Array]:
    ranks = len(requests)
    match requests[0]:
        case Broadcast(_, source):
            casts = _alike(requests, Broadcast)
            for cast in casts:
                if cast.data is not casts[source].data:
                    cast.data[:] = casts[source].data
            return [cast.data for cast in casts]
        case Gather():
            rows = np.stack([each.data for each in _alike(requests, Gather)])
            return [rows.copy() for _ in requests]
        case Sum():
            sums = _alike(requests, Sum)
            whole = sums[0].data.copy()
            with np.errstate(over="ignore"):
                for each in sums[1:]:
                    whole += each.data
            for each in sums:
                each.data[:] = whole
            return [each.data for each in sums]
        case Deal():
            deals = _alike(requests, Deal)
            return [np.stack([each.data[rank] for each in deals]) for rank in range(ranks)]
        case Ping(turn, count):
            # A rank starts a ping where it is the lower one of its pair.
            starts = [rank % 2 == turn % 2 and rank + 1 < ranks for rank in range(ranks)]
            return [np.full(count * start, 2 * network.latency_s) for start in starts]


R = TypeVar("R", Broadcast, Gather, Sum, Deal, Ping)


def _alike(requests: Sequence[Request], kind: type[R]) -> list[R]:
    same = [each for each in requests if isinstance(each, kind)]
    if len(same) < len(requests):
        kinds = ", ".join(type(each).__name__ for each in requests)
        raise RuntimeError(f"the ranks ask for different things: {kinds}")
    return same
