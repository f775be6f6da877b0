"""Samples and their labels as bytes: what devices hand on to each other.

Layout, little endian: dtype id (1 byte), axes of a sample (1), zeros (2), number of samples n (4), the length of each
axis (8 each), n labels (int64), then the samples one after the other. The length follows from that and has to fit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiops.errors import ConfigError, ShapeMismatch

# Ids are on the wire and never used again. Every pattern of bits is a value of each.
RECORD_DTYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(name)
    for number, name in enumerate(
        ("<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"), 1
    )
}
MAX_AXES = 8
# With it no number of samples is too large for an array, even where an axis of length 0 hides the others.
MAX_SAMPLE_BYTES = 2**30

_HEAD = struct.Struct("<BBHI")
_LABEL_BYTES = 8


@dataclass(frozen=True, slots=True)
class Form:
    """What samples look like.

    Attributes:
        dtype: Id of :data:`RECORD_DTYPES`.
        shape: Of one sample, of at most :data:`MAX_AXES` axes.
    """

    dtype: int
    shape: tuple[int, ...]

    def size_bytes(self, n: int) -> int:
        """Return how many bytes ``n`` packed samples take."""
        sample = math.prod(self.shape) * RECORD_DTYPES[self.dtype].itemsize
        return _HEAD.size + 8 * len(self.shape) + n * (_LABEL_BYTES + sample)

    @property
    def sensible(self) -> bool:
        """Whether a sample, each axis counted as at least 1, has at most :data:`MAX_SAMPLE_BYTES`."""
        n = math.prod(max(axis, 1) for axis in self.shape)
        return n * RECORD_DTYPES[self.dtype].itemsize <= MAX_SAMPLE_BYTES

    def __str__(self) -> str:
        return f"{RECORD_DTYPES[self.dtype]} of shape {self.shape}"


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Samples with labels.

    Attributes:
        samples: Shape (n, ...), one of :data:`RECORD_DTYPES`.
        labels: int64, shape (n,).
        form: What a sample looks like.
    """

    samples: NDArray[Any]
    labels: NDArray[np.int64]
    form: Form

    @classmethod
    def of(cls, samples: object, labels: object) -> Records:
        """Return a batch as records: views where the dtypes allow it.

        Args:
            samples: Shape (n, ...), what numpy can read, of integers or floats; a sample has at most 8 axes.
            labels: Shape (n,), whole numbers that fit into int64.

        Raises:
            ConfigError: They are not that; the sentence says what they are.
        """
        x, y = np.asarray(samples), np.asarray(labels)
        number = next((i for i, d in RECORD_DTYPES.items() if d == x.dtype.newbyteorder("<")), 0)
        if not number:
            known = ", ".join(str(dtype) for dtype in RECORD_DTYPES.values())
            raise ConfigError(f"samples are {x.dtype}, what can be shared is {known}")
        if not 1 <= x.ndim <= 1 + MAX_AXES:
            raise ConfigError(f"samples have {x.ndim} axes, it must be 1 to {1 + MAX_AXES}")
        if y.shape != x.shape[:1]:
            raise ConfigError(
                f"labels have shape {y.shape}, for {len(x)} samples it is {(len(x),)}"
            )
        form = Form(number, x.shape[1:])
        if not form.sensible:
            raise ConfigError(f"samples are {form}, the limit is {MAX_SAMPLE_BYTES} bytes for one")
        # An empty list is float64 to numpy.
        if y.size and not (y.dtype.kind in "iu" and np.can_cast(y.dtype, np.int64)):
            raise ConfigError(f"labels are {y.dtype}, they must be whole numbers within int64")
        native = x.astype(x.dtype.newbyteorder("="), copy=False)
        return cls(native, y.astype(np.int64, copy=False), form)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.labels)

    def first(self, n: int) -> Records:
        """Return the first ``n``, as views."""
        return Records(self.samples[:n], self.labels[:n], self.form)

    def take(self, picks: Sequence[int]) -> Records:
        """Return those at these positions, as copies."""
        at = np.asarray(picks, np.intp)
        return Records(self.samples[at], self.labels[at], self.form)

    def join(self, others: Sequence[Records]) -> Records:
        """Return these and then the others, in memory of its own; without any here, what there is looks as theirs do.

        Raises:
            ShapeMismatch: Samples of others look different.
        """
        parts = [each for each in (self, *others) if len(each)] or [self]
        form = parts[0].form
        for each in parts:
            if each.form != form:
                raise ShapeMismatch(f"shared samples are {each.form}, those here are {form}")
        return Records(
            np.concatenate([each.samples for each in parts]),
            np.concatenate([each.labels for each in parts]),
            form,
        )


def pack_records(records: Records) -> NDArray[np.uint8]:
    """Return records as bytes, uint8 of shape (form.size_bytes(n),), in memory of their own."""
    n, form = len(records), records.form
    out = np.empty(form.size_bytes(n), np.uint8)
    head = _HEAD.pack(form.dtype, len(form.shape), 0, n) + struct.pack(
        f"<{len(form.shape)}Q", *form.shape
    )
    ends = len(head), len(head) + _LABEL_BYTES * n
    out[: ends[0]] = np.frombuffer(head, np.uint8)
    out[ends[0] : ends[1]].view("<i8")[:] = records.labels
    out[ends[1] :].view(RECORD_DTYPES[form.dtype]).reshape(records.samples.shape)[:] = (
        records.samples
    )
    return out


def unpack_records(data: memoryview) -> Records:
    """Return the records that packed ones hold, as read-only views of ``data``; no memory is taken for what they say.

    Raises:
        ShapeMismatch: They are no records, or not of this length.
    """
    if len(data) < _HEAD.size:
        raise ShapeMismatch(f"records have {len(data)} bytes, the head alone has {_HEAD.size}")
    dtype, axes, zeros, n = _HEAD.unpack_from(data)
    if dtype not in RECORD_DTYPES or axes > MAX_AXES or zeros:
        raise ShapeMismatch(
            f"records say dtype {dtype}, {axes} axes and {zeros}, what there is are dtypes 1 to {len(RECORD_DTYPES)}, "
            f"at most {MAX_AXES} axes and 0"
        )
    start = _HEAD.size + 8 * axes
    if len(data) < start:
        raise ShapeMismatch(f"records have {len(data)} bytes, their head has {start}")
    form = Form(dtype, struct.unpack_from(f"<{axes}Q", data, _HEAD.size))
    if not form.sensible:
        raise ShapeMismatch(f"records are {form}, the limit is {MAX_SAMPLE_BYTES} bytes for one")
    due = form.size_bytes(n)
    if len(data) != due:
        raise ShapeMismatch(f"records have {len(data)} bytes, {n} of {form} take {due}")
    whole = np.frombuffer(data.toreadonly(), np.uint8)
    middle = start + _LABEL_BYTES * n
    samples = whole[middle:].view(RECORD_DTYPES[dtype])
    return Records(samples.reshape(n, *form.shape), whole[start:middle].view("<i8"), form)
