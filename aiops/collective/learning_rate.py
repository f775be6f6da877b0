"""A learning rate for one step only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from aiops.errors import ConfigError


@contextmanager
def scaled_learning_rate(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """Multiply the learning rate of every parameter group inside of the ``with``, and put it back after it.

    ``with scaled_learning_rate(optimizer, rule.factor(step, sum(outcome.samples))): optimizer.step()``, where ``rule``
    is a :class:`aiops.policy.learning_rate.LearningRate`. A scheduler does not see it.

    Args:
        optimizer: Whose learning rates, numbers or tensors.
        factor: Finite and >= 0; with 0 nothing is learnt, but momentum goes on.

    Raises:
        ConfigError: The factor is neither; no rate has changed.
    """
    if not (math.isfinite(factor) and factor >= 0):
        raise ConfigError(f"the learning rate's factor is {factor!r}, it must be finite and >= 0")
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
