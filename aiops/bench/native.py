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
        Skipped: There is no compiler, or it does not compile this.
    """
    binary = Path(scratch, source.stem)
    if not binary.exists():
        # Renamed when whole: several processes may build at the same time.
        part = binary.with_suffix(f".{os.getpid()}")
        command = [compiler(), *options, str(source), "-o", str(part)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, errors="replace")
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skipped(f"{command[0]} cannot compile {source.name}: {_why(error)}") from None
        part.replace(binary)
    return str(binary)


# The first error, or what comes first of what it says.
def _why(error: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(error, OSError):
        return str(error.strerror or error)
    told = str(error.stderr).strip().splitlines() or [f"it ended with {error.returncode}"]
    return next((line for line in told if "error" in line), told[0])
