"""The bound: plain C sockets, compiled here and now from ``sockets.c``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

from aiops.bench.peers.base import Case, Skipped

SOURCE = Path(__file__).with_name("sockets.c")


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
        binary = build(case.scratch)
        os.execv(binary, [binary, "serve", shape, str(case.n_bytes), workers, case.congestion])

    def connect(self, case: Case, address: str, rank: int) -> NoReturn:
        """Become a C worker, which speaks the driver's protocol itself."""
        shape = "one-way" if case.one_way else self.shape
        binary = build(case.scratch)
        os.execv(binary, [binary, "work", shape, str(case.n_bytes), address, case.congestion])


class Epoll(Blocking):
    """The same with one event loop on the server: what a single-threaded server can do with small messages."""

    name = "C epoll echo"
    spins = False
    shape = "epoll"


def compiler() -> str:
    """Return the system's C compiler.

    Raises:
        Skipped: There is none.
    """
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        raise Skipped("there is no C compiler (cc)")
    return found


def build(scratch: str) -> str:
    """Compile the program, once for a scratch directory, and return its path."""
    binary = Path(scratch, "sockets")
    if not binary.exists():
        # Renamed when whole: several processes may build at the same time.
        part = binary.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler(), "-O2", "-pthread", SOURCE, "-o", part], check=True)
        part.replace(binary)
    return str(binary)
