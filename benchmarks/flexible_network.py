"""The paper's networks: latency and bandwidth that change over a training (Tyagi and Swany, 2023, C1 and C2)."""

from __future__ import annotations

from aiops.policy.exchange import Network

# From which epoch on: latency in ms, bandwidth in Gbit/s.
SCHEDULES: dict[str, tuple[tuple[int, float, float], ...]] = {
    "C1": ((0, 1, 25), (12, 1, 1), (24, 50, 1), (36, 50, 25)),
    "C2": (
        (0, 1, 25), (4, 2, 20), (8, 4, 15), (12, 8, 10), (16, 16, 5), (20, 32, 1), (28, 16, 5), (32, 8, 10),
        (36, 4, 15), (40, 2, 20), (44, 1, 25),
    ),
}  # fmt: skip


def link(schedule: str, epoch: float, scale: float) -> Network:
    """Return what a link is like in an epoch.

    Args:
        schedule: A key of :data:`SCHEDULES`.
        epoch: From 0; after the last one of the schedule nothing changes any more.
        scale: How many times a message of the model that is meant is larger than that of the model that is trained.
    """
    _, latency_ms, gbit_s = max(each for each in SCHEDULES[schedule] if each[0] <= epoch)
    return Network(latency_ms * 1e-3, scale * 8e-9 / gbit_s)
