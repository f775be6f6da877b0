"""Which policies make no sense together; every refusal is one sentence with the way out."""

from __future__ import annotations

import math
from collections.abc import Iterator

from aiops.errors import ConfigError
from aiops.policy.base import PushView, SyncPolicy, WeightRule, WorkPolicy
from aiops.policy.sync import Asynchronous, Bulk, StaleSynchronous
from aiops.policy.weight import ByStaleness, BySteps, Hinge, Normalized, Product
from aiops.policy.work import Fixed, UntilModel
from aiops.types import Version, WorkerId

# Two workers that did the same; any share gives them a half each.
_TWINS = tuple(
    PushView(
        worker=WorkerId(number),
        base=Version(0),
        staleness=0,
        n_samples=32,
        n_steps=1,
        loss=1.0,
        arrived=0.0,
    )
    for number in range(2)
)


def check_weights(sync: SyncPolicy, weights: WeightRule) -> None:
    """Refuse weights that would blow an update up, or that cannot do what they say, under ``sync``.

    Raises:
        ConfigError: The two do not go together.
    """
    if isinstance(sync, Bulk):
        total = math.fsum(weights(_TWINS))
        if not math.isclose(total, 1.0, rel_tol=1e-6):
            raise ConfigError(
                f"weights {weights!r} give two equal pushes of a bulk round {total:g} in all, not 1: "
                "multiply one share (uniform, by_samples, by_steps) by factors, or use normalized(...)"
            )
    if isinstance(sync, Asynchronous | StaleSynchronous):
        _check_single_pushes(weights)


def check_streaming(sync: SyncPolicy) -> None:
    """Refuse to send buckets back ahead of a round where it is not known beforehand what the round closes with.

    Raises:
        ConfigError: ``sync`` has no barrier.
    """
    if not sync.barrier:
        raise ConfigError(
            f"stream_bytes sends chunks back before a push is whole, and with sync {sync!r} another push may become a "
            "version first: use sync bulk, or leave stream_bytes out"
        )


# Without rounds an update is one push, so whatever compares pushes gives it weight 1.
def _check_single_pushes(weights: WeightRule) -> None:
    rules = list(_walk(weights))
    if any(isinstance(rule, BySteps) for rule in rules):
        raise ConfigError(
            "by_steps compares the pushes of one round, and without bulk sync there is one push at "
            "a time: use by_staleness or uniform, or sync bulk"
        )
    for rule in rules:
        if isinstance(rule, Normalized) and any(
            isinstance(inner, ByStaleness | Hinge) for inner in _walk(rule)
        ):
            raise ConfigError(
                "normalized makes the weight of a single push 1 whatever its staleness, and without "
                "bulk sync there is one push at a time: use the staleness rule without normalized"
            )


def _walk(rule: WeightRule) -> Iterator[WeightRule]:
    yield rule
    inner: tuple[WeightRule, ...] = ()
    if isinstance(rule, Product):
        inner = rule.rules
    elif isinstance(rule, Normalized):
        inner = (rule.rule,)
    elif isinstance(rule, BySteps):
        inner = (rule.shares,)
    for part in inner:
        yield from _walk(part)


def check_work(sync: SyncPolicy, work: WorkPolicy, *, merge: str, bootstrap: str) -> None:
    """Refuse work that ``sync`` would never accept or bound, and options that blocking work has no use for.

    Raises:
        ConfigError: They do not go together.
    """
    if not work.overlap:
        if merge != "reset":
            raise ConfigError(
                f"merge {merge!r} keeps what a worker does while the model travels, and work {work!r} "
                "does nothing then: use merge 'reset', or work until_model"
            )
        if bootstrap != "fixed":
            raise ConfigError(
                f"bootstrap {bootstrap!r} is about the first overlapped push, and work {work!r} does "
                "not overlap: use bootstrap 'fixed', or work until_model"
            )
    elif sync.max_staleness == 0:
        raise ConfigError(
            f"sync {sync!r} merges no push that is 1 round old, and with work {work!r} every push is: "
            "use max_staleness 1, or fixed work"
        )
    if isinstance(sync, StaleSynchronous):
        _check_bound(sync.bound, work)


def _check_bound(bound: int, work: WorkPolicy) -> None:
    if isinstance(work, UntilModel) and work.max_steps is None:
        raise ConfigError(
            f"ssp's bound of {bound} steps would not hold, because until_model without max_steps goes "
            "on while it waits: use fixed work, or give until_model a max_steps"
        )
    if isinstance(work, Fixed) and 0 < bound < work.steps:
        raise ConfigError(
            f"ssp's bound is {bound} local steps and every push makes {work.steps}, so it would act "
            f"as 0: use a bound >= {work.steps}, or 0 for lock-step"
        )
