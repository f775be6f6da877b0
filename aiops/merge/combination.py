"""Which numeric rules make no sense together, or with the policies; every refusal is one sentence with the way out."""

from __future__ import annotations

from aiops.errors import ConfigError
from aiops.merge.aggregation import Mean
from aiops.merge.base import Aggregation, Compensation, Rules, Selection, ServerOptimizer
from aiops.merge.compensation import Mixing
from aiops.merge.optimizer import Adagrad, Adam, Sgd
from aiops.policy.base import SyncPolicy, WeightRule, WorkPolicy
from aiops.policy.combination import TWINS, scales
from aiops.policy.sync import Buffered
from aiops.policy.weight import Uniform
from aiops.policy.work import Fixed


def check_rules(
    rules: Rules,
    sync: SyncPolicy,
    weights: WeightRule,
    work: WorkPolicy,
    *,
    min_workers: int,
    server_lr: float,
) -> None:
    """Refuse rules that make no sense together, or with the policies.

    Raises:
        ConfigError: Two of them do not go together.
    """
    check_aggregation(rules.aggregation, sync, weights, min_workers=min_workers)
    check_optimizer(rules.optimizer, weights, server_lr=server_lr)
    if rules.compensation is not None:
        check_compensation(rules.compensation, sync, weights, work)


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
            f"aggregation {aggregation.name!r} compares one push of every worker, and sync {sync!r} does not "
            "wait for them all: use sync bulk, or aggregation mean"
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


def check_optimizer(optimizer: ServerOptimizer, weights: WeightRule, *, server_lr: float) -> None:
    """Refuse two learning rates at once, and one that has no say.

    Raises:
        ConfigError: Both the optimizer and ``server_lr`` scale the step, or it divides by the size of an update that
            weights scale.
    """
    if isinstance(optimizer, Adagrad | Adam) and scales(weights):
        raise ConfigError(
            f"weights {weights!r} scale updates, and optimizer {optimizer.name!r} divides by their size: use "
            "optimizer sgd or momentum, or leave linear_scaling out"
        )
    if server_lr != 1.0 and not isinstance(optimizer, Sgd):
        raise ConfigError(
            f"server_lr is {server_lr:g} and optimizer {optimizer.name!r} has a learning rate of its "
            "own: leave server_lr at 1, or use optimizer sgd"
        )


def check_mean(aggregation: Aggregation, optimizer: ServerOptimizer) -> None:
    """Refuse rules after which a model's change is not the workers' mean progress, as drift correction takes it to be.

    Raises:
        ConfigError: The aggregation or the optimizer is such a rule.
    """
    for kind, rule, plain in (("aggregation", aggregation, Mean), ("optimizer", optimizer, Sgd)):
        if not isinstance(rule, plain):
            raise ConfigError(
                f"drift correction reads the workers' mean progress from the model's change, and {kind} "
                f"{rule.name!r} makes another one of it: use aggregation mean and optimizer sgd, or drift 'off'"
            )


def check_auto_rules(aggregation: Aggregation, optimizer: ServerOptimizer) -> None:
    """Refuse rules that what ``auto`` may turn on does not go with.

    Raises:
        ConfigError: The aggregation or the optimizer is such a rule.
    """
    for kind, rule, plain in (("aggregation", aggregation, Mean), ("optimizer", optimizer, Sgd)):
        if not isinstance(rule, plain):
            raise ConfigError(
                f"auto may turn drift correction on, which needs the workers' mean progress, and {kind} {rule.name!r} "
                "makes another one of it: use aggregation mean and optimizer sgd, or leave auto out"
            )


def check_folded(aggregation: Aggregation) -> None:
    """Refuse an aggregation that looks at single pushes, where their sum is all that is kept.

    Raises:
        ConfigError: It is one.
    """
    if not isinstance(aggregation, Mean):
        raise ConfigError(
            f"fold 'arrival' keeps the sum of the pushes alone, and aggregation {aggregation.name!r} compares "
            "them: use fold 'ordered', or aggregation mean"
        )


def check_bucketwise(aggregation: Aggregation) -> None:
    """Refuse an aggregation that looks at whole pushes before it says what any bucket comes to.

    Raises:
        ConfigError: It is one that chooses between them.
    """
    if isinstance(aggregation, Selection):
        raise ConfigError(
            f"aggregation {aggregation.name!r} chooses between whole pushes, and stream_bytes sends buckets "
            "back before they are here: use aggregation median or trimmed_mean, or leave stream_bytes out"
        )


def check_compensation(
    compensation: Compensation, sync: SyncPolicy, weights: WeightRule, work: WorkPolicy
) -> None:
    """Refuse a compensation of pushes that are never late, start from no model, or are of other steps than it takes.

    Raises:
        ConfigError: They do not go together.
    """
    name = compensation.name
    if sync.barrier:
        raise ConfigError(
            f"compensation {name!r} is for pushes that come late, and sync {sync!r} merges the pushes of "
            "one version together: use sync asynchronous or ssp, or compensation none"
        )
    if work.overlap:
        raise ConfigError(
            f"compensation {name!r} looks at the model that a push started from, and with work {work!r} "
            "a worker's first push starts from none of the server's: use fixed work"
        )
    steps = compensation.local_steps
    if steps is not None and isinstance(work, Fixed) and work.steps != steps:
        raise ConfigError(
            f"compensation {name!r} takes a push for {steps} step of plain SGD, and work {work!r} makes "
            f"{work.steps}: use work fixed:{steps}"
        )
    if isinstance(compensation, Mixing):
        if isinstance(sync, Buffered):
            raise ConfigError(
                f"compensation {name!r} mixes one model at a time in, and sync {sync!r} merges several: "
                "use sync asynchronous or ssp, or compensation none"
            )
        if scales(weights):
            raise ConfigError(
                f"compensation {name!r} mixes a push's model in by its weight, and weights {weights!r} scale it by "
                "samples, beyond 1: leave linear_scaling out"
            )
        (share,) = weights(TWINS[:1])
        if share >= 1:
            raise ConfigError(
                f"compensation {name!r} mixes a push's model in by its weight, and weights {weights!r} put "
                f"it in the model's place at {share:g}: use weights such as constant:0.6*by_staleness:0.5"
            )
