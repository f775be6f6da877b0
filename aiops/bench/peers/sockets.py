"""The bound: plain C sockets, compiled here and now from ``sockets.c``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NoReturn

from aiops.bench.native import build, compiler
from aiops.bench.peers.base import Case

SOURCE = Path(__file__).with_name("sockets.c")
OPTIONS = ("-O2", "-pthread")


class Blocking:
    """A blocking socket pair, a thread a worker on the server: two one-way transfers, nothing summed."""

    name = "C sockets"
    spins = False
    shape = "round"

    def versions(self) -> str:
        """Return the compiler's first line."""
        command = [compiler(), "--version"]
        told = subprocess.run(command, capture_output=True, check=False, text=True).stdout
        return told.partition("\n")[0]

    def serve(self, case: Case) -> None:
        """Become the C server."""
        shape = "one-way" if case.one_way else self.shape
        workers = str(case.n_workers)
        binary = build(case.scratch, SOURCE, *OPTIONS)
        os.execv(binary, [binary, "serve", shape, str(case.n_bytes), workers, case.congestion])

    def connect(self, case: Case, address: str, rank: int) -> NoReturn:
        """Become a C worker, which speaks the driver's protocol itself."""
        shape = "one-way" if case.one_way else self.shape
        binary = build(case.scratch, SOURCE, *OPTIONS)
        os.execv(binary, [binary, "work", shape, str(case.n_bytes), address, case.congestion])


class Epoll(Blocking):
    """The same with one event loop on the server: what a single-threaded server can do with small messages."""

    name = "C epoll echo"
    spins = False
    shape = "epoll"
