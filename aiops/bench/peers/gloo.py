"""torch.distributed's Gloo: send and recv to a rank that sums, into buffers that are there already."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiops.bench.peers.base import HOST, Case, Round, announce, free_port, package

if TYPE_CHECKING:
    from torch.distributed import Work


class Gloo:
    """A star of point-to-point messages; the server is rank 0."""

    name = "torch Gloo"
    spins = False

    def versions(self) -> str:
        """Return torch's version."""
        return package("torch")

    def serve(self, case: Case) -> None:
        """Receive from all, add in rank order, send to all."""
        import torch
        import torch.distributed as dist

        port = free_port()
        announce(port)
        join(case, port, 0)
        parts = [torch.empty(case.n_values) for _ in range(case.n_workers)]
        while True:
            for rank, coming in enumerate([dist.irecv(p, r + 1) for r, p in enumerate(parts)]):
                _wait(coming)
                if rank:
                    parts[0].add_(parts[rank])
            for going in [dist.isend(parts[0], r + 1) for r in range(case.n_workers)]:
                _wait(going)

    @contextlib.contextmanager
    def connect(self, case: Case, address: str, rank: int) -> Iterator[Round]:
        """Send, then receive."""
        import torch
        import torch.distributed as dist

        join(case, address, rank + 1)
        update, total = torch.from_numpy(case.update(rank)), torch.empty(case.n_values)

        def do_round() -> float:
            dist.send(update, 0)
            dist.recv(total, 0)
            return float(total[-1])

        yield do_round


def _wait(work: Work | None) -> None:
    if work is not None:
        work.wait()


def join(case: Case, port: str, rank: int) -> None:
    """Make the process group, over loopback."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    # torch takes the interface from nowhere else, and a host's own name may lead nowhere.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    where = f"tcp://{HOST}:{port}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=case.n_workers + 1)
