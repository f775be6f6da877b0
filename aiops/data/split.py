"""Who gets which samples: a training set divided among workers, evenly or with skewed labels."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from aiops.errors import ConfigError


def partition(
    labels: NDArray[np.integer],
    n_workers: int,
    *,
    alpha: float | None = None,
    seed: int = 0,
    min_samples: int = 32,
) -> list[NDArray[np.int64]]:
    """Divide samples among workers: every sample goes to exactly one of them.

    With ``alpha``, each class is divided in shares drawn from a symmetric Dirichlet distribution (Yurochkin et al.,
    2019): 100 is close to even; of ten classes, 0.3 leaves most workers three to five and 0.1 two to four. Workers
    then differ in size as well. A worker that came away with less than ``min_samples`` is filled up with random
    samples of whichever worker has most.

    Partitions of different seeds differ in difficulty by up to a factor of two, so a comparison keeps this seed and
    varies the others.

    Args:
        labels: Integers, shape (n,). Left untouched.
        n_workers: How many parts to make.
        alpha: Concentration of the label skew; None deals the samples out evenly and at random.
        seed: The same seed gives the same parts.
        min_samples: The least a worker gets: one batch, so that its first step is a full one.

    Returns:
        One array per worker: int64 positions in ``labels``, ascending.

    Raises:
        ConfigError: ``alpha`` is not a positive number, or the samples do not suffice for so many workers.
    """
    if n_workers < 1:
        raise ConfigError(f"cannot divide samples among {n_workers} workers, it takes at least 1")
    if labels.size < n_workers * min_samples:
        raise ConfigError(
            f"{labels.size} samples do not give {n_workers} workers {min_samples} samples each"
        )
    rng = np.random.default_rng(seed)
    if alpha is None:
        parts = np.array_split(rng.permutation(labels.size), n_workers)
    elif 0.0 < alpha < math.inf:
        parts = _fill_up(_by_class(labels, n_workers, alpha, rng), min_samples, rng)
    else:
        raise ConfigError(f"alpha is {alpha}, label skew needs a positive finite number")
    return [np.sort(part).astype(np.int64) for part in parts]


def _by_class(
    labels: NDArray[np.integer], n_workers: int, alpha: float, rng: np.random.Generator
) -> list[NDArray[np.intp]]:
    shares: list[list[NDArray[np.intp]]] = [[] for _ in range(n_workers)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        proportions = rng.dirichlet(np.full(n_workers, alpha))
        # The last edge is left out: np.split gives the rest to the last worker, so rounding loses no sample.
        edges = np.round(np.cumsum(proportions)[:-1] * members.size).astype(np.intp)
        for share, piece in zip(shares, np.split(members, edges), strict=True):
            share.append(piece)
    return [np.concatenate(share) for share in shares]


def _fill_up(
    parts: list[NDArray[np.intp]], min_samples: int, rng: np.random.Generator
) -> list[NDArray[np.intp]]:
    # Ends: each pass lifts one part to the minimum for good or empties the largest down to it, and the caller has
    # checked that there are enough samples for all.
    while True:
        sizes = [part.size for part in parts]
        poorest, richest = sizes.index(min(sizes)), sizes.index(max(sizes))
        missing = min_samples - sizes[poorest]
        if missing <= 0:
            return parts
        moved = min(missing, sizes[richest] - min_samples)
        shuffled = rng.permutation(parts[richest])
        parts[poorest] = np.concatenate([parts[poorest], shuffled[:moved]])
        parts[richest] = shuffled[moved:]
