"""Compensations, aggregations and server optimizers by name, for configuration."""

from __future__ import annotations

from collections.abc import Callable

from aiops.merge import aggregation, compensation, optimizer

Factory = Callable[..., object]

AGGREGATION: dict[str, Factory] = {
    "mean": aggregation.mean,
    "median": aggregation.median,
    "trimmed_mean": aggregation.trimmed_mean,
    "krum": aggregation.krum,
}
OPTIMIZER: dict[str, Factory] = {
    "sgd": optimizer.sgd,
    "momentum": optimizer.momentum,
    "nesterov": optimizer.nesterov,
    "adam": optimizer.adam,
    "yogi": optimizer.yogi,
    "adagrad": optimizer.adagrad,
}
COMPENSATION: dict[str, Factory] = {
    "none": compensation.none,
    "mixing": compensation.mixing,
    "dcasgd": compensation.dcasgd,
    "dcasgd_adaptive": compensation.dcasgd_adaptive,
}
