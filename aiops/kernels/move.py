"""Checked face of what moves bytes without looking at them."""

from __future__ import annotations

import numpy as np

from aiops.kernels import _backend, _check

# Below, asking the interpreter to let other threads run costs more than it gives them.
_FREE_BYTES = 32 * 1024


def copy_bytes(target: memoryview, source: memoryview, *, bypass: bool = False) -> None:
    """Copy bytes from one view to another of the same size; releases the GIL when they are many.

    Args:
        target: Contiguous, writable, of format 'B'.
        source: Contiguous, of format 'B'.
        bypass: Whether to write past the caches: right for a piece of something that is larger than
            they are (0.8 of the time for the whole), wrong for what is read again soon.

    Raises:
        ValueError: Sizes differ, ``target`` is read-only, or a large one overlaps ``source``.
    """
    size = len(source)
    if size < _FREE_BYTES or size != len(target):
        target[:] = source
        return
    into, out_of = np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8)
    if bypass and size % 4 == 0:
        floats, values = into.view(np.float32), out_of.view(np.float32)
        if floats.flags.aligned and values.flags.aligned:
            _check.vector("target", floats, _check.FLOAT32, written=True)
            _check.apart("target", floats, "source", values)
            # Bits are bits: that a copied value is NaN changes none of them.
            _backend.merge.copy_checked(values, floats, True)
            return
    np.copyto(into, out_of)
