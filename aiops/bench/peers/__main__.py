"""One role of one peer, or one peer alone: ``python -m aiops.bench.peers KEY [N_BYTES] [N_WORKERS]``."""

from __future__ import annotations

import asyncio
import sys
import tempfile

import msgspec

from aiops.bench.peers.base import Case, end_with_parent, work
from aiops.bench.peers.table import PEERS, peer


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
        n_bytes, n_workers = [*map(int, arguments), 1_000_000, 1][:2] if arguments else (10**6, 1)
        asyncio.run(_alone(role, n_bytes, n_workers))
    else:
        raise SystemExit(f"{__doc__}\nKEY is one of {', '.join(PEERS)}")


async def _alone(key: str, n_bytes: int, n_workers: int) -> None:
    from aiops.bench.campaign import Contender, campaign

    with tempfile.TemporaryDirectory() as scratch:
        case = Case(n_bytes=n_bytes, n_workers=n_workers, scratch=scratch)
        result = await campaign([Contender(key, key, case)], passes=5)
    for outcome in result.outcomes.values():
        print(outcome)  # noqa: T201


if __name__ == "__main__":
    main()
