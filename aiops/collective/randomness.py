"""Where the random numbers of a training are: torch's generators, numpy's global one and Python's."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class RandomState:
    """A moment of all global generators; equal where they would draw the same.

    Attributes:
        cpu: torch's of the CPU.
        cuda: torch's of each GPU; empty where none is in use.
        numpy: numpy's global one.
        python: That of the module :mod:`random`.
    """

    cpu: bytes
    cuda: tuple[bytes, ...]
    numpy: tuple[Any, ...]
    python: tuple[Any, ...]

    @classmethod
    def now(cls) -> Self:
        """Return what the generators are at."""
        name, keys, *rest = cast(tuple[Any, ...], np.random.get_state())
        return cls(
            _bytes(torch.get_rng_state()),
            tuple(_bytes(state) for state in torch.cuda.get_rng_state_all()) if _gpus() else (),
            (name, keys.tobytes(), *rest),
            random.getstate(),
        )

    def restore(self) -> None:
        """Set the generators to it."""
        torch.set_rng_state(_tensor(self.cpu))
        if self.cuda:
            torch.cuda.set_rng_state_all([_tensor(state) for state in self.cuda])
        name, keys, *rest = self.numpy
        np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))
        random.setstate(self.python)


# Who never used a GPU has no state there, and asking for it would make one.
def _gpus() -> bool:
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _bytes(state: torch.Tensor) -> bytes:
    return state.numpy().tobytes()


def _tensor(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
