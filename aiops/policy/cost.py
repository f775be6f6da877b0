"""What an exchange of gradients takes, in seconds, by the alpha-beta model: latencies and bytes, nothing else.

The formulas are those of AR-Topk (Tyagi and Swany, 2023, Table I and Eqn 4), generalised to u bytes a position and v
bytes a value, and put together from four patterns. With N ranks, L = log2 N, latency alpha, seconds a byte beta, and
m bytes:

=========  ============================  ================================  ============================
route      broadcast m                   gather m of each                  sum m
=========  ============================  ================================  ============================
ring       L (alpha + m beta)            (N-1) (alpha + m beta)            2 (N-1) (alpha + m/N beta)
tree       L (alpha + m beta)            L alpha + (N-1) m beta            2 L (alpha + m beta)
direct     alpha + (N-1) m beta          alpha + (N-1) m beta              2 alpha + 2 (N-1) m/N beta
=========  ============================  ================================  ============================

Gathering as a tree is recursive doubling, the paper's AllGather; Gloo's is the ring. Where all talk to all at once,
each owns the sum of an N-th of the values: it gets the others' parts of it, and sends it to them. A direct sum in one
phase, everything to everybody, would cost all the bytes of ``allgather_direct`` and one more latency.

L is the real logarithm, as in the paper, everywhere. What really goes over a tree, Gloo's binomial broadcast for
instance, takes ceil(L) rounds, so that the model is too low between powers of two: at worst by 23 %, of artopk_tree
with 5 ranks, and by 7 % of the latency of artopk_ring, with 3.

Every cost is linear in the latency and in the seconds a byte; :class:`aiops.policy.front.Prices` relies on it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from aiops.errors import ConfigError
from aiops.policy.exchange import Load, Network

Cost = Callable[[Load, Network, float], float]

# A dense value is a float32; so is a rank's bid to be the leader.
FLOAT_BYTES = 4


def _log2(ranks: int) -> float:
    return math.log2(ranks)


# One rank's ``size`` bytes to all others.
def _broadcast_s(route: str, load: Load, network: Network, size: float) -> float:
    if route == "direct":
        return network.latency_s + (load.ranks - 1) * size * network.byte_s
    return _log2(load.ranks) * (network.latency_s + size * network.byte_s)


# Every rank's ``size`` bytes to all others.
def _gather_s(route: str, load: Load, network: Network, size: float) -> float:
    others = load.ranks - 1
    rounds = {"ring": float(others), "direct": 1.0}.get(route, _log2(load.ranks))
    return rounds * network.latency_s + others * size * network.byte_s


# The sum over all ranks of ``size`` bytes, to all of them.
def _sum_s(route: str, load: Load, network: Network, size: float) -> float:
    ranks = load.ranks
    if route == "tree":
        return 2 * _log2(ranks) * (network.latency_s + size * network.byte_s)
    rounds = 2 if route == "direct" else 2 * (ranks - 1)
    return rounds * network.latency_s + 2 * (ranks - 1) / ranks * size * network.byte_s


# Float32 of everything, summed.
def _dense(route: str) -> Cost:
    def seconds(load: Load, network: Network, density: float) -> float:
        return _sum_s(route, load, network, FLOAT_BYTES * load.n)

    return seconds


# Each rank's positions and values, gathered.
def _allgather(route: str) -> Cost:
    def seconds(load: Load, network: Network, density: float) -> float:
        size = load.kept(density) * (load.index_bytes + load.value_bytes)
        return _gather_s(route, load, network, size)

    return seconds


# A leader's positions, and the sum of everybody's values there (Eqn 4a and 4b).
def _artopk(route: str) -> Cost:
    def seconds(load: Load, network: Network, density: float) -> float:
        k = load.kept(density)
        return _broadcast_s(route, load, network, k * load.index_bytes) + _sum_s(
            route, load, network, k * load.value_bytes
        )

    return seconds


# The same, of the leader with the largest bid.
def _var(route: str) -> Cost:
    led = _artopk(route)

    def seconds(load: Load, network: Network, density: float) -> float:
        return led(load, network, density) + _gather_s(route, load, network, FLOAT_BYTES)

    return seconds


# A k/N of the positions from each rank, and the sum of everybody's values there.
def _vote(route: str) -> Cost:
    def seconds(load: Load, network: Network, density: float) -> float:
        k = load.kept(density)
        return _gather_s(route, load, network, k * load.index_bytes / load.ranks) + _sum_s(
            route, load, network, k * load.value_bytes
        )

    return seconds


# Table I's star: the server is one of the ranks, and its link carries all.
def _dense_server(load: Load, network: Network, density: float) -> float:
    size = FLOAT_BYTES * load.n
    return 2 * network.latency_s + 2 * (load.ranks - 1) * size * network.byte_s


# N workers and a server of their own, whose link carries both ways. The answer holds the union of what was pushed,
# which is this large where ranks choose independently, and smaller where they agree.
def _topk_server(load: Load, network: Network, density: float) -> float:
    k = load.kept(density)
    union = load.n * (1.0 - (1.0 - k / load.n) ** load.ranks) if load.n else 0.0
    size = load.ranks * (k + union) * (load.index_bytes + load.value_bytes)
    return 2 * network.latency_s + size * network.byte_s


# The leader pushes its positions, the server hands them to the others; then values up, and their sum down.
def _artopk_server(load: Load, network: Network, density: float) -> float:
    size = load.ranks * load.kept(density) * (load.index_bytes + 2 * load.value_bytes)
    return 4 * network.latency_s + size * network.byte_s


# With one rank there is nothing to exchange, whatever a formula for several says.
def _alone(cost: Cost) -> Cost:
    def seconds(load: Load, network: Network, density: float) -> float:
        return cost(load, network, density) if load.ranks > 1 else 0.0

    return seconds


COSTS: dict[str, Cost] = {
    name: _alone(cost)
    for name, cost in {
        "dense_ring": _dense("ring"),
        "dense_tree": _dense("tree"),
        "dense_direct": _dense("direct"),
        "dense_server": _dense_server,
        "allgather_doubling": _allgather("doubling"),
        "allgather_ring": _allgather("ring"),
        "allgather_direct": _allgather("direct"),
        "artopk_ring": _artopk("ring"),
        "artopk_tree": _artopk("tree"),
        "artopk_direct": _artopk("direct"),
        "var_ring": _var("ring"),
        "var_tree": _var("tree"),
        "var_direct": _var("direct"),
        "vote_ring": _vote("ring"),
        "vote_tree": _vote("tree"),
        "vote_direct": _vote("direct"),
        "topk_server": _topk_server,
        "artopk_server": _artopk_server,
    }.items()
}


def is_dense(collective: str) -> bool:
    """Return whether it sends every value, so that its density is 1."""
    return collective.startswith("dense_")


def check_collectives(names: Sequence[str]) -> None:
    """Refuse a list of collectives that is empty or has a name without a cost.

    Raises:
        ConfigError: It is that.
    """
    if not names:
        raise ConfigError("there are 0 collectives to choose from, at least 1 is needed")
    for name in names:
        if name not in COSTS:
            near = difflib.get_close_matches(name.lower(), COSTS, n=1, cutoff=0.5)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"unknown collective {name!r}, known are {', '.join(COSTS)}{hint}")


def check_some_sparse(policy: str, names: Sequence[str]) -> None:
    """Refuse a list of collectives among which a policy that compresses has nothing to choose.

    Args:
        policy: Its name, for people.
        names: Of :data:`COSTS`.

    Raises:
        ConfigError: All of them send everything.
    """
    if all(is_dense(name) for name in names):
        raise ConfigError(
            f"{policy} has {', '.join(names)} to choose from, which all send everything: use fixed:1"
        )


def cheapest(
    load: Load, network: Network, density: float, collectives: Iterable[str]
) -> tuple[str, float]:
    """Return which collective takes the least, and its seconds; the first of several.

    Args:
        load: What there is to exchange.
        network: What a link is like.
        density: k/n of those that are not dense, in (0, 1].
        collectives: Names of :data:`COSTS`, at least one.
    """
    costs = [(name, COSTS[name](load, network, density)) for name in collectives]
    return min(costs, key=lambda cost: cost[1])


class Limits(NamedTuple):
    """AR-Topk's selection inequalities (Eqn 5), as limits of x = latency / (seconds a byte * k * v).

    Attributes:
        ring_tree: Below it artopk_ring beats artopk_tree (5a).
        ring_gather: Below it artopk_ring beats allgather_doubling (5b).
        tree_gather: Below it artopk_tree beats allgather_doubling (5c).
    """

    ring_tree: float
    ring_gather: float
    tree_gather: float


def limits(load: Load) -> Limits:
    """Return the limits of so many ranks, >= 2; the paper's where a position takes as many bytes as a value."""
    others, log = load.ranks - 1, _log2(load.ranks)
    ratio = load.index_bytes / load.value_bytes
    hops = others - log
    return Limits(
        (log - others / load.ranks) / hops if hops > 0 else math.inf,
        (1 + ratio) / 2 - ratio * log / (2 * others) - 1 / load.ranks,
        others * (1 + ratio) / (2 * log) - (ratio + 2) / 2,
    )


def rule(load: Load, network: Network, density: float) -> str:
    """Return the collective that AR-Topk's inequalities select; the one with the smallest of the three costs.

    Args:
        load: What there is to exchange; a value takes more than 0 bytes.
        network: What a link is like.
        density: k/n, in (0, 1].

    Returns:
        ``"artopk_ring"``, ``"artopk_tree"`` or ``"allgather_doubling"``.
    """
    if load.ranks < 2:
        return "allgather_doubling"
    # Multiplied out, so that a link without a limit to its bandwidth divides by nothing.
    x, unit = network.latency_s, network.byte_s * load.kept(density) * load.value_bytes
    bound = limits(load)
    over_tree = x < bound.ring_tree * unit if unit > 0 else False
    if over_tree and x < bound.ring_gather * unit:
        return "artopk_ring"
    if not over_tree and x < bound.tree_gather * unit:
        return "artopk_tree"
    return "allgather_doubling"
