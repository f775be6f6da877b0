"""Placement: which shard holds which key."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from aiops.types import Key, ShardId


@dataclass(frozen=True, slots=True)
class ByBytes:
    """Longest processing time first (Graham, 1969): the largest key goes to the least loaded shard.

    The fullest shard then holds at most 4/3 of what the best placement would give it. Equal sizes go in key
    order and ties go to the lower shard, so that every process computes the same placement.
    """

    def __call__(self, sizes: Mapping[Key, int], shards: int) -> Mapping[Key, ShardId]:
        """Return the shard of every key, in key order.

        Args:
            sizes: Size of every key, in bytes.
            shards: Number of shards, >= 1.
        """
        loads = [(0, shard) for shard in range(shards)]
        placed: dict[Key, ShardId] = {}
        for key in sorted(sizes, key=lambda key: (-sizes[key], key)):
            load, shard = loads[0]
            heapq.heapreplace(loads, (load + sizes[key], shard))
            placed[key] = ShardId(shard)
        return {key: placed[key] for key in sorted(placed)}


def by_bytes() -> ByBytes:
    """Return placement by size: largest key first, each on the least loaded shard."""
    return ByBytes()
