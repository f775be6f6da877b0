"""Which policies make no sense together; every refusal is one sentence with the way out."""

from __future__ import annotations

import math
from collections.abc import Iterator

from aiops.errors import ConfigError
from aiops.policy.base import (
    FoldableRule,
    PushView,
    QueriedWork,
    SyncPolicy,
    WeightRule,
    WorkPolicy,
)
from aiops.policy.dssp import DynamicStaleSynchronous
from aiops.policy.learning_rate import LinearScaling
from aiops.policy.sync import Asynchronous, Buffered, Bulk, StaleSynchronous
from aiops.policy.weight import ByData, ByStaleness, BySteps, Hinge, Normalized, Product
from aiops.policy.work import FillTheSync, Fixed, Fragments, UntilModel
from aiops.types import Version, WorkerId

# Two workers that did the same, with fresh pushes; any share gives them a half each.
TWINS = tuple(
    PushView(
        worker=WorkerId(number),
        base=Version(0),
        staleness=0,
        n_samples=32,
        n_data=32,
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
    _check_scaling(weights)
    if isinstance(sync, Bulk | Buffered):
        # What their learning rate is scaled by is no part of what they are worth to each other.
        scale = math.prod(rule.scale(TWINS) for rule in _scalings(weights))
        total = math.fsum(weights(TWINS)) / scale
        if not math.isclose(total, 1.0, rel_tol=1e-6):
            what = "buffer" if isinstance(sync, Buffered) else "bulk round"
            normalizes = isinstance(sync, Bulk) and not scales(weights)
            or_else = ", or use normalized(...)" if normalizes else ""
            raise ConfigError(
                f"weights {weights!r} give two equal pushes of a {what} {total:g} in all, not 1: "
                f"multiply one share (uniform, by_samples, by_data, by_steps) by factors{or_else}"
            )
    if isinstance(sync, Buffered) and _hides_staleness(weights):
        raise ConfigError(
            "normalized divides by the sum of the weights, so that a buffer of old pushes would count "
            "as one of fresh pushes: divide by their number, uniform*by_staleness:0.5"
        )
    if isinstance(sync, Asynchronous | StaleSynchronous | DynamicStaleSynchronous):
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
    if _hides_staleness(weights):
        raise ConfigError(
            "normalized makes the weight of a single push 1 whatever its staleness, and without "
            "bulk sync there is one push at a time: use the staleness rule without normalized"
        )


# Whatever divides weights by their sum divides by their common factor, too.
def _check_scaling(weights: WeightRule) -> None:
    if len(_scalings(weights)) > 1:
        raise ConfigError(
            f"weights {weights!r} scale the learning rate twice: use one linear_scaling"
        )
    for rule in _walk(weights):
        if isinstance(rule, Normalized | BySteps) and scales(rule):
            raise ConfigError(
                f"weights {rule!r} divide by a sum that linear_scaling is a factor of, so that it does nothing: "
                "multiply by it outside, by_steps*linear_scaling:640"
            )


def scales(weights: WeightRule) -> bool:
    """Return whether a rule scales the learning rate."""
    return bool(_scalings(weights))


def _scalings(weights: WeightRule) -> list[LinearScaling]:
    return [rule for rule in _walk(weights) if isinstance(rule, LinearScaling)]


def needs_data(weights: WeightRule) -> bool:
    """Return whether a rule looks at how many training samples a worker has."""
    return any(isinstance(rule, ByData) for rule in _walk(weights))


def _hides_staleness(weights: WeightRule) -> bool:
    return any(
        isinstance(inner, ByStaleness | Hinge)
        for rule in _walk(weights)
        if isinstance(rule, Normalized)
        for inner in _walk(rule)
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
    if isinstance(work, Fragments):
        _check_fragments(sync, work, merge=merge, bootstrap=bootstrap)
    elif not work.overlap:
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
    if isinstance(work, QueriedWork) and not sync.barrier:
        raise ConfigError(
            f"work {work!r} lets all workers end a round at the same time, and sync {sync!r} has no "
            "rounds: use sync bulk:0, or fixed work"
        )
    if isinstance(sync, StaleSynchronous):
        _check_bound("ssp's bound", sync.bound, work)
    if isinstance(sync, DynamicStaleSynchronous):
        _check_bound("dssp's low", sync.low, work)
        if isinstance(work, Fixed) and sync.high - sync.low < work.steps:
            raise ConfigError(
                f"dssp's range is {sync.high - sync.low} local steps and every push makes {work.steps}, so "
                f"that nobody ever gets a further one: use a high >= {sync.low + work.steps}"
            )
    if isinstance(sync, Buffered) and merge == "eager":
        raise ConfigError(
            "merge 'eager' divides by the pushes of the model's version, and a buffered push is answered "
            "before it is known which: use merge 'carry', 'partial' or 'reset'"
        )


def check_members(sync: SyncPolicy, *, max_members: int) -> None:
    """Refuse a buffer that is larger than all workers fill with a push each.

    Raises:
        ConfigError: They do not go together.
    """
    if isinstance(sync, Buffered) and sync.size > max_members:
        raise ConfigError(
            f"buffered waits for {sync.size} pushes and there are at most {max_members} workers, so that "
            "some would have to push twice: use a smaller size, or raise max_members"
        )


def _check_fragments(sync: SyncPolicy, work: Fragments, *, merge: str, bootstrap: str) -> None:
    if not sync.barrier:
        raise ConfigError(
            f"work {work!r} takes one fragment in a round, from all workers the same, and sync {sync!r} does not "
            "wait for them all: use sync bulk"
        )
    if merge != "mix":
        raise ConfigError(
            f"merge {merge!r} is for models that come whole, and work {work!r} takes a fragment at a time: use "
            "merge mix:0.5"
        )
    if bootstrap != "fixed":
        raise ConfigError(
            f"bootstrap {bootstrap!r} is about NBSync's first push, and work {work!r} has none: use bootstrap 'fixed'"
        )


def check_fold(sync: SyncPolicy, weights: WeightRule) -> None:
    """Refuse to add pushes to a round's sum as they come where there are no rounds, or weights are not known by then.

    Raises:
        ConfigError: They do not go together.
    """
    if not isinstance(sync, Bulk):
        raise ConfigError(
            f"fold 'arrival' adds the pushes of a bulk round as they come, and sync {sync!r} holds no round "
            "of all workers: use sync bulk, or fold 'ordered'"
        )
    for rule in _walk(weights):
        if not isinstance(rule, FoldableRule):
            raise ConfigError(
                f"fold 'arrival' needs each push's own weight before the others have come, and {rule!r} has no "
                "'raw' and 'scale': use another rule, or fold 'ordered'"
            )


def check_drift(
    sync: SyncPolicy,
    weights: WeightRule,
    work: WorkPolicy,
    *,
    merge: str,
    beta: float,
    bootstrap: str,
) -> None:
    """Refuse what drift correction cannot work with: it compares the progress per step of one round's pushes.

    Raises:
        ConfigError: They do not go together.
    """
    if not sync.barrier:
        raise ConfigError(
            f"drift correction compares the workers of one round, and sync {sync!r} does not wait for "
            "them all: use sync bulk, or drift 'off'"
        )
    if not any(isinstance(rule, BySteps) for rule in _walk(weights)):
        raise ConfigError(
            f"drift correction needs the mean progress per local step, and weights {weights!r} count fast "
            "workers' steps for more: use by_steps, or drift 'off'"
        )
    if scales(weights):
        raise ConfigError(
            f"drift correction reads the workers' mean progress from the model's change, and weights {weights!r} "
            "scale it: leave linear_scaling out, or use drift 'off'"
        )
    if isinstance(work, Fragments):
        raise ConfigError(
            f"drift correction needs the whole model's change, and work {work!r} takes a fragment at a time: use "
            "work until_model or fixed, or drift 'off'"
        )
    if bootstrap != "fixed":
        raise ConfigError(
            f"bootstrap {bootstrap!r} pushes steps twice, which drift correction would take for progress: "
            "use bootstrap 'fixed', or drift 'off'"
        )
    if work.overlap:
        check_drift_merge(merge, beta)


def check_drift_merge(merge: str, beta: float) -> None:
    """Refuse an overlapped worker's merge rule that drift correction diverges with, or is of no use to.

    Raises:
        ConfigError: It is another one than partial, or that keeps all of the worker's own progress, or nothing.
    """
    # Beyond some 40 steps a window both ends diverge where the middle does not.
    if merge != "partial" or not 0 < beta < 1:
        text = f"{merge}:{beta:g}" if merge == "partial" else merge
        raise ConfigError(
            f"drift correction of overlapped workers needs merge partial with 0 < beta < 1, not {text!r}: "
            "use partial:0.5, or drift 'off'"
        )


def _check_bound(name: str, bound: int, work: WorkPolicy) -> None:
    if isinstance(work, UntilModel) and work.max_steps is None:
        raise ConfigError(
            f"{name} of {bound} steps would not hold, because until_model without max_steps goes "
            "on while it waits: use fixed work, or give until_model a max_steps"
        )
    if isinstance(work, FillTheSync) and work.cap is None:
        raise ConfigError(
            f"{name} of {bound} steps would not hold, because fill_the_sync without a cap goes "
            "on while it waits: use fixed work, or give fill_the_sync a cap"
        )
    if isinstance(work, Fixed) and 0 < bound < work.steps:
        raise ConfigError(
            f"{name} is {bound} local steps and every push makes {work.steps}, so it would act "
            f"as 0: use a bound >= {work.steps}, or 0 for lock-step"
        )


def check_down(sync: SyncPolicy, down: str) -> None:
    """Refuse a compressed downlink whose answers hardly anybody could use.

    Raises:
        ConfigError: Without full rounds every worker lacks other versions, and each would need residuals of its own.
    """
    if not sync.barrier:
        raise ConfigError(
            f"down codec {down!r} sends everybody what one round has changed, and without bulk sync every "
            "worker is behind by other rounds: use sync bulk, or down dense"
        )
