"""One role of one peer, or one peer alone: ``python -m aiops.bench.peers KEY [N_BYTES] [N_WORKERS]``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence

import msgspec

from aiops.bench.peers.base import Case, Skipped, end_with_parent, work
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
    else:
        asyncio.run(_alone(*_asked(sys.argv[1:])))


# What a person typed: the peer, bytes and workers.
def _asked(arguments: Sequence[str]) -> tuple[str, int, int]:
    parser = argparse.ArgumentParser(prog="aiops.bench.peers", description=__doc__)
    parser.add_argument("key", choices=PEERS, help="the library")
    parser.add_argument("n_bytes", nargs="?", type=_number, default=1_000_000)
    parser.add_argument("n_workers", nargs="?", type=_number, default=1)
    asked = parser.parse_args(arguments)
    if asked.n_bytes % 4:
        parser.error(f"{asked.n_bytes} bytes are no whole number of float32 values")
    try:
        peer(asked.key).versions()
    except Skipped as error:
        parser.error(str(error))
    return asked.key, asked.n_bytes, asked.n_workers


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


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
