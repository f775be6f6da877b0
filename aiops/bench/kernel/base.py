"""What the families of kernel cases share: cases, vectors, libraries that may be missing, and bounds in C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiops.bench.native import build

torch: ModuleType | None
try:
    import torch
except ImportError:  # the core does not need it
    torch = None

scipy_sparse: ModuleType | None
try:
    from scipy import sparse

    scipy_sparse = sparse
except ImportError:
    scipy_sparse = None

Contenders: TypeAlias = dict[str, Callable[[], object]]
Array: TypeAlias = NDArray[Any]

WEIGHT = 0.3
FACTOR = np.float32(WEIGHT)

# Names of contenders that are no library but what the memory allows.
READ, STREAM = "read pass", "stream"
BOUNDS = (READ, STREAM)

SOURCE = Path(__file__).with_name("bounds.c")


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One thing that several can do.

    Attributes:
        name: What is done.
        make: Returns functions without arguments that all do it, by name, "ours" first among equals. Called when it
            is their turn, so that their memory is not held before.
        goals: By a contender's name, how many times as long as ours it should take; under "ours", how many times as
            long as the bound ours should take.
    """

    name: str
    make: Callable[[], Contenders]
    goals: Mapping[str, str] = field(default_factory=dict)


class Native:
    """The functions of ``bounds.c``.

    Args:
        scratch: Directory where it is built.

    Raises:
        Skipped: There is no compiler.
    """

    def __init__(self, scratch: str) -> None:
        options = ("-O3", "-march=native", "-shared", "-fPIC")
        self._code = ctypes.CDLL(build(scratch, SOURCE, *options))
        self._code.varint_encode.restype = ctypes.c_ssize_t

    def read(self, x: Array) -> Callable[[], object]:
        """Return a function that looks once at every value of a vector."""
        return lambda: self._code.read_pass(_at(x), ctypes.c_ssize_t(x.size))

    def stream(self, to: list[Array], reads: list[Array]) -> Callable[[], object]:
        """Return a function that reads some float32 vectors and writes others."""
        targets = (ctypes.c_void_p * len(to))(*map(_at, to))
        sources = (ctypes.c_void_p * len(reads))(*map(_at, reads))
        n = ctypes.c_ssize_t(to[0].size)
        keep = (to, reads)
        return lambda: (self._code.stream(targets, len(to), sources, len(reads), n), keep)

    def varint(self, index: Array, code: Array) -> int:
        """Encode the gaps of ascending uint32 positions; return the number of bytes."""
        return int(self._code.varint_encode(_at(index), ctypes.c_ssize_t(index.size), _at(code)))

    def from_varint(self, code: Array, index: Array) -> None:
        """Decode as many positions as ``index`` has room for."""
        self._code.varint_decode(_at(code), ctypes.c_ssize_t(index.size), _at(index))


class Data:
    """Vectors of one length, the same in every run.

    Args:
        n: Their length.
        native: The bounds, or None where they could not be compiled.
    """

    def __init__(self, n: int, native: Native | None) -> None:
        self.n = n
        self.native = native
        self._normal: dict[int, Array] = {}

    def normal(self, number: int = 0) -> Array:
        """Return float32 from the normal distribution; a number for each that must differ."""
        if number not in self._normal:
            generator = np.random.default_rng(number)
            self._normal[number] = generator.standard_normal(self.n, dtype=np.float32)
        return self._normal[number]

    def own(self, number: int = 0) -> Array:
        """Return a copy of :meth:`normal` that may be written to."""
        return self.normal(number).copy()

    def zeros(self) -> Array:
        """Return float32 zeros whose memory is there."""
        return np.full(self.n, 0, np.float32)

    def positions(self, density: float, number: int = 0) -> Array:
        """Return ascending uint32 positions, a random share of all; and a number for each that must differ."""
        generator = np.random.default_rng([number, 1])
        chosen = generator.random(self.n, dtype=np.float32) < density
        return np.flatnonzero(chosen).astype(np.uint32)

    def read(self, x: Array) -> Contenders:
        """Return the bound of what has to look at every value once, if there is one."""
        return {READ: self.native.read(x)} if self.native is not None else {}

    def stream(self, to: list[Array], reads: list[Array]) -> Contenders:
        """Return the bound of what has to read some vectors and write others, if there is one."""
        return {STREAM: self.native.stream(to, reads)} if self.native is not None else {}

    def by_size(self, small: float, medium: float, large: float) -> str:
        """Return a goal that depends on the size: up to 1e6, up to 3e7, and above."""
        return f">= {small if self.n <= 1e6 else medium if self.n <= 3e7 else large:g}"


def _at(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
