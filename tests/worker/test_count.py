"""What counts as a count."""

import numpy as np
import pytest

from aiops.worker.count import whole


@pytest.mark.parametrize(
    "value", [3, 3.0, np.int64(3), np.uint8(3), np.float32(3), np.array(3)], ids=repr
)
def test_whole_numbers_of_any_type_are_plain_ones(value):
    assert whole(value) == 3
    assert type(whole(value)) is int


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2.5, -1, -1e300, np.float32("nan"), 2**63, "3", None, [3], 3j],
    ids=repr,
)
def test_everything_else_is_none(value):
    assert whole(value) is None


def test_the_limits_are_the_wires_and_the_callers():
    assert whole(0) == 0
    assert whole(2**63 - 1) == 2**63 - 1
    assert whole(0, 1) is None
    assert whole(1, 1) == 1
