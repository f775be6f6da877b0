"""Learning rates against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from aiops.errors import ConfigError
from aiops.policy.learning_rate import LearningRate


@pytest.mark.parametrize(
    ("rule", "step", "total", "factor"),
    [
        # 257 samples a second each on ten devices, where 640 were meant.
        pytest.param(LearningRate(640, None, 0), 0, 2570, 2570 / 640, id="the paper's"),
        pytest.param(LearningRate(640, None, 0), 0, 64_000, 100.0, id="it has no cap"),
        pytest.param(LearningRate(640, math.inf, 0), 0, 64_000, 100.0, id="nor has infinity"),
        pytest.param(LearningRate(640, warmup=0), 0, 64_000, 8.0, id="a cap of 8"),
        pytest.param(LearningRate(640, 2, 0), 0, 1280, 2.0, id="at the cap"),
        pytest.param(LearningRate(100, None, 10), 0, 500, 1.0, id="warm-up begins at 1"),
        pytest.param(LearningRate(100, None, 10), 5, 500, 3.0, id="half of it"),
        pytest.param(LearningRate(100, None, 10), 10, 500, 5.0, id="and its end"),
        pytest.param(LearningRate(100, 3, 10), 5, 500, 2.0, id="warm-up is to the cap"),
        pytest.param(LearningRate(100, None, 10), 0, 50, 0.5, id="none below 1"),
        pytest.param(LearningRate(100), 99, 0, 0.0, id="no samples, no step"),
    ],
)
def test_factors(rule, step, total, factor):
    assert rule.factor(step, total) == pytest.approx(factor, rel=1e-15)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LearningRate(0), "base_batch is 0, it must be a whole number from 1 to"),
        (lambda: LearningRate(10**330), "0, it must be a whole number from 1 to 9007199254740992"),
        (lambda: LearningRate(1, 0.5), "cap is 0.5, it must be >= 1, or inf for no limit"),
        (lambda: LearningRate(1, math.nan), "cap is nan"),
        (lambda: LearningRate(1, warmup=-1), "warmup is -1, it must be a whole number >= 0"),
        (lambda: LearningRate(1, warmup=2.5), "warmup is 2.5"),
    ],
)
def test_what_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()
