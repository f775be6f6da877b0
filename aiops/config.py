"""What a server is told before it starts, validated before any socket opens.

Frozen structs and presets. Nothing here reads the environment or opens anything; whoever wants settings
from there passes them in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypedDict, Unpack, cast, get_args

from aiops.codec import table as codecs
from aiops.codec.base import DENSE, Codec
from aiops.codec.dense import dense
from aiops.codec.topk import TopK
from aiops.codec.topk_coded import CodedTopK
from aiops.errors import ConfigError
from aiops.merge import table as merges
from aiops.merge.aggregation import Mean, mean
from aiops.merge.base import Aggregation, Compensation, Rules, ServerOptimizer
from aiops.merge.combination import (
    check_auto_rules,
    check_bucketwise,
    check_folded,
    check_mean,
    check_rules,
)
from aiops.merge.optimizer import Sgd, sgd
from aiops.policy import combination
from aiops.policy import table as policies
from aiops.policy.auto import AUTO_CHUNKS, DENSITY, Automatic, check_auto
from aiops.policy.base import SyncPolicy, WeightRule, WorkPolicy
from aiops.policy.combination import check_drift_merge as check_drift_merge
from aiops.policy.dssp import DynamicStaleSynchronous
from aiops.policy.preset import PRESETS as PRESETS
from aiops.policy.preset import preset as preset
from aiops.policy.size import LEAST, check_sizes
from aiops.policy.sync import StaleSynchronous, bulk
from aiops.policy.table import MergeName as MergeName
from aiops.policy.table import unknown
from aiops.policy.weight import by_samples, uniform
from aiops.policy.work import Fragments, until_model
from aiops.url import check_token

SYNC, WEIGHTS, WORK, CODEC = policies.SYNC, policies.WEIGHTS, policies.WORK, codecs.CODEC
AGGREGATION, OPTIMIZER, COMPENSATION = merges.AGGREGATION, merges.OPTIMIZER, merges.COMPENSATION
BootstrapName = Literal["fixed", "authors"]
DriftName = Literal["off", "infer"]
FoldName = Literal["ordered", "arrival"]


class ServerSpec(TypedDict, total=False):
    """Keywords of :meth:`ServerConfig.parse`: specs may be strings, the rest is as in :class:`ServerConfig`."""

    sync: str | SyncPolicy
    weights: str | WeightRule
    work: str | WorkPolicy
    codec: str | Codec
    merge: str
    server_lr: float
    bootstrap: BootstrapName
    shards: int
    bucket_bytes: int
    min_workers: int
    max_members: int
    max_frame_bytes: int
    lease_s: float
    heartbeat_s: float
    idle_timeout_s: float
    token: str | None
    drift: DriftName
    proximal: float
    aggregation: str | Aggregation
    optimizer: str | ServerOptimizer
    down: str | Codec
    compensation: str | Compensation | None
    fold: FoldName
    stream_bytes: int | None
    auto: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Everything a server is told. The defaults are NBSync (Zhou et al., 2023), weighted by samples.

    Attributes:
        sync: When a round is closed.
        weights: What each push of a round is worth.
        work: How much a worker computes between two pushes.
        codec: What an update looks like on the wire.
        server_lr: What a merged update is multiplied by, > 0. Long local phases with overlap want 0.25 to 0.5.
        merge: What an overlapped worker does with the progress u it made since its last push, when the model W
            arrives: "reset" W, "carry" W + u, "eager" W + u / N, "mix" alpha * (its own) + (1 - alpha) * W,
            "partial" W + beta * u. In each case u is pushed next.
        alpha: Share of its own model that "mix" keeps, in [0, 1).
        beta: Share of the progress that "partial" keeps, in [0, 1].
        bootstrap: "fixed", or "authors" to count the first local steps twice, as NBSync's prototype does.
        shards: Partitions of the parameters, >= 1.
        bucket_bytes: Largest bucket, in bytes of float32, a multiple of 4.
        min_workers: No round closes before so many workers have joined, >= 1.
        max_members: Most workers at one time, >= ``min_workers``.
        max_frame_bytes: Largest payload of a frame, >= 64 KiB and room for an encoded bucket.
        lease_s: Silence after which a member is dropped, in seconds.
        heartbeat_s: Time between two signs of life, in seconds, < half of ``lease_s``.
        idle_timeout_s: How long a transfer may make no progress, in seconds.
        token: Secret that a worker must show, 1 to 4096 characters; None lets everybody in.
        drift: "infer" corrects the workers' drift towards their own data with what the model's change tells of the
            others' progress (SCAFFOLD, Karimireddy et al., 2020), for no bytes; "off" does not.
        proximal: mu, >= 0: local steps minimize f(x) + mu / 2 * |x - W|^2, W being the newest model (FedProx, Li et
            al., 2020). FedAvg and NBSync have none, 0.
        aggregation: How pushes become one update: the weighted mean, or a rule that wrong ones cannot lead astray.
        optimizer: How the update moves the parameters. Momentum meets every update a round late under overlapped work,
            and later under asynchronous sync, where it may oscillate: try a small beta first.
        down: How what a round changes travels to the workers, under bulk sync: with another codec than dense the model
            is what they make of it, and what the codec leaves behind goes into the next round.
        compensation: What a late push is corrected by, without bulk sync; the server then keeps what it started from.
        fold: When the pushes of a bulk round are added up. "ordered": when it closes, in worker order, so that the
            result is the same bit for bit whoever was first; until then each is held, a model's size per worker.
            "arrival": each when it has come, in that order, and its memory is given back, so that what a server
            holds does not depend on the number of its workers (but for what is on its way in).
        stream_bytes: Chunk streaming, under bulk sync: buckets are at most so large, a multiple of 4, and each is
            merged and sent back as soon as every worker's part of it is here, while the next ones are on their way up.
            A sync then takes as long as the slower direction and one bucket. None waits for whole pushes.
        auto: NBSync that measures its links and its workers' pushes, streams chunks of a size of its own unless
            ``stream_bytes`` is given, and turns Top-k both ways or drift correction on and off by itself, see
            :mod:`aiops.policy.auto`. It wants work fill_the_sync and merge partial, which :meth:`parse` fills in.
    """

    sync: SyncPolicy = field(default_factory=bulk)
    weights: WeightRule = field(default_factory=by_samples)
    work: WorkPolicy = field(default_factory=until_model)
    codec: Codec = field(default_factory=dense)
    server_lr: float = 1.0
    merge: MergeName = "reset"
    alpha: float = 0.5
    beta: float = 0.5
    bootstrap: BootstrapName = "fixed"
    shards: int = 1
    bucket_bytes: int = 64 * 1024 * 1024
    min_workers: int = 1
    max_members: int = 1024
    max_frame_bytes: int = 16 * 1024**3
    lease_s: float = 20.0
    heartbeat_s: float = 2.0
    idle_timeout_s: float = 15.0
    token: str | None = field(default=None, repr=False)
    drift: DriftName = "off"
    proximal: float = 0.0
    aggregation: Aggregation = field(default_factory=mean)
    optimizer: ServerOptimizer = field(default_factory=sgd)
    down: Codec = field(default_factory=dense)
    compensation: Compensation | None = None
    fold: FoldName = "ordered"
    stream_bytes: int | None = None
    auto: bool = False

    def __post_init__(self) -> None:
        self._check_names()
        self._check_numbers()
        self._check_sizes()
        combination.check_weights(self.sync, self.weights)
        combination.check_members(self.sync, max_members=self.max_members)
        combination.check_work(self.sync, self.work, merge=self.merge, bootstrap=self.bootstrap)
        if self.auto:
            self._check_auto()
        rules, workers = self._all_rules(), self.min_workers
        check_rules(
            rules, self.sync, self.weights, self.work, min_workers=workers, server_lr=self.server_lr
        )
        if self.down.wire_id != DENSE:
            combination.check_down(self.sync, self.down.name)
        if self.fold == "arrival":
            combination.check_fold(self.sync, self.weights)
            check_folded(self.aggregation)
        if self.fragments:
            self._check_fragments()
        if self.drift != "off":
            self._check_drift()
            check_mean(self.aggregation, self.optimizer)
        if self.streams:
            combination.check_streaming(self.sync)
            check_bucketwise(self.aggregation)
            self._check_streamed_whole()

    def _check_auto(self) -> None:
        check_auto(
            self.sync,
            self.weights,
            self.work,
            merge=self.merge,
            beta=self.beta,
            chosen={
                "codec": (self.codec.name, "dense"),
                "down": (self.down.name, "dense"),
                "drift": (self.drift, "off"),
            },
            bootstrap=self.bootstrap,
            proximal=self.proximal,
        )
        check_auto_rules(self.aggregation, self.optimizer)

    def _check_streamed_whole(self) -> None:
        if self.fold == "arrival":
            raise ConfigError(
                "fold 'arrival' adds whole pushes up, and stream_bytes merges buckets before pushes are whole: "
                "use fold 'ordered', or leave stream_bytes out"
            )
        if self.fragments:
            raise ConfigError(
                f"work {self.work!r} sends a fragment a round already, and stream_bytes sends the model in "
                "chunks: leave stream_bytes out"
            )

    @property
    def chunk_bytes(self) -> int:
        """Largest bucket there will be, in bytes of float32."""
        return min(self.bucket_bytes, self.stream_bytes or self.bucket_bytes)

    @property
    def streams(self) -> bool:
        """Whether buckets are sent back while others still come."""
        return self.auto or self.stream_bytes is not None

    @property
    def chunks(self) -> int:
        """Buckets that the model is cut into where their size is not given; 0 where it is."""
        return AUTO_CHUNKS if self.auto and self.stream_bytes is None else 0

    @property
    def automatic(self) -> Automatic:
        """What ``auto`` decides by."""
        return Automatic()

    @property
    def topk(self) -> Codec | None:
        """How updates travel both ways once ``auto`` finds the links slow; None without it."""
        return TopK(DENSITY) if self.auto else None

    @property
    def rules(self) -> Rules | None:
        """How rounds become parameters; None where that is the weighted sum, added: kernels of its own do it."""
        rules = self._all_rules()
        plain = rules == Rules(Mean(), Sgd()) and self.down.wire_id == DENSE
        return None if plain and not self.auto else rules

    @property
    def fragments(self) -> int:
        """Fragments that the model goes in, one a round; 0 where it goes whole."""
        return self.work.count if isinstance(self.work, Fragments) else 0

    @property
    def delay(self) -> int:
        """Local steps between the push of a fragment and the adoption of its answer."""
        return self.work.delay if isinstance(self.work, Fragments) else 0

    @property
    def needs_data(self) -> bool:
        """Whether weights look at how many training samples a worker has, which every push then has to say."""
        return combination.needs_data(self.weights)

    def _all_rules(self) -> Rules:
        return Rules(self.aggregation, self.optimizer, self.compensation)

    @classmethod
    def parse(cls, **spec: Unpack[ServerSpec]) -> Self:
        """Return a configuration from command-line specs such as ``sync="ssp:2"``.

        Without ``work``, workers overlap (``until_model``), except under ssp and dssp, whose bounds are about steps
        that wait: there it is ``fixed:1``; with ``auto`` it is ``fill_the_sync:8`` with merge ``partial:0.5``.
        Without ``weights``, they are by samples, and ``uniform`` where the aggregation is robust.

        Raises:
            ConfigError: A value is wrong, or two do not go together; the message says which and what is allowed.
        """
        settings: dict[str, Any] = dict(spec)
        for name in settings.keys() - ServerSpec.__annotations__.keys():
            unknown("setting", name, ServerSpec.__annotations__)
        for name, parse in _PARSERS.items():
            if isinstance(settings.get(name), str):
                settings[name] = parse(settings[name])
        if "merge" in settings:
            rule, shares = policies.parse_merge(settings["merge"])
            settings.update(shares, merge=rule)
        if settings.get("auto"):
            settings.setdefault("work", policies.parse_work("fill_the_sync:8"))
            settings.setdefault("merge", "partial")
        if isinstance(settings.get("sync"), StaleSynchronous | DynamicStaleSynchronous):
            settings.setdefault("work", policies.parse_work("fixed:1"))
        if getattr(settings.get("aggregation"), "robust", False):
            settings.setdefault("weights", uniform())
        return cls(**settings)

    def _check_names(self) -> None:
        for name, verbs in _VERBS.items():
            value = getattr(self, name)
            missing = [verb for verb in verbs if not hasattr(value, verb)]
            if missing and not (name == "compensation" and value is None):
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
            if getattr(self, name) not in get_args(known):
                unknown(name, str(getattr(self, name)), dict.fromkeys(get_args(known)))
        for codec in (self.codec, self.down):
            number = codec.wire_id
            own = codecs.WIRE_IDS.get(number)
            if not 1 <= number <= 255 or (own is not None and type(own) is not type(codec)):
                raise ConfigError(
                    f"codec {codec.name!r} has wire id {number}, it must be in 1..255 "
                    f"and none of ours, {', '.join(map(str, codecs.WIRE_IDS))}"
                )
        check_token(self.token)

    def _check_numbers(self) -> None:
        if not isinstance(self.auto, bool):
            raise ConfigError(f"auto is {self.auto!r}, it must be True or False")
        for name in ("server_lr", "lease_s", "heartbeat_s", "idle_timeout_s"):
            if not (_is_real(getattr(self, name)) and getattr(self, name) > 0):
                raise ConfigError(f"{name} is {getattr(self, name)!r}, it must be finite and > 0")
        if not (_is_real(self.alpha) and 0 <= self.alpha < 1):
            raise ConfigError(f"alpha of merge 'mix' is {self.alpha!r}, it must be in [0, 1)")
        if not (_is_real(self.beta) and 0 <= self.beta <= 1):
            raise ConfigError(f"beta of merge 'partial' is {self.beta!r}, it must be in [0, 1]")
        if not (_is_real(self.proximal) and self.proximal >= 0):
            raise ConfigError(f"proximal is {self.proximal!r}, it must be finite and >= 0")
        if self.heartbeat_s >= self.lease_s / 2:
            raise ConfigError(
                f"heartbeat_s is {self.heartbeat_s:g}, it must be less than half of "
                f"lease_s = {self.lease_s:g}, or one lost heartbeat ends a lease"
            )

    def _check_fragments(self) -> None:
        if self.proximal > 0:
            raise ConfigError(
                f"proximal is {self.proximal:g}, which holds steps near the whole newest model, and work {self.work!r} "
                "has none: use work until_model or fixed, or proximal 0"
            )
        if self.down.wire_id != DENSE:
            raise ConfigError(
                f"down {self.down.name!r} tells what has changed in the whole model, and work {self.work!r} takes a "
                "fragment at a time: use work until_model or fixed, or down dense"
            )
        if isinstance(self.codec, TopK | CodedTopK):
            raise ConfigError(
                f"codec {self.codec.name!r} keeps what it does not send for the next push, and work {self.work!r} "
                "pushes that again by itself: use dense, fp16, bf16 or int8"
            )

    def _check_drift(self) -> None:
        combination.check_drift(
            self.sync,
            self.weights,
            self.work,
            merge=self.merge,
            beta=self.beta,
            bootstrap=self.bootstrap,
        )
        for codec in (self.codec, self.down):
            if isinstance(codec, TopK | CodedTopK):
                raise ConfigError(
                    f"drift {self.drift!r} reads the workers' mean progress from the model's change, of which codec "
                    f"{codec.name!r} sends a few values late: use dense, fp16, bf16 or int8, or drift 'off'"
                )

    def _check_sizes(self) -> None:
        sizes = {name: getattr(self, name) for name in LEAST}
        check_sizes({name: size for name, size in sizes.items() if size is not None})
        bucket = self.chunk_bytes
        for codec in (self.codec, self.down):
            encoded = max(bucket, codec.payload_bytes(bucket // 4))
            if encoded > self.max_frame_bytes:
                raise ConfigError(
                    f"bucket_bytes is {bucket}, which takes frames of {encoded} bytes with "
                    f"codec {codec.name!r}, but max_frame_bytes is {self.max_frame_bytes}"
                )


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def parse_codec(text: str) -> Codec:
    """Return the codec that ``text`` names, for example ``"topk:0.01"``; ``codec.name`` is such a text."""
    return cast(Codec, policies.build("codec", text, CODEC))


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
}
_PARSERS: dict[str, Callable[[str], object]] = {
    "sync": policies.parse_sync,
    "weights": policies.parse_weights,
    "work": policies.parse_work,
    "codec": parse_codec,
    "down": parse_codec,
    "compensation": lambda text: policies.build("compensation", text, COMPENSATION),
    "aggregation": lambda text: policies.build("aggregation", text, AGGREGATION),
    "optimizer": lambda text: policies.build("optimizer", text, OPTIMIZER),
}
