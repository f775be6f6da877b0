"""The identity codec."""

from __future__ import annotations

import numpy as np
import pytest

from aiops.codec.dense import dense
from aiops.errors import ShapeMismatch


def test_the_payload_is_the_update_itself():
    update = np.array([1.0, -2.5, 3e-41, 0.0], np.float32)
    parts, residual = dense().encode(update, None)
    assert len(parts) == 1
    assert np.shares_memory(parts[0], update)
    assert residual is None
    assert parts[0].tobytes() == b"\0\0\x80\x3f\0\0\x20\xc0" + update[2:].tobytes()


def test_a_payload_is_added_with_its_weight():
    acc = np.array([1.0, 1.0, 1.0], np.float32)
    dense().add_to(acc, memoryview(np.array([4.0, -2.0, 0.5], np.float32)).cast("B"), 0.5)
    assert acc.tolist() == [3.0, 0.0, 1.25]


def test_sums_do_not_depend_on_a_payloads_address():
    generator = np.random.default_rng(5)
    update = generator.normal(size=1000).astype(np.float32)
    sums = []
    for offset in range(4):
        acc = np.ones(1000, np.float32)
        dense().add_to(acc, memoryview(bytes(offset) + update.tobytes())[offset:], 1 / 3)
        sums.append(acc)
    for acc in sums[1:]:
        np.testing.assert_array_equal(acc, sums[0])


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16])
def test_another_size_is_refused_with_both_sizes(size):
    with pytest.raises(
        ShapeMismatch, match=f"^dense payload has {size} bytes, a bucket of 2 values needs 8$"
    ):
        dense().check(memoryview(bytes(size)), 2)
