"""Counts as callers give them: plain, numpy's or torch's, but whole numbers that the wire can carry."""

from __future__ import annotations

from typing import Any

from aiops.wire.message import MAX_COUNT


def whole(value: Any, least: int = 0) -> int | None:  # noqa: ANN401 -- whatever a caller took for a number
    """Return a whole number as a plain int; None for all that is none, is below ``least``, or too large for a frame."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number == value and least <= number <= MAX_COUNT else None
