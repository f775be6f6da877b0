"""Ids and plain values that every room shares; no behaviour lives here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NewType

WorkerId = NewType("WorkerId", int)
"""A worker's number within one server's life, from 0, in the order of joining."""

ShardId = NewType("ShardId", int)
"""One partition of the parameters, from 0."""

Key = NewType("Key", int)
"""One bucket in the agreed key table, from 0."""

Version = NewType("Version", int)
"""Rounds that a shard has closed."""

Clock = NewType("Clock", int)
"""Local steps that a worker has finished."""

HalfName = Literal["float16", "bfloat16"]

# Wire ids of element types: the dtype byte of the frame header. 0 stands for "no elements" (control frames).
DTYPE_IDS: dict[str, int] = {"float32": 1, "float16": 2, "bfloat16": 3, "float64": 4, "int8": 5}

TENSOR_DTYPES = ("float32", "float16", "bfloat16", "float64")
"""Element types of tensors that are trained here; others occur in payloads only."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What the key table knows of one tensor.

    Attributes:
        name: The tensor's name, as in ``model.state_dict()``.
        shape: Its shape; ``()`` for a 0-d tensor.
        dtype: Element type the worker holds it in. The server always holds float32.
        averaged: Whether it is a running statistic, whose values are averaged; of everything else the changes are
            accumulated.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    averaged: bool = False
