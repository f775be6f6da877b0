"""One role of one peer, or one peer alone: ``python -m aiops.bench.peers KEY [N_BYTES] [N_WORKERS]``."""

from __future__ import annotations

import asyncio
import sys
import tempfile

import msgspec

from aiops.bench.peers.base import Case, end_with_parent, work
from aiops.bench.peers.table import PEERS, peer
from aiops.bench.result import Line


def main() -> None:
    """Serve or work for whoever started this; or measure one peer for whoever typed it."""
    role, *arguments = sys.argv[1:] or ["help"]
    if role == "serve":
        end_with_parent()
        peer(arguments[0]).serve(msgspec.json.decode(arguments[1], type=Case))
    elif role == "work":
        end_with_parent()
        key, case, address, rank = arguments
        work(peer(key), msgspec.json.decode(case, type=Case), address, int(rank))
    elif role in PEERS:
        n_bytes = int(arguments[0]) if arguments else 1_000_000
        n_workers = int(arguments[1]) if len(arguments) > 1 else 1
        asyncio.run(_alone(role, n_bytes, n_workers))
    else:
        raise SystemExit(f"{__doc__}\nKEY is one of {', '.join(PEERS)}")


async def _alone(key: str, n_bytes: int, n_workers: int) -> None:
    from aiops.bench.campaign import Contender
    from aiops.bench.run import Bench
    from aiops.bench.suites.peers import workers
    from aiops.bench.table import table
    from aiops.cli.bench_view import View

    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(View(sys.stderr), lines.append, scratch=scratch)
        contender = Contender(peer(key).name, key, bench.case(n_bytes, n_workers))
        name = f"{n_bytes} bytes, {workers(n_workers)}"
        await bench.compete("alone", name, [contender], passes=5, ours=contender.label)
    print(*table(lines), sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
