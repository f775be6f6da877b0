"""torch.distributed.rpc (TensorPipe) with its default transports, which on one machine are shared memory and uv."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from aiops.bench.peers.base import HOST, Case, Round, announce, free_port, package

TIMEOUT_S = 60


class Rpc:
    """A remote call that returns when all workers have called: ``async_execution`` and a future."""

    # Its bytes go past TCP: a row that does not say so would be compared with those that do not.
    name = "torch RPC (uv/shm)"
    spins = True

    def versions(self) -> str:
        """Return torch's version."""
        return package("torch")

    def serve(self, case: Case) -> None:
        """Run the calls of all workers, until killed."""
        from aiops.bench.peers import rpc_sum

        rpc_sum.start(case)
        port = free_port()
        announce(port)
        join(case, port, 0)
        # Waits for the workers to end, which they do when whoever measures ends them.
        import torch.distributed.rpc as rpc

        rpc.shutdown()

    @contextlib.contextmanager
    def connect(self, case: Case, address: str, rank: int) -> Iterator[Round]:
        """Call, and look at the answer."""
        import torch
        import torch.distributed.rpc as rpc

        from aiops.bench.peers import rpc_sum

        join(case, address, rank + 1)
        update = torch.from_numpy(case.update(rank))

        def do_round() -> float:
            return float(rpc.rpc_sync("rank0", rpc_sum.sync, args=(update,))[-1])

        yield do_round


def join(case: Case, port: str, rank: int) -> None:
    """Join the group, over loopback."""
    import torch
    import torch.distributed.rpc as rpc

    torch.set_num_threads(1)
    # TensorPipe takes the interface from nowhere else, and a host's own name may lead nowhere.
    os.environ["TP_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=case.n_workers + 2,
        rpc_timeout=TIMEOUT_S,
        init_method=f"tcp://{HOST}:{port}",
    )
    rpc.init_rpc(  # type: ignore[no-untyped-call]
        f"rank{rank}", rank=rank, world_size=case.n_workers + 1, rpc_backend_options=options
    )
