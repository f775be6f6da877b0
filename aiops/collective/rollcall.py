"""Who is still there after a collective failed: every rank signs in the job's store, and waits for the others to."""

from __future__ import annotations

import time
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from aiops.errors import TransportError


class RankLost(TransportError):
    """Ranks of the job are gone, or do not answer; the group cannot be used any more.

    Attributes:
        ranks: Who did not sign within the deadline. Empty where all did: then a link between two of them failed, and
            the cause says which.
    """

    def __init__(self, ranks: tuple[int, ...], *, step: int, waited_s: float, cause: str) -> None:
        who = ", ".join(str(rank) for rank in ranks)
        lost = f"rank {who} is gone or does not answer" if ranks else "a link between ranks failed"
        super().__init__(f"{lost}, found after {waited_s:.3g} s in step {step}: {cause}")
        self.ranks = ranks


def call(store: Store, name: str, *, rank: int, ranks: int, within_s: float) -> tuple[int, ...]:
    """Sign, and return who has not signed in time.

    Args:
        store: The job's key-value store.
        name: What is called for; a name is good for one call.
        rank: This rank.
        ranks: How many there are.
        within_s: How long to wait for the others together, in seconds.
    """
    until = time.monotonic() + within_s
    lost = []
    try:
        store.set(f"{name}/{rank}", "here")
        for other in range(ranks):
            left = timedelta(seconds=max(until - time.monotonic(), 0.001))
            if other != rank and not _signs(store, f"{name}/{other}", left):
                lost.append(other)
    except dist.DistNetworkError:
        # The store went with the process that keeps it: rank 0, unless torchrun's agent does.
        return (0,) if rank else ()
    return tuple(lost)


# Stores say a timeout each in its own way, but only a lost connection as DistNetworkError.
def _signs(store: Store, key: str, within: timedelta) -> bool:
    try:
        store.wait([key], within)
    except dist.DistNetworkError:
        raise
    except RuntimeError:
        return False
    return True
