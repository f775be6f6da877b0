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
from aiops.codec.base import Codec
from aiops.codec.dense import dense
from aiops.errors import ConfigError
from aiops.policy import table as policies
from aiops.policy.base import SyncPolicy, WeightRule, WorkPolicy
from aiops.policy.combination import check_streaming, check_weights, check_work
from aiops.policy.preset import PRESETS as PRESETS
from aiops.policy.preset import preset as preset
from aiops.policy.sync import StaleSynchronous, bulk
from aiops.policy.table import MergeName as MergeName
from aiops.policy.table import unknown
from aiops.policy.weight import by_samples
from aiops.policy.work import until_model
from aiops.url import check_token

SYNC, WEIGHTS, WORK, CODEC = policies.SYNC, policies.WEIGHTS, policies.WORK, codecs.CODEC
BootstrapName = Literal["fixed", "authors"]
# A control message is at most 64 KiB and must always pass.
_SMALLEST_FRAME_BYTES = 64 * 1024


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
    stream_bytes: int | None


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
        stream_bytes: Chunk streaming: buckets are at most so large, a multiple of 4, and each is merged and sent back
            as soon as every worker's part of it is here, while the next ones are still on their way up. A
            synchronization then takes as long as the slower direction and one bucket, instead of both directions. It
            needs a sync with a barrier, such as bulk. None waits for whole pushes.
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
    stream_bytes: int | None = None

    def __post_init__(self) -> None:
        self._check_names()
        self._check_numbers()
        self._check_sizes()
        check_weights(self.sync, self.weights)
        check_work(self.sync, self.work, merge=self.merge, bootstrap=self.bootstrap)
        if self.stream_bytes is not None:
            check_streaming(self.sync)

    @property
    def chunk_bytes(self) -> int:
        """Largest bucket there will be, in bytes of float32."""
        return min(self.bucket_bytes, self.stream_bytes or self.bucket_bytes)

    @classmethod
    def parse(cls, **spec: Unpack[ServerSpec]) -> Self:
        """Return a configuration from command-line specs such as ``sync="ssp:2"``.

        Without ``work``, workers overlap (``until_model``), except under ssp, whose bound is about steps that
        wait: there it is ``fixed:1``.

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
        if isinstance(settings.get("sync"), StaleSynchronous):
            settings.setdefault("work", policies.parse_work("fixed:1"))
        return cls(**settings)

    def _check_names(self) -> None:
        for name, verbs in _VERBS.items():
            value = getattr(self, name)
            missing = [verb for verb in verbs if not hasattr(value, verb)]
            if missing:
                raise ConfigError(
                    f"{name} is {value!r}, it must be a policy object with {missing[0]!r} "
                    "(ServerConfig.parse makes them of texts)"
                )
        for name, known in (("merge", MergeName), ("bootstrap", BootstrapName)):
            if getattr(self, name) not in get_args(known):
                unknown(name, str(getattr(self, name)), dict.fromkeys(get_args(known)))
        number = self.codec.wire_id
        own = codecs.WIRE_IDS.get(number)
        if not 1 <= number <= 255 or (own is not None and type(own) is not type(self.codec)):
            raise ConfigError(
                f"codec {self.codec.name!r} has wire id {number}, it must be in 1..255 "
                f"and none of ours, {', '.join(map(str, codecs.WIRE_IDS))}"
            )
        check_token(self.token)

    def _check_numbers(self) -> None:
        for name in ("server_lr", "lease_s", "heartbeat_s", "idle_timeout_s"):
            if not (_is_real(getattr(self, name)) and getattr(self, name) > 0):
                raise ConfigError(f"{name} is {getattr(self, name)!r}, it must be finite and > 0")
        if not (_is_real(self.alpha) and 0 <= self.alpha < 1):
            raise ConfigError(f"alpha of merge 'mix' is {self.alpha!r}, it must be in [0, 1)")
        if not (_is_real(self.beta) and 0 <= self.beta <= 1):
            raise ConfigError(f"beta of merge 'partial' is {self.beta!r}, it must be in [0, 1]")
        if self.heartbeat_s >= self.lease_s / 2:
            raise ConfigError(
                f"heartbeat_s is {self.heartbeat_s:g}, it must be less than half of "
                f"lease_s = {self.lease_s:g}, or one lost heartbeat ends a lease"
            )

    def _check_sizes(self) -> None:
        least = {
            "shards": 1,
            "bucket_bytes": 4,
            "min_workers": 1,
            "max_members": 1,
            "max_frame_bytes": _SMALLEST_FRAME_BYTES,
        }
        if self.stream_bytes is not None:
            least["stream_bytes"] = 4
        for name, limit in least.items():
            value = getattr(self, name)
            if not (isinstance(value, int) and not isinstance(value, bool) and value >= limit):
                raise ConfigError(f"{name} is {value!r}, it must be a whole number >= {limit}")
        if self.max_members < self.min_workers:
            raise ConfigError(
                f"max_members is {self.max_members}, it must be >= min_workers = {self.min_workers}"
            )
        for name in ("bucket_bytes", "stream_bytes"):
            if (getattr(self, name) or 0) % 4:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must be a multiple of 4")
        bucket = self.chunk_bytes
        encoded = max(bucket, self.codec.payload_bytes(bucket // 4))
        if encoded > self.max_frame_bytes:
            raise ConfigError(
                f"bucket_bytes is {bucket}, which takes frames of {encoded} bytes with "
                f"codec {self.codec.name!r}, but max_frame_bytes is {self.max_frame_bytes}"
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
}
_PARSERS: dict[str, Callable[[str], object]] = {
    "sync": policies.parse_sync,
    "weights": policies.parse_weights,
    "work": policies.parse_work,
    "codec": parse_codec,
}
