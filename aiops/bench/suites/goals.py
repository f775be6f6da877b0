"""What the rows of peers, round and wire should be at least: how many times as long as ours each other one takes.

They are about everybody on the same congestion control, so rows out of the box have none.
"""

from __future__ import annotations

from aiops.bench.network import SAME

# Size and number of workers -> peer's key -> its ratio. A C epoll echo at 0.5: ours takes at most twice as long.
ROUNDS: dict[tuple[str, int], dict[str, float]] = {
    ("100 MB", 1): {
        "sockets": 0.95, "gloo": 1.0, "rpc": 3.2, "zmq": 3.5, "grpc-stream": 4.4, "grpc-unary": 14, "flower": 18,
        "streams": 9,
    },
    ("100 MB", 2): {"gloo": 1.4},
    ("100 MB", 4): {"gloo": 1.4},
    ("16 MB", 1): {"gloo": 1.1, "zmq": 1.1, "rpc": 3, "grpc-unary": 12},
    ("1 MB", 1): {"gloo": 1.2},
    ("4 KB", 1): {
        "epoll": 0.5, "zmq": 3, "gloo": 6, "rpc": 25, "grpc-stream": 25, "grpc-unary": 25, "flower": 50,
    },
}  # fmt: skip
ONE_WAY = {"100 MB": {"sockets": 0.95}}

# Where ours should use no more processor time per byte than the C pair, which cost 0.30 s/GB where the goal was set.
THRIFTY = {("100 MB", 1)}


def of_round(size: str, n_workers: int, key: str, network: str) -> str:
    """Return the goal of a peer's row, for people; "" for none."""
    return _text(ROUNDS.get((size, n_workers), {}).get(key) if network == SAME else None)


def one_way(size: str, key: str) -> str:
    """Return the goal of a bare transfer's row, for people; "" for none."""
    return _text(ONE_WAY.get(size, {}).get(key))


def thrifty(size: str, n_workers: int, key: str, network: str) -> bool:
    """Return whether this row's processor time has a goal: the bound's."""
    return key == "ours" and network == SAME and (size, n_workers) in THRIFTY


def _text(least: float | None) -> str:
    return "" if least is None else f">= {least:g}"
