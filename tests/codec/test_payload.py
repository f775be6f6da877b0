"""Payload bytes as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from aiops.codec.payload import as_array, require_bytes
from aiops.errors import ShapeMismatch


def test_an_aligned_payload_is_not_copied():
    memory = np.arange(4, dtype=np.float32)
    assert np.shares_memory(as_array(memoryview(memory).cast("B"), np.float32), memory)


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_an_unaligned_payload_is_copied(offset):
    values = np.array([1.5, -2.0, 7.0], np.float32)
    memory = np.zeros(32, np.uint8)
    memory[offset : offset + 12] = values.view(np.uint8)
    array = as_array(memoryview(memory)[offset : offset + 12], np.float32)
    assert array.tolist() == values.tolist()
    assert array.flags.aligned
    assert not np.shares_memory(array, memory)


def test_an_empty_payload_is_an_empty_array():
    assert as_array(memoryview(b""), np.uint32).tolist() == []


def test_sizes():
    require_bytes("dense", memoryview(b"12345678"), 2, 8)
    with pytest.raises(ShapeMismatch, match="x payload has 8 bytes, a bucket of 3 values needs 12"):
        require_bytes("x", memoryview(b"12345678"), 3, 12)
