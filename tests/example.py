"""Examples for tests: as modules, and as what a user runs and interrupts."""

import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def load(name):
    """Return an example as a module of its own."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interrupted(name, pattern, *, within_s):
    """Send an example Ctrl-C after a line like this; return its exit code, what it printed then, and its errors."""
    with subprocess.Popen(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        while not re.search(pattern, running.stdout.readline()):
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        printed, errors = running.communicate(timeout=within_s)
    return running.returncode, printed, errors
