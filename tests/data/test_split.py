from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops.data import load, partition
from aiops.errors import ConfigError

LABELS = np.arange(2_000) % 10


@given(
    n_workers=st.integers(1, 12),
    alpha=st.none() | st.floats(1e-3, 1e3),
    seed=st.integers(0, 2**32 - 1),
    n_classes=st.integers(1, 10),
)
def test_every_sample_goes_to_exactly_one_worker_and_all_get_a_batch(
    n_workers, alpha, seed, n_classes
):
    labels = np.arange(500) % n_classes
    parts = partition(labels, n_workers, alpha=alpha, seed=seed)
    assert len(parts) == n_workers
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(500))
    for part in parts:
        assert part.size >= 32
        assert part.dtype == np.int64
        assert np.all(np.diff(part) > 0)


@pytest.mark.parametrize("alpha", [None, 0.3])
def test_the_seed_alone_decides(alpha):
    first, again, other = (partition(LABELS, 4, alpha=alpha, seed=seed) for seed in (7, 7, 8))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_without_skew_workers_differ_by_one_sample_at_most():
    sizes = [part.size for part in partition(LABELS[:1_001], 4)]
    assert sizes == [251, 250, 250, 250]


def largest_class_share(alpha: float | None) -> float:
    labels = load("digits").y_train
    parts = partition(labels, 6, alpha=alpha, seed=1)
    return float(np.mean([np.bincount(labels[part]).max() / part.size for part in parts]))


def test_a_smaller_alpha_means_more_skew():
    even, mild, strong = (largest_class_share(alpha) for alpha in (None, 1.0, 0.1))
    assert even < 0.2
    assert even < mild < strong
    assert strong > 0.4


def test_a_worker_left_empty_is_filled_up_from_the_largest():
    # One class and an alpha this small give everything to one worker.
    parts = partition(np.zeros(100, dtype=np.int64), 3, alpha=1e-3, seed=0, min_samples=10)
    assert sorted(part.size for part in parts) == [10, 10, 80]


def test_there_may_be_just_enough_samples():
    parts = partition(LABELS[:96], 3, alpha=0.05, seed=0)
    assert [part.size for part in parts] == [32, 32, 32]


def test_labels_are_left_untouched():
    labels = LABELS.copy()
    labels.flags.writeable = False
    partition(labels, 4, alpha=0.3)
    assert np.array_equal(labels, LABELS)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_an_alpha_that_is_no_concentration_is_refused(alpha):
    with pytest.raises(ConfigError, match=f"alpha is {alpha}"):
        partition(LABELS, 4, alpha=alpha)


def test_more_workers_than_the_samples_feed_are_refused():
    with pytest.raises(ConfigError, match="95 samples do not give 3 workers 32 samples each"):
        partition(LABELS[:95], 3)
    with pytest.raises(ConfigError, match="among 0 workers"):
        partition(LABELS, 0)
