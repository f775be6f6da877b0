"""The server's side of the torch RPC peer: imported by the processes that call it and by the one that runs it."""

from __future__ import annotations

import threading

import torch
from torch import Tensor
from torch.distributed import rpc
from torch.futures import Future

from aiops.bench.peers.base import Case


class _Round:
    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.total: Tensor | None = None
        self.waiting: list[Future[Tensor]] = []
        # Calls come in on several threads of TensorPipe's.
        self.turn = threading.Lock()


_round = _Round(1)


def start(case: Case) -> None:
    """Say how many calls make a round."""
    _round.n_workers = case.n_workers


@rpc.functions.async_execution  # type: ignore[untyped-decorator]
def sync(update: Tensor) -> Future[Tensor]:
    """Add a worker's tensor to the round's sum, in place; answer when all have called."""
    future: Future[Tensor] = torch.futures.Future()
    with _round.turn:
        _round.total = update if _round.total is None else _round.total.add_(update)
        _round.waiting.append(future)
        if len(_round.waiting) < _round.n_workers:
            return future
        total, waiting = _round.total, _round.waiting
        _round.total, _round.waiting = None, []
    for each in waiting:
        each.set_result(total)
    return future
