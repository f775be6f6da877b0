"""What the modules here have of the harness, which lives in ``aiops/bench``."""

from __future__ import annotations

import platform

from aiops.bench.harness import Spread as Spread
from aiops.bench.harness import interleave as interleave
from aiops.bench.harness import speedup as speedup
from aiops.bench.machine import commit, processor


def machine() -> str:
    """Return one line on where and on what a result was measured."""
    return f"{processor()}, {platform.system()}, Python {platform.python_version()}, {commit()}"
