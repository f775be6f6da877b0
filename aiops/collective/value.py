"""How selected values are summed over the ranks: as float32, or in fewer bytes with what that loses fed back.

Coded values are not added up by anyone but the one rank that owns their part: every rank sends it its codes, the owner
adds them as float32, and sends the coded sum to all. So a value is rounded twice whatever the number of ranks, a rank
keeps what its own codes lost, and the owner what the coding of the sum lost. All ranks decode the same codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from aiops.collective.request import Bytes, Deal, Dialogue, Floats, Gather, Route, Sum
from aiops.kernels import INT8_BLOCK, add_half, add_int8, from_half, to_half, to_int8
from aiops.types import HalfName


@dataclass(frozen=True, slots=True, eq=False)
class Summed:
    """What the ranks' values come to.

    Attributes:
        value: float32, shape (k,), the sum; the same bits on every rank.
        tail: float32, shape (t,), the sum of the tails.
        lost: float32, shape (k,), what this rank has to keep: its values minus what its codes stand for, and in the
            part that it owns what the coded sum lost; None where nothing is lost.
    """

    value: Floats
    tail: Floats
    lost: Floats | None


class ValueCode(Protocol):
    """One way to write float32 values."""

    @property
    def name(self) -> str:
        """The name it is configured by."""

    @property
    def value_bytes(self) -> float:
        """Bytes per value."""

    @property
    def exact(self) -> bool:
        """Whether values are written as they are."""

    def encode(self, value: Floats) -> tuple[Bytes, Floats]:
        """Return the bytes of ``value``, in memory of their own, and what they stand for."""

    def size(self, k: int) -> int:
        """Return how many bytes ``k`` values take."""

    def decode(self, code: Bytes, k: int) -> Floats:
        """Return the ``k`` values that ``code`` stands for."""


class Float32:
    """Values as they are."""

    name = "fp32"
    value_bytes = 4.0
    exact = True

    def encode(self, value: Floats) -> tuple[Bytes, Floats]:
        """Return the bytes of ``value``, and ``value``."""
        return value.view(np.uint8).copy(), value

    def size(self, k: int) -> int:
        """Return four times ``k``."""
        return 4 * k

    def decode(self, code: Bytes, k: int) -> Floats:
        """Return the values."""
        return np.frombuffer(code.tobytes(), np.float32, k).copy()


class Half:
    """Values in 16 bits.

    Args:
        kind: ``float16`` or ``bfloat16``.
    """

    value_bytes = 2.0
    exact = False

    def __init__(self, kind: HalfName) -> None:
        self._kind: HalfName = kind
        self.name = "bf16" if kind == "bfloat16" else "fp16"

    def encode(self, value: Floats) -> tuple[Bytes, Floats]:
        """Return the rounded values' bytes, and the rounded values; one that is too large becomes infinite."""
        bits = to_half(value, self._kind)
        return bits.view(np.uint8), from_half(bits, self._kind)

    def size(self, k: int) -> int:
        """Return twice ``k``."""
        return 2 * k

    def decode(self, code: Bytes, k: int) -> Floats:
        """Return the values."""
        value = np.zeros(k, np.float32)
        add_half(value, np.frombuffer(code.tobytes(), np.uint16, k), 1.0, self._kind)
        return value


class Int8:
    """Values in 8 bits, relative to the largest of 4096 in a row."""

    name = "int8"
    value_bytes = 1.0 + 4.0 / INT8_BLOCK
    exact = False

    def encode(self, value: Floats) -> tuple[Bytes, Floats]:
        """Return scales and codes, and what they stand for."""
        scales = np.empty(-(-value.size // INT8_BLOCK), np.float32)
        codes = np.empty(value.size, np.int8)
        to_int8(value, scales=scales, codes=codes)
        seen = np.zeros_like(value)
        add_int8(seen, scales, codes)
        return np.concatenate([scales.view(np.uint8), codes.view(np.uint8)]), seen

    def size(self, k: int) -> int:
        """Return the bytes of the scales and of ``k`` codes."""
        return 4 * -(-k // INT8_BLOCK) + k

    def decode(self, code: Bytes, k: int) -> Floats:
        """Return the values."""
        cut = self.size(k) - k
        value = np.zeros(k, np.float32)
        scales = np.frombuffer(code[:cut].tobytes(), np.float32)
        add_int8(value, scales, np.ascontiguousarray(code[cut : cut + k]).view(np.int8))
        return value


VALUES: dict[str, Callable[[], ValueCode]] = {
    "fp32": Float32,
    "bf16": lambda: Half("bfloat16"),
    "fp16": lambda: Half("float16"),
    "int8": Int8,
}


def total(
    code: ValueCode, value: Floats, tail: Floats, *, rank: int, ranks: int, route: Route
) -> Dialogue[Summed]:
    """Sum ``value`` over the ranks, and ``tail`` with it in the same messages.

    Args:
        code: How values are written; tails are float32 always.
        value: float32, shape (k,), the same k on every rank. Read only.
        tail: float32, shape (t,), the same t on every rank. Read only.
        rank: This rank.
        ranks: How many there are.
        route: See :mod:`aiops.collective.request`.
    """
    if code.exact or ranks == 1:
        both = (yield Sum(np.concatenate([value, tail]), route)).data
        return Summed(both[: value.size], both[value.size :], None)
    k, part = value.size, -(-value.size // ranks)
    padded = np.zeros(part * ranks, np.float32)
    padded[:k] = value
    dealt, seen = _rows(code, padded.reshape(ranks, part), tail)
    rows = (yield Deal(dealt)).data
    size = code.size(part)
    own, tails = np.zeros(part, np.float32), np.zeros_like(tail)
    for row in rows:
        own += code.decode(row[:size], part)
        tails += np.frombuffer(row[size:].tobytes(), np.float32)
    coded, kept = code.encode(own)
    sums = (yield Gather(coded, route)).data
    value_sum = np.concatenate([code.decode(row, part) for row in sums])[:k]
    lost = padded - seen.ravel()
    lost[rank * part : (rank + 1) * part] += own - kept
    return Summed(value_sum, tails, lost[:k])


# A row of bytes for each rank, its part and the tail, and what the codes stand for.
def _rows(code: ValueCode, parts: Floats, tail: Floats) -> tuple[Bytes, Floats]:
    rows, seen = [], np.empty_like(parts)
    for at, part in enumerate(parts):
        coded, seen[at] = code.encode(np.ascontiguousarray(part))
        rows.append(np.concatenate([coded, tail.view(np.uint8)]))
    return np.stack(rows), seen
