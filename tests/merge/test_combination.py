"""Combinations that are refused, each beside the nearest one that is not."""

from __future__ import annotations

import pytest

from aiops.errors import ConfigError
from aiops.merge.aggregation import krum, mean, median, trimmed_mean
from aiops.merge.combination import check_aggregation, check_compensation, check_optimizer
from aiops.merge.compensation import dcasgd, dcasgd_adaptive, mixing
from aiops.merge.optimizer import adagrad, adam, momentum, sgd, yogi
from aiops.policy.table import parse_sync, parse_weights, parse_work


@pytest.mark.parametrize(
    ("rule", "good", "bad", "sentence"),
    [
        (median(), ("bulk", "uniform", 1), ("asynchronous", "uniform", 1), "use sync bulk"),
        (median(), ("bulk", "uniform", 1), ("buffered:4", "uniform", 1), "use sync bulk"),
        (
            median(),
            ("bulk:0", "uniform", 1),
            ("ssp:2", "uniform", 1),
            "does not wait for them all: use sync bulk",
        ),
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
    weights = parse_weights("by_samples")
    check_optimizer(sgd(), weights, server_lr=0.5)
    check_optimizer(adam(), weights, server_lr=1.0)
    with pytest.raises(ConfigError, match=r"server_lr is 0.5 and optimizer 'adam:0.01,.* its own"):
        check_optimizer(adam(), weights, server_lr=0.5)


@pytest.mark.parametrize("rule", [adagrad(), adam(), yogi()])
def test_a_scaled_learning_rate_is_refused_where_it_is_divided_out(rule):
    weights = parse_weights("by_samples*linear_scaling:640")
    check_optimizer(sgd(), weights, server_lr=0.5)
    check_optimizer(momentum(), weights, server_lr=1.0)
    with pytest.raises(ConfigError, match=r"divides by their size: use optimizer sgd or momentum"):
        check_optimizer(rule, weights, server_lr=1.0)


@pytest.mark.parametrize(
    ("rule", "good", "bad", "sentence"),
    [
        (
            dcasgd(0.04, 0.1),
            ("asynchronous", "uniform", "fixed:1"),
            ("bulk:0", "uniform", "fixed:1"),
            "for pushes that come late, and sync .* use sync asynchronous or ssp",
        ),
        (
            dcasgd(0.04, 0.1),
            ("ssp:3", "by_staleness", "fixed:1"),
            ("ssp:10", "by_staleness", "fixed:10"),
            "takes a push for 1 step of plain SGD, and work .* makes 10: use work fixed:1",
        ),
        (
            dcasgd_adaptive(2.0, 0.95, 0.1),
            ("asynchronous", "uniform", "fixed:1"),
            ("asynchronous", "uniform", "until_model"),
            "a worker's first push starts from none of the server's: use fixed work",
        ),
        (
            mixing(),
            ("ssp:30", "constant:0.9", "fixed:10"),
            ("buffered:4", "uniform", "fixed:10"),
            "mixes one model at a time in, and sync .* merges several",
        ),
        (
            mixing(),
            ("asynchronous", "constant:0.9*by_staleness", "fixed:10"),
            ("asynchronous", "by_staleness", "fixed:10"),
            "in the model's place at 1: use weights such as constant:0.6",
        ),
        (
            mixing(),
            ("asynchronous", "constant:0.9*by_staleness", "fixed:10"),
            ("asynchronous", "constant:0.9*linear_scaling:64", "fixed:10"),
            "scale it by samples, beyond 1: leave linear_scaling out",
        ),
    ],
)
def test_compensations(rule, good, bad, sentence):
    for sync, weights, work in (good, bad):
        args = (parse_sync(sync), parse_weights(weights), parse_work(work))
        if (sync, weights, work) == good:
            check_compensation(rule, *args)
            continue
        with pytest.raises(ConfigError, match=sentence):
            check_compensation(rule, *args)
