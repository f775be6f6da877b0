"""What a server's settings are called, and how texts become them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypedDict, cast

from aiops.codec import table as codecs
from aiops.codec.base import Codec
from aiops.merge import table as merges
from aiops.merge.base import Aggregation, Compensation, ServerOptimizer
from aiops.policy import table as policies
from aiops.policy.base import SyncPolicy, WeightRule, WorkPolicy
from aiops.policy.stream import InjectionRule

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
    landing_bytes: int | None
    stream_bytes: int | None
    auto: bool
    injection: str | InjectionRule | None
    share_bytes: int


def parse_codec(text: str) -> Codec:
    """Return the codec that ``text`` names, for example ``"topk:0.01"``; ``codec.name`` is such a text."""
    return cast(Codec, policies.build("codec", text, CODEC))


PARSERS: dict[str, Callable[[str], object]] = {
    "sync": policies.parse_sync,
    "injection": policies.parse_injection,
    "weights": policies.parse_weights,
    "work": policies.parse_work,
    "codec": parse_codec,
    "down": parse_codec,
    "compensation": lambda text: policies.build("compensation", text, COMPENSATION),
    "aggregation": lambda text: policies.build("aggregation", text, AGGREGATION),
    "optimizer": lambda text: policies.build("optimizer", text, OPTIMIZER),
}
