"""What a step's requests came to."""

from __future__ import annotations

from typing import TypeVar

from aiops.collective.request import Dialogue, Path, Reply, Request, path

T = TypeVar("T")


class Meter:
    """Adds up the requests of one step.

    Args:
        ranks: How many take part.

    Attributes:
        total: What they cost the busiest link.
        seconds: How long this rank was busy with them.
        largest: Path and seconds of the one that moved most bytes.
    """

    __slots__ = ("_ranks", "largest", "seconds", "total")

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self.total = Path(0, 0.0)
        self.seconds = 0.0
        self.largest = (self.total, 0.0)

    def watch(self, dialogue: Dialogue[T]) -> Dialogue[T]:
        """Pass a dialogue on, and count its requests."""
        reply: Reply | None = None
        while True:
            try:
                request = dialogue.send(reply)  # type: ignore[arg-type]  # None starts a generator
            except StopIteration as end:
                result: T = end.value
                return result
            reply = yield request
            self.add(request, reply.seconds)

    def add(self, request: Request, seconds: float) -> None:
        """Count one request.

        Args:
            request: Which.
            seconds: How long this rank was busy with it.
        """
        cost = path(request, self._ranks)
        self.total += cost
        self.seconds += seconds
        if cost.n_bytes > self.largest[0].n_bytes:
            self.largest = (cost, seconds)
