"""Named arrays to the flat float32 vector of the agreed table, and back."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiops.errors import NotFinite, ShapeMismatch
from aiops.kernels import first_nonfinite
from aiops.types import TENSOR_DTYPES, TensorSpec
from aiops.wire.table import Table

# What comes to the user as views of the flat vector.
PLAIN = frozenset({"float32", "bfloat16"})

_WRITEABLE = operator.attrgetter("flags.writeable")


def as_array(name: str, value: object) -> NDArray[Any]:
    """Return a tensor as a numpy array, without a copy where it has the buffer protocol or DLPack.

    Raises:
        ShapeMismatch: It is no array of floats that the wire knows, or none that numpy can read: torch's bfloat16, or
            a GPU's memory.
    """
    try:
        if isinstance(value, np.ndarray | np.generic | float) or not hasattr(value, "__dlpack__"):
            array = np.asarray(value)
        else:
            tensor: Any = value
            # That a tensor is trained is no part of its values, but torch exports none that is.
            array = np.from_dlpack(tensor.detach() if hasattr(tensor, "requires_grad") else tensor)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ShapeMismatch(
            f"tensor {name!r} cannot be read by numpy ({error}): "
            f"give it as dense float32 in main memory, in torch t.float().cpu()"
        ) from None
    if array.dtype.name not in TENSOR_DTYPES:
        known = ", ".join(TENSOR_DTYPES)
        raise ShapeMismatch(
            f"tensor {name!r} is {array.dtype.name}, a parameter server averages {known}"
        )
    return array


def specs_of(tensors: Mapping[str, object]) -> tuple[TensorSpec, ...]:
    """Return what the tensors are, in their order.

    Raises:
        ShapeMismatch: One is no array of floats.
    """
    specs = []
    for name, value in tensors.items():
        array = as_array(name, value)
        specs.append(TensorSpec(name, array.shape, array.dtype.name))
    return tuple(specs)


def pack(table: Table, tensors: Mapping[str, object], out: NDArray[np.float32]) -> None:
    """Copy named arrays into the flat vector.

    Args:
        table: The agreed table; every tensor of it must be there, and no other.
        tensors: Arrays as :func:`as_array` takes them, of any stride and order.
        out: float32, shape (table.size,); untouched when an error is raised.

    Raises:
        ShapeMismatch: A tensor is missing, unknown, or of another shape.
    """
    arrays = {name: as_array(name, value) for name, value in tensors.items()}
    for entry in table.tensors:
        array = arrays.get(entry.name)
        if array is None:
            raise ShapeMismatch(f"tensor {entry.name!r} of the agreed table is missing")
        if array.shape != tuple(entry.shape):
            raise ShapeMismatch(
                f"tensor {entry.name!r} has shape {array.shape}, {tuple(entry.shape)} was agreed"
            )
    if len(arrays) != len(table.tensors):
        known = {entry.name for entry in table.tensors}
        extra = next(name for name in arrays if name not in known)
        raise ShapeMismatch(f"tensor {extra!r} is not in the agreed table")
    for entry in table.tensors:
        values = out[entry.offset : entry.offset + entry.size]
        # What is too large for float32 becomes infinity, which whoever packs an update checks for, as for NaN.
        with np.errstate(over="ignore", invalid="ignore"):
            values.reshape(entry.shape)[...] = arrays[entry.name]


def unpack(table: Table, flat: NDArray[np.float32]) -> Tensors:
    """Return the tensors of a flat vector by name: float32 ones as views of it, others converted."""
    tensors: dict[str, NDArray[Any]] = {}
    plain = True
    for entry in table.tensors:
        values = flat[entry.offset : entry.offset + entry.size].reshape(entry.shape)
        if entry.dtype not in PLAIN:
            values, plain = values.astype(entry.dtype), False
        tensors[entry.name] = values
    return Tensors(table, flat if plain else None, tensors)


class Tensors(dict[str, NDArray[Any]]):
    """Tensors by name that are views of one flat vector, unless somebody has put others in.

    Attributes:
        table: Whose tensors they are.
        flat: float32, shape (table.size,); None where a tensor had to be converted.
    """

    __slots__ = ("_names", "_views", "flat", "table")

    def __init__(
        self, table: Table, flat: NDArray[np.float32] | None, views: dict[str, NDArray[Any]]
    ) -> None:
        super().__init__(views)
        self.table = table
        self.flat = flat
        self._names = list(views)
        self._views = list(views.values())

    @property
    def untouched(self) -> bool:
        """Whether every tensor is still the view that it was."""
        return list(self) == self._names and all(map(operator.is_, self.values(), self._views))


def flat_of(table: Table, tensors: Mapping[str, object], what: str) -> NDArray[np.float32]:
    """Return the flat vector of which the tensors are views, as :func:`unpack` makes them; nothing is copied.

    Raises:
        ShapeMismatch: They are not, or not of this table.
    """
    if not (isinstance(tensors, Tensors) and tensors.table is table and tensors.untouched):
        raise ShapeMismatch(
            f"{what} is not what empty(), init(), pull() or sync() of this client returned, with its arrays: "
            "only those lie in one vector and can be lent"
        )
    if tensors.flat is None:
        odd = next(entry for entry in table.tensors if entry.dtype not in PLAIN)
        raise ShapeMismatch(
            f"{what} has tensor {odd.name!r} in {odd.dtype}, which is converted: only float32 can be lent"
        )
    return tensors.flat


def landing_of(table: Table, out: Mapping[str, object]) -> NDArray[np.float32]:
    """Return the flat vector of which the tensors are views, for the model to land in.

    Raises:
        ShapeMismatch: They are not, or one is read-only: whoever has made it so relies on its values.
    """
    flat = flat_of(table, out, "out")
    # One look for all, which for 161 tensors takes 8 us instead of the 20 of a loop.
    if not all(map(_WRITEABLE, out.values())):
        name = next(name for name, value in out.items() if not _WRITEABLE(value))
        raise ShapeMismatch(f"out's tensor {name!r} is read-only, the model could not land in it")
    return flat


def check_vector(table: Table, vector: NDArray[Any], what: str) -> None:
    """Refuse a vector that is not laid out like the table's.

    Raises:
        ShapeMismatch: It is not contiguous float32 of shape (table.size,).
    """
    fits = vector.dtype == np.float32 and vector.shape == (table.size,)
    if not (fits and vector.flags.c_contiguous):
        raise ShapeMismatch(
            f"{what} is {vector.dtype.name} of shape {vector.shape} and strides {vector.strides}, "
            f"contiguous float32 of shape ({table.size},) is due"
        )


def check_out(table: Table, out: NDArray[Any] | None) -> None:
    """Refuse memory that the model cannot land in.

    Raises:
        ShapeMismatch: It is not writable, contiguous float32 of shape (table.size,).
    """
    if out is None:
        return
    check_vector(table, out, "out")
    if not out.flags.writeable:
        raise ShapeMismatch("out is read-only, the model could not land in it")


def check_start(params: Mapping[str, object]) -> None:
    """Refuse parameters to start from that hold NaN or infinity, whether they are to be used or not.

    Raises:
        ShapeMismatch: One is no array of floats.
        NotFinite: One is not finite; the message names it.
    """
    for name, value in params.items():
        if not np.isfinite(as_array(name, value)).all():
            raise NotFinite(f"parameter {name!r} holds NaN or infinity")


def check_finite(table: Table, flat: NDArray[np.float32], what: str) -> None:
    """Refuse NaN and infinity before anything is sent.

    Raises:
        NotFinite: There is one; the message names the tensor and the position in it.
    """
    position = first_nonfinite(flat)
    if position >= 0:
        entry = table.tensor_at(position)
        raise NotFinite(
            f"{what} holds {flat[position]} in tensor {entry.name!r} "
            f"(value {position - entry.offset} of {entry.size})"
        )
