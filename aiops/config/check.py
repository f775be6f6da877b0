"""What makes no sense in a server's settings; every refusal is one sentence, before any socket opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from aiops.codec import table as codecs
from aiops.codec.artopk import ArTopK
from aiops.codec.base import DENSE
from aiops.codec.topk import TopK
from aiops.codec.topk_coded import CodedTopK
from aiops.config.spec import BootstrapName, DriftName, FoldName
from aiops.errors import ConfigError
from aiops.merge.combination import (
    check_auto_rules,
    check_bucketwise,
    check_folded,
    check_mean,
    check_rules,
)
from aiops.policy import combination
from aiops.policy.auto import check_auto
from aiops.policy.number import check_positive, check_share, is_real
from aiops.policy.size import LEAST, check_sizes
from aiops.policy.table import MergeName, unknown
from aiops.url import check_token

if TYPE_CHECKING:
    from aiops.config.server import ServerConfig

# What each of them is asked while the server runs: better missed here than then.
_VERBS = {
    "sync": ("ready", "may_proceed", "max_staleness", "barrier"),
    "weights": ("__call__",),
    "work": ("plan", "overlap"),
    "codec": ("add_to", "encode", "check"),
    "aggregation": ("combine", "linear", "robust", "least"),
    "optimizer": ("step", "initial"),
    "down": ("add_to", "encode", "check"),
    "compensation": ("correct", "initial", "averages", "local_steps"),
    "injection": ("donors", "part", "name"),
}


def check(config: ServerConfig) -> None:
    """Refuse a configuration with a value that is wrong, or with two that do not go together.

    Raises:
        ConfigError: It is that; the sentence says which and what is allowed.
    """
    _check_names(config)
    _check_numbers(config)
    _check_sizes(config)
    combination.check_weights(config.sync, config.weights)
    combination.check_members(config.sync, max_members=config.max_members)
    combination.check_work(config.sync, config.work, merge=config.merge, bootstrap=config.bootstrap)
    if config.auto:
        _check_auto(config)
    rules, workers = config.all_rules, config.min_workers
    check_rules(
        rules,
        config.sync,
        config.weights,
        config.work,
        min_workers=workers,
        server_lr=config.server_lr,
    )
    if config.down.wire_id != DENSE:
        combination.check_down(config.sync, config.down.name)
    _check_chosen(config)
    _check_fold(config)
    if config.fragments:
        _check_fragments(config)
    if config.drift != "off":
        _check_drift(config)
        check_mean(config.aggregation, config.optimizer)
    if config.streams:
        combination.check_streaming(config.sync)
        check_bucketwise(config.aggregation)
        _check_streamed_whole(config)


def _check_auto(config: ServerConfig) -> None:
    check_auto(
        config.sync,
        config.weights,
        config.work,
        merge=config.merge,
        beta=config.beta,
        chosen={
            "codec": (config.codec.name, "dense"),
            "down": (config.down.name, "dense"),
            "drift": (config.drift, "off"),
        },
        bootstrap=config.bootstrap,
        proximal=config.proximal,
    )
    check_auto_rules(config.aggregation, config.optimizer)


# Positions that one worker chooses for all.
def _check_chosen(config: ServerConfig) -> None:
    name, down = config.codec.name, config.down
    if isinstance(down, ArTopK) and down.name != name:
        raise ConfigError(
            f"down {down.name!r} sends changes at the positions that the round's updates had, and codec {name!r} has "
            f"others: use codec {down.name}, or another down"
        )
    if not isinstance(config.codec, ArTopK):
        return
    otherwise = f"codec topk_fp32:{config.codec.density!r}"
    if not config.sync.barrier:
        raise ConfigError(
            f"codec {name!r} has all workers of a round send values at the same positions, and sync {config.sync!r} "
            f"does not wait for them all: use sync bulk, or {otherwise}"
        )
    if config.streams:
        raise ConfigError(
            f"stream_bytes sends chunks back while others are on their way up, and codec {name!r} lets nobody push "
            f"before the whole model's positions are known: leave stream_bytes out, or use {otherwise}"
        )
    if config.fold == "arrival":
        raise ConfigError(
            f"fold 'arrival' adds each push to a sum of the model's size, and codec {name!r} adds up the few values "
            f"that pushes have at the same positions: use fold 'ordered', or {otherwise}"
        )


def _check_fold(config: ServerConfig) -> None:
    if config.fold == "arrival":
        combination.check_fold(config.sync, config.weights)
        check_folded(config.aggregation)
    elif config.landing_bytes is not None:
        raise ConfigError(
            f"landing_bytes is {config.landing_bytes}, which makes pushes wait until others are added up, and with "
            "fold 'ordered' each is held until its round closes, maybe for those that wait: use sync bulk, fold "
            "'arrival' and no stream_bytes, or leave landing_bytes out"
        )


def _check_streamed_whole(config: ServerConfig) -> None:
    if config.fold == "arrival":
        raise ConfigError(
            "fold 'arrival' adds whole pushes up, and stream_bytes merges buckets before pushes are whole: "
            "use fold 'ordered', or leave stream_bytes out"
        )
    if config.fragments:
        raise ConfigError(
            f"work {config.work!r} sends a fragment a round already, and stream_bytes sends the model in "
            "chunks: leave stream_bytes out"
        )


def _check_names(config: ServerConfig) -> None:
    for name, verbs in _VERBS.items():
        value = getattr(config, name)
        missing = [verb for verb in verbs if not hasattr(value, verb)]
        if missing and not (name in ("compensation", "injection") and value is None):
            raise ConfigError(
                f"{name} is {value!r}, it must be a policy object with {missing[0]!r} "
                "(ServerConfig.parse makes them of texts)"
            )
    names = (
        ("merge", MergeName),
        ("bootstrap", BootstrapName),
        ("drift", DriftName),
        ("fold", FoldName),
    )
    for name, known in names:
        if getattr(config, name) not in get_args(known):
            unknown(name, str(getattr(config, name)), dict.fromkeys(get_args(known)))
    for codec in (config.codec, config.down):
        number = codec.wire_id
        own = codecs.WIRE_IDS.get(number)
        if not 1 <= number <= 255 or (own is not None and type(own) is not type(codec)):
            raise ConfigError(
                f"codec {codec.name!r} has wire id {number}, it must be in 1..255 "
                f"and none of ours, {', '.join(map(str, codecs.WIRE_IDS))}"
            )
    check_token(config.token)


def _check_numbers(config: ServerConfig) -> None:
    if not isinstance(config.auto, bool):
        raise ConfigError(f"auto is {config.auto!r}, it must be True or False")
    for name in ("server_lr", "lease_s", "heartbeat_s", "idle_timeout_s"):
        check_positive(name, getattr(config, name))
    check_share("alpha of merge 'mix'", config.alpha)
    if not (is_real(config.beta) and 0 <= config.beta <= 1):
        raise ConfigError(f"beta of merge 'partial' is {config.beta!r}, it must be in [0, 1]")
    if not (is_real(config.proximal) and config.proximal >= 0):
        raise ConfigError(f"proximal is {config.proximal!r}, it must be finite and >= 0")
    if config.heartbeat_s >= config.lease_s / 2:
        raise ConfigError(
            f"heartbeat_s is {config.heartbeat_s:g}, it must be less than half of "
            f"lease_s = {config.lease_s:g}, or one lost heartbeat ends a lease"
        )


def _check_fragments(config: ServerConfig) -> None:
    if config.proximal > 0:
        raise ConfigError(
            f"proximal is {config.proximal:g}, which holds steps near the whole newest model, and work {config.work!r} "
            "has none: use work until_model or fixed, or proximal 0"
        )
    if config.down.wire_id != DENSE:
        raise ConfigError(
            f"down {config.down.name!r} tells what has changed in the whole model, and work {config.work!r} takes a "
            "fragment at a time: use work until_model or fixed, or down dense"
        )
    if isinstance(config.codec, TopK | CodedTopK | ArTopK):
        raise ConfigError(
            f"codec {config.codec.name!r} keeps what it does not send for the next push, and work {config.work!r} "
            "pushes that again by itself: use dense, fp16, bf16 or int8"
        )


def _check_drift(config: ServerConfig) -> None:
    combination.check_drift(
        config.sync,
        config.weights,
        config.work,
        merge=config.merge,
        beta=config.beta,
        bootstrap=config.bootstrap,
    )
    for codec in (config.codec, config.down):
        if isinstance(codec, TopK | CodedTopK | ArTopK):
            raise ConfigError(
                f"drift {config.drift!r} reads the workers' mean progress from the model's change, of which codec "
                f"{codec.name!r} sends a few values late: use dense, fp16, bf16 or int8, or drift 'off'"
            )


def _check_sizes(config: ServerConfig) -> None:
    sizes = {name: getattr(config, name) for name in LEAST}
    check_sizes({name: size for name, size in sizes.items() if size is not None})
    if config.injection is not None and config.share_bytes > config.max_frame_bytes:
        raise ConfigError(
            f"share_bytes is {config.share_bytes}, it must be at most max_frame_bytes = {config.max_frame_bytes}"
        )
    bucket = config.chunk_bytes
    for codec in (config.codec, config.down):
        encoded = max(bucket, codec.payload_bytes(bucket // 4))
        if encoded > config.max_frame_bytes:
            raise ConfigError(
                f"bucket_bytes is {bucket}, which takes frames of {encoded} bytes with "
                f"codec {codec.name!r}, but max_frame_bytes is {config.max_frame_bytes}"
            )
