"""Placement by table."""

from __future__ import annotations

import random

import pytest

from aiops.policy.place import by_bytes


@pytest.mark.parametrize(
    ("sizes", "shards", "placed"),
    [
        pytest.param({}, 3, {}, id="nothing to place"),
        pytest.param({0: 5, 1: 9}, 1, {0: 0, 1: 0}, id="one shard holds all"),
        pytest.param({0: 5, 1: 9}, 4, {1: 0, 0: 1}, id="more shards than keys"),
        pytest.param({0: 4, 1: 4, 2: 4}, 2, {0: 0, 1: 1, 2: 0}, id="ties go to the lower shard"),
        # 7 | 6 | 5+4: 7 -> 0, 6 -> 1, 5 -> 2, 4 -> 2 (5 is the least), 3 -> 1 (6 < 7).
        pytest.param(
            {0: 3, 1: 4, 2: 5, 3: 6, 4: 7}, 3, {4: 0, 3: 1, 2: 2, 1: 2, 0: 1}, id="largest first"
        ),
        pytest.param({0: 0, 1: 0, 2: 8}, 2, {2: 0, 0: 1, 1: 1}, id="empty keys have a home too"),
    ],
)
def test_placement(sizes, shards, placed):
    assert by_bytes()(sizes, shards) == placed


def test_the_order_of_the_table_does_not_matter():
    generator = random.Random(7)
    sizes = {key: generator.randrange(1, 10) for key in range(50)}
    keys = list(sizes)
    generator.shuffle(keys)
    shuffled = {key: sizes[key] for key in keys}
    placed = by_bytes()(sizes, 4)
    assert by_bytes()(shuffled, 4) == placed
    assert list(by_bytes()(shuffled, 4)) == sorted(sizes)


def test_the_fullest_shard_is_near_the_mean():
    generator = random.Random(3)
    for _ in range(50):
        sizes = {key: generator.randrange(1, 1000) for key in range(40)}
        loads = [0] * 5
        for key, shard in by_bytes()(sizes, 5).items():
            loads[shard] += sizes[key]
        # Graham's factor, against a load that no placement can beat.
        assert max(loads) <= 4 / 3 * max(sum(sizes.values()) / 5, max(sizes.values()))
