"""Which numeric rules make no sense together, or with the policies; every refusal is one sentence with the way out."""

from __future__ import annotations

from aiops.errors import ConfigError
from aiops.merge.base import Aggregation, ServerOptimizer
from aiops.merge.optimizer import Sgd
from aiops.policy.base import SyncPolicy, WeightRule
from aiops.policy.weight import Uniform


def check_aggregation(
    aggregation: Aggregation, sync: SyncPolicy, weights: WeightRule, *, min_workers: int
) -> None:
    """Refuse an aggregation whose rounds have nothing to compare, or too little, or where weights would be ignored.

    Raises:
        ConfigError: They do not go together.
    """
    if not aggregation.robust:
        return
    if not sync.barrier:
        raise ConfigError(
            f"aggregation {aggregation.name!r} compares the pushes of one round, and without bulk sync "
            "there is one push at a time: use sync bulk, or aggregation mean"
        )
    if not isinstance(weights, Uniform):
        raise ConfigError(
            f"aggregation {aggregation.name!r} counts every push the same and would ignore weights "
            f"{weights!r}: use weights uniform"
        )
    if min_workers < aggregation.least:
        raise ConfigError(
            f"aggregation {aggregation.name!r} takes rounds of at least {aggregation.least} pushes and "
            f"min_workers is {min_workers}: use min_workers {aggregation.least} or more"
        )


def check_optimizer(optimizer: ServerOptimizer, *, server_lr: float) -> None:
    """Refuse two learning rates at once.

    Raises:
        ConfigError: Both the optimizer and ``server_lr`` scale the step.
    """
    if server_lr != 1.0 and not isinstance(optimizer, Sgd):
        raise ConfigError(
            f"server_lr is {server_lr:g} and optimizer {optimizer.name!r} has a learning rate of its "
            "own: leave server_lr at 1, or use optimizer sgd"
        )
