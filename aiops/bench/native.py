"""C that is compiled where it is measured, with the system's own compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from aiops.bench.peers.base import Skipped


def compiler() -> str:
    """Return the system's C compiler.

    Raises:
        Skipped: There is none.
    """
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        raise Skipped("there is no C compiler (cc)")
    return found


def build(scratch: str, source: Path, *options: str) -> str:
    """Compile a source, once for a scratch directory, and return the path of what came out.

    Raises:
        Skipped: There is no compiler.
    """
    binary = Path(scratch, source.stem)
    if not binary.exists():
        # Renamed when whole: several processes may build at the same time.
        part = binary.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler(), *options, source, "-o", part], check=True)
        part.replace(binary)
    return str(binary)
