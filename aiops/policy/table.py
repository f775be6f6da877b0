"""Names of policies and the little grammar that turns ``"ssp:2"`` into one.

``name``, ``name:argument`` or ``name:argument,argument``; arguments are numbers, in the order of the factory's
parameters. Weights also multiply, ``by_samples*by_staleness:0.5``, and nest, ``normalized(...)`` and
``by_steps:by_samples``. A name that is not in the table is looked up among the entry points of the group
``aiops.<kind>``, so that an installed package adds its own.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Literal, NoReturn, cast, get_args

from aiops.errors import ConfigError
from aiops.policy import (
    batch,
    density,
    dssp,
    esync,
    gravac,
    injection,
    learning_rate,
    scadles,
    sync,
    weight,
    work,
)
from aiops.policy.base import SyncPolicy, WeightRule, WorkPolicy
from aiops.policy.exchange import Density
from aiops.policy.stream import BatchRule, InjectionRule

Factory = Callable[..., object]
MergeName = Literal["reset", "carry", "eager", "mix", "partial"]

SYNC: dict[str, Factory] = {
    "bulk": sync.bulk,
    "asynchronous": sync.asynchronous,
    "ssp": sync.ssp,
    "buffered": sync.buffered,
    "dssp": dssp.dssp,
}
WEIGHTS: dict[str, Factory] = {
    "uniform": weight.uniform,
    "by_samples": weight.by_samples,
    "by_data": weight.by_data,
    "by_steps": weight.by_steps,
    "constant": weight.constant,
    "by_staleness": weight.by_staleness,
    "hinge": weight.hinge,
    "linear_scaling": learning_rate.linear_scaling,
}
WORK: dict[str, Factory] = {
    "fixed": work.fixed,
    "until_model": work.until_model,
    "fill_the_sync": work.fill_the_sync,
    "esync": esync.esync,
    "esync_prototype": esync.esync_prototype,
    "fragments": work.fragments,
}
DENSITY: dict[str, Factory] = {
    "fixed": density.fixed,
    "adaptive": density.adaptive,
    "adaptive_knee": density.adaptive_knee,
    "adaptive_nsga2": density.adaptive_nsga2,
    "adaptive_trials": density.adaptive_trials,
    "gravac": gravac.gravac,
    "scadles": scadles.scadles,
}
BATCH: dict[str, Factory] = {
    "fixed": batch.fixed,
    "by_rate": batch.by_rate,
    "balanced": batch.balanced,
    "balanced_freely": batch.balanced_freely,
}
INJECTION: dict[str, Factory] = {"random": injection.random}

# Merge rules with a number, and the name of that number.
_MERGE_SHARES = {"mix": "alpha", "partial": "beta"}

# What other systems and papers call it: used for the suggestion only, every thing has one name here.
_ELSEWHERE = {
    "bsp": "bulk",
    "asp": "asynchronous",
    "fedavg": "by_samples",
    "fednova": "by_steps",
    "fedbuff": "buffered",
    "polynomial": "by_staleness",
    "nbsync": "until_model",
    "none": "dense",
    "fp32": "dense",
    "float32": "dense",
    "fedavgm": "momentum",
    "diloco": "nesterov",
    "fedadam": "adam",
    "fedyogi": "yogi",
    "fedadagrad": "adagrad",
    "average": "mean",
    "fedasync": "mixing",
    "dc_asgd": "dcasgd",
    "multi_krum": "krum",
    "multikrum": "krum",
    "float16": "fp16",
    "bfloat16": "bf16",
    "static": "fixed",
    "auto": "adaptive",
    "moo": "adaptive_nsga2",
    "dynamic": "balanced",
}


def unknown(what: str, name: str, known: Mapping[str, object]) -> NoReturn:
    """Raise a ConfigError that lists the known names and suggests the nearest.

    Args:
        what: What ``name`` should have been, in a word or two.
        name: The name that is not known.
        known: Known names.
    """
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    other = _ELSEWHERE.get(name.lower(), "")
    guess = other if other in known else next(iter(near), "")
    hint = f", did you mean {guess!r}?" if guess else ""
    raise ConfigError(f"unknown {what} {name!r}, known are {', '.join(known)}{hint}")


def build(kind: str, text: str, table: Mapping[str, Factory]) -> object:
    """Return what ``text`` names, made by its factory.

    Args:
        kind: The setting, such as "sync"; the entry-point group is ``aiops.<kind>``.
        text: A spec such as ``"ssp:2"``.
        table: Our own names and their factories.

    Raises:
        ConfigError: The name is unknown, an argument is no number, or the factory does not take them.
    """
    name, colon, rest = (part.strip() for part in text.partition(":"))
    factory = table.get(name) or _entry_point(kind, name)
    if factory is None:
        unknown(kind, name, table)
    arguments = [_number(kind, text, word.strip()) for word in rest.split(",")] if colon else []
    return _call(kind, text, factory, arguments)


def parse_sync(text: str) -> SyncPolicy:
    """Return the sync policy that ``text`` names, for example ``"bulk"`` or ``"ssp:2"``."""
    return cast(SyncPolicy, build("sync", text, SYNC))


def parse_work(text: str) -> WorkPolicy:
    """Return the work policy that ``text`` names, for example ``"fixed:10"`` or ``"until_model:2,50"``."""
    return cast(WorkPolicy, build("work", text, WORK))


def parse_density(text: str) -> Density:
    """Return the density policy that ``text`` names, for example ``"fixed:0.01"`` or ``"adaptive:0.001,0.1"``."""
    return cast(Density, build("density", text, DENSITY))


def parse_batch(text: str) -> BatchRule:
    """Return the batch rule that ``text`` names, for example ``"by_rate:8,1024"`` or ``"fixed:64"``."""
    return cast(BatchRule, build("batch", text, BATCH))


def parse_injection(text: str) -> InjectionRule:
    """Return the data injection that ``text`` names, for example ``"random:0.25,0.25"``."""
    return cast(InjectionRule, build("injection", text, INJECTION))


def parse_weights(text: str) -> WeightRule:
    """Return the weight rule that ``text`` names, for example ``"by_samples*by_staleness:0.5"``."""
    rules = [_factor(part) for part in _split(text)]
    return rules[0] if len(rules) == 1 else weight.product(*rules)


def parse_merge(text: str) -> tuple[MergeName, dict[str, float]]:
    """Return the merge rule that ``text`` names and its number by name, ``("mix", {"alpha": 0.5})``."""
    name, colon, rest = (part.strip() for part in text.partition(":"))
    for known in get_args(MergeName):
        if name != known:
            continue
        if not colon:
            return known, {}
        if known not in _MERGE_SHARES:
            raise ConfigError(f"merge {text!r} has an argument, {known} takes none")
        return known, {_MERGE_SHARES[known]: _number("merge", text, rest)}
    unknown("merge", name, dict.fromkeys(get_args(MergeName)))


def _factor(text: str) -> WeightRule:
    text = text.strip()
    if text.startswith("normalized(") and text.endswith(")"):
        return weight.normalized(parse_weights(text[len("normalized(") : -1]))
    name, colon, rest = text.partition(":")
    if name.strip() == "by_steps" and colon:
        return weight.by_steps(_factor(rest))
    if name.strip() == "normalized":
        raise ConfigError(f"weights {text!r} must be written normalized(rule)")
    return cast(WeightRule, build("weights", text, WEIGHTS))


# The factors of a product, cut at every "*" outside parentheses.
def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == "*" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise ConfigError(f"weights {text!r} have unbalanced parentheses")
    return parts


def _number(kind: str, text: str, word: str) -> int | float:
    for convert in (int, float):
        try:
            return convert(word)
        except ValueError:
            continue
    raise ConfigError(f"argument {word!r} of {kind} {text!r} is not a number")


def _call(kind: str, text: str, factory: Factory, arguments: list[int | float]) -> object:
    try:
        signature = inspect.signature(factory)
        names = [
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        ]
        # Keyword-only parameters take what the others leave.
        rest = len(signature.parameters) - len(names)
        bound = signature.bind(
            *arguments[:rest], **dict(zip(names, arguments[rest:], strict=False))
        )
        if len(arguments) > len(bound.arguments):
            raise TypeError("too many positional arguments")
        return factory(*bound.args, **bound.kwargs)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{kind} {text!r} does not fit its arguments: {error}") from error


def _entry_point(kind: str, name: str) -> Factory | None:
    # Imported here because it drags in email and zipfile, and most programs never ask.
    from importlib.metadata import entry_points

    for point in entry_points(group=f"aiops.{kind}", name=name):
        try:
            return cast(Factory, point.load())
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{kind} {name!r} is promised by {point.value!r}, which does not load: {error}"
            ) from error
    return None
