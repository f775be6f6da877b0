"""Builds the compiled kernels: extensions and directives only, the rest is in pyproject.toml.

``AIOPS_DEBUG=1`` builds with every check of Cython and with the undefined-behaviour sanitizer. In
place, both kinds share their file names: change over with ``build_ext --inplace --force``.
"""

from __future__ import annotations

import os
import sys
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("AIOPS_DEBUG") == "1"
FAMILIES = [
    "gaps", "half", "histogram", "index", "merge", "optimizer", "quantize", "sparse", "sparse_merge",
    "topk",
]  # fmt: skip

# Contraction into FMA changed the last bit of a fifth of all accumulated elements (gcc 12, w = .3),
# and then no kernel would equal its numpy twin: it stays off in every build.
EXACT = ["/fp:precise"] if sys.platform == "win32" else ["-ffp-contract=off"]
FAST = ["/O2"] if sys.platform == "win32" else ["-O3"]
CHECKED = ["-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=undefined"]


def extension(room: str, name: str) -> Extension:
    """One module of ``src_ext``, compiled as ``aiops.<room>._<name>``."""
    return Extension(
        f"aiops.{room}._{name}",
        [f"src_ext/{name}.pyx"],
        include_dirs=["src_ext"],
        depends=sorted(glob("src_ext/*.h") + glob("src_ext/*.pxd")),
        extra_compile_args=[*(CHECKED if DEBUG else FAST), *EXACT],
        extra_link_args=["-fsanitize=undefined"] if DEBUG else [],
    )


# Without poll() its twin in Python does the same.
PUMP = [] if sys.platform == "win32" else [extension("transport", "pump")]

setup(
    ext_modules=cythonize(
        [extension("kernels", name) for name in FAMILIES] + PUMP,
        include_path=["src_ext"],
        # Cython rebuilds by time stamp and does not see a changed directive.
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "cdivision": True,
            "embedsignature": True,
            "embedsignature.format": "python",
            "freethreading_compatible": True,
        },
    ),
)
