import inspect
import os
import subprocess
import sys

import pytest

from aiops import kernels
from aiops.kernels import _backend, reference

compiled_only = pytest.mark.skipif(not kernels.COMPILED, reason="the numpy twins run here")


def test_the_level_says_what_runs():
    assert (kernels.simd_level() == "numpy") is not kernels.COMPILED
    assert kernels.simd_level() in {"numpy", "portable", "avx2", "avx512"}


def test_the_switch_takes_the_numpy_twins():
    program = "from aiops import kernels; print(kernels.COMPILED, kernels.simd_level())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "AIOPS_PURE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.split() == ["False", "numpy"]


@compiled_only
@pytest.mark.parametrize(
    "module",
    [
        "gaps",
        "half",
        "histogram",
        "index",
        "merge",
        "optimizer",
        "quantize",
        "sparse",
        "sparse_merge",
        "topk",
    ],
)
def test_every_compiled_function_has_a_twin_that_takes_the_same_arguments(module):
    compiled = getattr(_backend, module)
    names = [
        name
        for name, function in vars(compiled).items()
        if callable(function) and not name.startswith("_") and name != "simd_level"
    ]
    assert names
    for name in names:
        twin = list(inspect.signature(getattr(reference, name)).parameters)
        own = [p for p in inspect.signature(getattr(compiled, name)).parameters if p != "level"]
        assert own == twin, name
