"""Combinations that are refused, each beside the nearest one that is not."""

from __future__ import annotations

import pytest

from aiops.errors import ConfigError
from aiops.merge.aggregation import krum, mean, median, trimmed_mean
from aiops.merge.combination import check_aggregation, check_optimizer
from aiops.merge.optimizer import adam, sgd
from aiops.policy.table import parse_sync, parse_weights


@pytest.mark.parametrize(
    ("rule", "good", "bad", "sentence"),
    [
        (median(), ("bulk", "uniform", 1), ("asynchronous", "uniform", 1), "use sync bulk"),
        (median(), ("bulk:0", "uniform", 1), ("ssp:2", "uniform", 1), "one push at a time"),
        (
            trimmed_mean(0.1),
            ("bulk", "uniform", 1),
            ("bulk", "by_samples", 1),
            r"would ignore weights BySamples\(\): use weights uniform",
        ),
        (
            krum(1, 2),
            ("bulk", "uniform", 5),
            ("bulk", "uniform", 4),
            "takes rounds of at least 5 pushes and min_workers is 4: use min_workers 5 or more",
        ),
    ],
)
def test_robust_aggregation(rule, good, bad, sentence):
    for sync, weights, min_workers in (good, bad):
        args = (parse_sync(sync), parse_weights(weights))
        if (sync, weights, min_workers) == good:
            check_aggregation(rule, *args, min_workers=min_workers)
            continue
        check_aggregation(mean(), *args, min_workers=min_workers)
        with pytest.raises(ConfigError, match=sentence):
            check_aggregation(rule, *args, min_workers=min_workers)


def test_two_learning_rates_are_refused():
    check_optimizer(sgd(), server_lr=0.5)
    check_optimizer(adam(), server_lr=1.0)
    with pytest.raises(ConfigError, match=r"server_lr is 0.5 and optimizer 'adam:0.01,.* its own"):
        check_optimizer(adam(), server_lr=0.5)
