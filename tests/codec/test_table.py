"""Codecs by name and by number."""

from __future__ import annotations

import pytest

from aiops.codec.table import CODEC, WIRE_IDS, by_wire_id
from aiops.errors import ShapeMismatch


@pytest.mark.parametrize(
    ("wire_id", "name"),
    [
        *[(1, "dense"), (2, "fp16"), (3, "bf16"), (4, "topk:1.0"), (9, "int8")],
        (10, "artopk:1.0"),
        *[(5, "topk_fp32:1.0"), (6, "topk_fp16:1.0"), (7, "topk_bf16:1.0"), (8, "topk_int8:1.0")],
    ],
)
def test_numbers_are_fixed_for_ever(wire_id, name):
    assert by_wire_id(wire_id).name == name
    assert by_wire_id(wire_id).wire_id == wire_id


def test_every_name_has_a_number_of_its_own():
    numbers = [(make(0.5) if "topk" in name else make()).wire_id for name, make in CODEC.items()]
    assert sorted(numbers) == sorted(WIRE_IDS)
    assert all(1 <= number <= 255 for number in numbers)


@pytest.mark.parametrize("wire_id", [0, 11, 255])
def test_an_unknown_number_is_refused_with_the_known_ones(wire_id):
    with pytest.raises(ShapeMismatch) as caught:
        by_wire_id(wire_id)
    assert str(caught.value) == (
        f"codec number {wire_id} is unknown, known are 1 (dense), 2 (fp16), 3 (bf16), 4 (topk), "
        "5 (topk_fp32), 6 (topk_fp16), 7 (topk_bf16), 8 (topk_int8), 9 (int8), 10 (artopk)"
    )
