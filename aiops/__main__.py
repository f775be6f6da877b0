"""``python -m aiops`` is the same command as ``aiops``."""

from __future__ import annotations

import sys

from aiops.cli import main

if __name__ == "__main__":
    sys.exit(main())
