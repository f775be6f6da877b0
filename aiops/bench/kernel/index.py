"""The index codes, beside varints of the gaps in numpy and in C."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from aiops import kernels
from aiops.bench.kernel.base import Array, Contenders, Data, KernelCase

SIZES = (10_000_000,)
DENSITIES = (0.001, 0.01, 0.1)
C_VARINT = "C varint"

# Size against the entropy of random positions.
SIZE_GOALS = {0.001: "<= 1.35", 0.01: "<= 1.2"}
RICE_GOALS = dict.fromkeys(DENSITIES, "<= 1.03")


@dataclass(frozen=True, slots=True)
class Code:
    """One of our codes.

    Attributes:
        name: What it is called.
        most: How many bytes k positions below n take at most.
        encode: Writes positions below n to an array of that size; returns the code.
        decode: Writes the positions that a code of k below n stands for to an array.
        goals: How many times as long others should take.
    """

    name: str
    most: Callable[[int, int], int]
    encode: Callable[[Array, int, Array], Array]
    decode: Callable[[Array, int, int, Array], Array]
    goals: dict[str, str]


CODES = (
    Code(
        "index code",
        kernels.index_bytes,
        lambda index, n, out: kernels.encode_index(index, n, out=out),
        lambda code, k, n, out: kernels.decode_index(code, k, n, out=out),
        {"numpy": ">= 57", C_VARINT: ">= 4"},
    ),
    Code(
        "packed gaps",
        kernels.packed_bytes_most,
        kernels.pack_index,
        kernels.unpack_index,
        {"numpy": ">= 8"},
    ),
    Code(
        "gaps after Rice",
        kernels.rice_bytes_most,
        kernels.rice_index,
        kernels.unrice_index,
        {"numpy": ">= 4"},
    ),
)


def cases(data: Data) -> Iterator[KernelCase]:
    """Yield encoding and decoding at three densities."""
    for code in CODES:
        for density in DENSITIES:
            for name, make in (("encode", encode), ("decode", decode)):
                yield KernelCase(
                    f"{code.name}, {name} {density:g}",
                    lambda make=make, code=code, density=density: make(  # type: ignore[misc]
                        data, data.positions(density), code
                    ),
                    code.goals,
                )


def sizes(data: Data) -> Iterator[tuple[str, float, str, str]]:
    """Yield name, value, unit and goal of the codes' sizes at each density."""
    for density in DENSITIES:
        index = data.positions(density)
        p = index.size / data.n
        if not 0 < p < 1:
            continue
        entropy = -(p * math.log2(p) + (1 - p) * math.log2(1 - p)) / p / 8
        for code, goals in zip(CODES, (SIZE_GOALS, {}, RICE_GOALS), strict=True):
            room = np.empty(code.most(index.size, data.n), np.uint8)
            ours = code.encode(index, data.n, room).size / index.size
            name = f"{code.name} {density:g}, {ours:.3f} bytes a position"
            yield name, ours / entropy, "times the entropy", goals.get(density, "")
        theirs = varint(index).size / index.size
        yield f"varint {density:g}, {theirs:.3f} bytes", theirs / entropy, "times the entropy", ""


def encode(data: Data, index: Array, code: Code) -> Contenders:
    """Encode positions."""
    n, room = data.n, np.empty(code.most(index.size, data.n), np.uint8)
    found: Contenders = {
        "ours": lambda: code.encode(index, n, room),
        "numpy": lambda: varint(index),
    }
    if data.native is not None:
        native, theirs = data.native, np.empty(5 * index.size, np.uint8)
        found[C_VARINT] = lambda: native.varint(index, theirs)
    return found


def decode(data: Data, index: Array, code: Code) -> Contenders:
    """Decode positions; ours checks them."""
    n, k, back, plain = data.n, index.size, np.empty_like(index), varint(index)
    coded = code.encode(index, n, np.empty(code.most(k, n), np.uint8))
    found: Contenders = {
        "ours": lambda: code.decode(coded, k, n, back),
        "numpy": lambda: from_varint(plain),
    }
    if data.native is not None:
        native, theirs = data.native, np.empty_like(index)
        found[C_VARINT] = lambda: native.from_varint(plain, theirs)
    return found


def varint(index: Array) -> Array:
    """Return the gaps as LEB128, with a pass over all that are left for each byte."""
    gap = np.diff(index, prepend=np.uint32(0))
    length = np.ones(gap.size, np.int64)
    for bits in (7, 14, 21, 28):
        length += gap >= 1 << bits
    start = np.cumsum(length) - length
    out = np.empty(int(length.sum()), np.uint8)
    for byte in range(5):
        here = np.flatnonzero(length > byte)
        more = (length[here] > byte + 1).astype(np.uint8) << 7
        out[start[here] + byte] = (gap[here] >> np.uint32(7 * byte) & 127).astype(np.uint8) | more
    return out


def from_varint(code: Array) -> Array:
    """Return the positions that :func:`varint` has encoded."""
    end = np.flatnonzero(code < 128)
    if not end.size:
        return np.empty(0, np.uint32)
    start = np.concatenate([[0], end[:-1] + 1])
    gap = np.zeros(end.size, np.uint32)
    for byte in range(int((end - start).max()) + 1):
        here = np.flatnonzero(end - start >= byte)
        gap[here] |= (code[start[here] + byte] & 127).astype(np.uint32) << np.uint32(7 * byte)
    return np.cumsum(gap, dtype=np.uint32)
