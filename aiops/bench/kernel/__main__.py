"""Some cases alone, where one is worked on: ``python -m aiops.bench.kernel NAME... [--n N]...``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile

from aiops.bench.result import Line
from aiops.bench.run import Bench
from aiops.bench.suites import kernels
from aiops.bench.table import table
from aiops.cli.bench_view import View

# So that the smallest density, 0.001, leaves one value.
SHORTEST = 1000


def main() -> None:
    """Measure the cases with one of the arguments in their names."""
    parser = argparse.ArgumentParser(prog="aiops.bench.kernel")
    parser.add_argument("name", nargs="+", help="a part of a case's name")
    parser.add_argument("--n", type=_length, action="append", default=[], help="a vector's length")
    options = parser.parse_args()
    if not kernels.named(options.name):
        parser.error(f"no case has {' or '.join(map(repr, options.name))} in its name")
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="aiops-bench-") as scratch:
        bench = Bench(View(sys.stderr), lines.append, scratch=scratch)
        asyncio.run(kernels.run(bench, sizes=options.n, names=options.name))
    sys.stdout.writelines(f"{line}\n" for line in table(lines))


def _length(text: str) -> int:
    n = int(text) if text.isascii() and text.isdigit() else 0
    if n < SHORTEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of at least {SHORTEST}")
    return n


if __name__ == "__main__":
    main()
