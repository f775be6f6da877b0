"""Sizes and counts of a server: what each must be at least, and beside the others."""

from __future__ import annotations

from collections.abc import Mapping

from aiops.errors import ConfigError
from aiops.policy.number import is_count

# A control message is at most 64 KiB and must always pass.
SMALLEST_FRAME_BYTES = 64 * 1024

LEAST = {
    "shards": 1,
    "bucket_bytes": 4,
    "min_workers": 1,
    "max_members": 1,
    "max_frame_bytes": SMALLEST_FRAME_BYTES,
    "stream_bytes": 4,
    "landing_bytes": 1,
    "share_bytes": 1,
}


def check_sizes(sizes: Mapping[str, object]) -> None:
    """Refuse what is no size or count, or too small, or smaller than another one allows.

    Args:
        sizes: The values of :data:`LEAST` by name; ``stream_bytes`` and ``landing_bytes`` may be missing.

    Raises:
        ConfigError: One of them is wrong.
    """
    whole: dict[str, int] = {}
    for name, limit in LEAST.items():
        value = sizes.get(name, limit)
        if not is_count(value, limit):
            raise ConfigError(f"{name} is {value!r}, it must be a whole number >= {limit}")
        whole[name] = value
    if whole["max_members"] < whole["min_workers"]:
        raise ConfigError(
            f"max_members is {whole['max_members']}, it must be >= min_workers = {whole['min_workers']}"
        )
    for name in ("bucket_bytes", "stream_bytes"):
        if whole[name] % 4:
            raise ConfigError(f"{name} is {whole[name]}, it must be a multiple of 4")
