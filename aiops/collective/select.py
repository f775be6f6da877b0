"""Which sums are sent: the largest, or one of the two ways that AR-Topk is measured against.

A selection adds an update to a residual and moves k of the sums out, as :func:`aiops.kernels.feedback_topk` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from aiops.collective.request import Floats
from aiops.kernels import Feedback, feedback_topk


class Select(Protocol):
    """A choice of k positions."""

    def __call__(self, residual: Floats, update: Floats, k: int, out: Floats) -> Feedback:
        """Let ``out`` be ``residual + update``, zero where a sum was moved out; return those.

        Args:
            residual: float32, shape (n,). Read only.
            update: float32, shape (n,). Read only.
            k: How many, 0 <= k <= n; exactly that many are moved.
            out: float32, shape (n,), apart from both.

        Raises:
            ValueError: A sum is not finite; ``out`` is the whole sum.
        """


def largest(residual: Floats, update: Floats, k: int, out: Floats) -> Feedback:
    """Move the k largest out, exactly and in one pass over memory."""
    return feedback_topk(residual, update, k, out=out)


class Layerwise:
    """The largest of each layer in proportion to its size ("LWTopk" in Tyagi and Swany, 2023).

    Args:
        sizes: Values of each layer, in the order of the vector.
    """

    __slots__ = ("_ends",)

    def __init__(self, sizes: Sequence[int]) -> None:
        self._ends = np.cumsum(np.asarray(sizes, np.int64))

    def __call__(self, residual: Floats, update: Floats, k: int, out: Floats) -> Feedback:
        """Move k out, a layer's share being k times its size over n, rounded so that the sum is k."""
        n = residual.size
        # Rounding the running sum keeps every layer within one of its share, and the whole at k.
        quota = np.diff((self._ends * k + n // 2) // max(n, 1), prepend=0)
        parts, at = [], 0
        bad = False
        for end, share in zip(self._ends, quota, strict=True):
            cut = slice(at, end)
            try:
                parts.append(
                    (at, feedback_topk(residual[cut], update[cut], int(share), out=out[cut]))
                )
            except ValueError:
                bad = True
            at = int(end)
        if bad:
            np.add(residual, update, out=out)
            raise ValueError("residual plus update is not finite")
        index = np.concatenate([(found.index + np.uint32(start)) for start, found in parts])
        return Feedback(
            index.astype(np.uint32, copy=False),
            np.concatenate([found.value for _, found in parts]),
            sum(found.energy for _, found in parts),
            sum(found.moved_energy for _, found in parts),
        )


class MsTopk:
    """A threshold found by bisection, and a run of what lies next to it ("MSTopk", Shi et al., 2021).

    With a = |x|, mean m and maximum u the threshold m + ratio (u - m) is bisected in the ratio; all above the tighter
    one of the bracketing thresholds are taken, and a run of those between the two, from a random place, fills up to k.

    Args:
        rounds: Bisections, each a counting pass.
        seed: Of the random places.
    """

    __slots__ = ("_random", "_rounds")

    def __init__(self, *, rounds: int = 25, seed: int = 0) -> None:
        self._rounds = rounds
        self._random = np.random.default_rng(seed)

    def __call__(self, residual: Floats, update: Floats, k: int, out: Floats) -> Feedback:
        """Move k out: all that are above a threshold, and some of those just below it."""
        whole = feedback_topk(residual, update, 0, out=out)
        index = self._pick(np.abs(out), k)
        value = out[index]
        out[index] = 0.0
        return Feedback(index, value, whole.energy, float(np.dot(value, value)))

    def _pick(self, size: Floats, k: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        if not k:
            return np.empty(0, np.uint32)
        mean, most = float(size.mean()), float(size.max())
        low, high = 0.0, 1.0
        tight, loose = np.inf, 0.0
        for _ in range(self._rounds):
            ratio = (low + high) / 2
            threshold = mean + ratio * (most - mean)
            if np.count_nonzero(size >= threshold) <= k:
                high, tight = ratio, threshold
            else:
                low, loose = ratio, threshold
        sure = np.flatnonzero(size >= tight)[:k]
        between = np.flatnonzero((size >= loose) & (size < tight))
        wanted = k - sure.size
        if between.size < wanted:
            # The mean itself is above what has to be taken: the run is of all that are not sure.
            between = np.flatnonzero(size < tight)
        start = int(self._random.integers(between.size - wanted + 1)) if wanted else 0
        picked = np.concatenate([sure, between[start : start + wanted]])
        return np.sort(picked).astype(np.uint32)


def selection(name: str, layers: Sequence[int], seed: int) -> Select:
    """Return what ``name`` stands for: "largest", "layerwise" or "mstopk".

    Args:
        name: One of those.
        layers: Values of each layer, in the order of the vector.
        seed: Of what is random.
    """
    known: dict[str, Select] = {
        "largest": largest,
        "layerwise": Layerwise(layers),
        "mstopk": MsTopk(seed=seed),
    }
    return known[name]
