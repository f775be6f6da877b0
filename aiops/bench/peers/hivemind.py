"""hivemind: decentralized averaging between the workers and one more peer, matchmaking included."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aiops.bench.peers.base import HOST, Case, Round, announce, package

if TYPE_CHECKING:
    import torch

MATCHMAKING_S = 1.0
ALLREDUCE_S = 60.0


class Hivemind:
    """Everybody averages with everybody; the server's process is one more peer, with zeros."""

    name = "hivemind"
    spins = True

    def versions(self) -> str:
        """Return hivemind's version."""
        return package("hivemind")

    def serve(self, case: Case) -> None:
        """Be the peer that the others find first."""
        import torch

        zeros = torch.zeros(case.n_values)
        with self._averager(case, zeros, []) as (dht, averager):
            announce(str(dht.get_visible_maddrs()[0]))
            while True:
                with averager.get_tensors() as tensors:
                    tensors[0].zero_()
                averager.step(allow_retries=True)

    @contextlib.contextmanager
    def connect(self, case: Case, address: str, rank: int) -> Iterator[Round]:
        """Put the update in, average, and make a sum of the mean."""
        import torch

        update = torch.from_numpy(case.update(rank))
        with self._averager(case, update.clone(), [address]) as (_, averager):

            def do_round() -> float:
                with averager.get_tensors() as tensors:
                    tensors[0].copy_(update)
                averager.step(allow_retries=True)
                with averager.get_tensors() as tensors:
                    return float(tensors[0][-1]) * (case.n_workers + 1)

            yield do_round

    @staticmethod
    @contextlib.contextmanager
    def _averager(case: Case, tensor: torch.Tensor, known: list[str]) -> Iterator[tuple[Any, Any]]:
        import hivemind

        dht = hivemind.DHT(
            initial_peers=known, host_maddrs=[f"/ip4/{HOST}/tcp/0"], use_ipfs=False, start=True
        )
        averager = hivemind.DecentralizedAverager(
            [tensor],
            dht=dht,
            prefix="bench",
            target_group_size=case.n_workers + 1,
            min_matchmaking_time=MATCHMAKING_S,
            allreduce_timeout=ALLREDUCE_S,
            request_timeout=MATCHMAKING_S / 2,
            start=True,
        )
        try:
            yield dht, averager
        finally:
            averager.shutdown()
            dht.shutdown()
