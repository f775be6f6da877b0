"""Everything a server is told, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self, Unpack

from aiops.codec.base import DENSE, Codec
from aiops.codec.dense import dense
from aiops.codec.topk_coded import topk_int8
from aiops.config.check import check
from aiops.config.spec import PARSERS, BootstrapName, DriftName, FoldName, ServerSpec
from aiops.merge.aggregation import Mean, mean
from aiops.merge.base import Aggregation, Compensation, Rules, ServerOptimizer
from aiops.merge.optimizer import Sgd, sgd
from aiops.policy import combination
from aiops.policy import table as policies
from aiops.policy.auto import AUTO_CHUNKS, DOWN_DENSITY, UP_DENSITY, Automatic
from aiops.policy.base import SyncPolicy, WeightRule, WorkPolicy
from aiops.policy.dssp import DynamicStaleSynchronous
from aiops.policy.stream import InjectionRule
from aiops.policy.sync import StaleSynchronous, bulk
from aiops.policy.table import MergeName, unknown
from aiops.policy.weight import by_samples, uniform
from aiops.policy.work import Fragments, until_model


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
            holds does not depend on the number of its workers, but for what is on its way in.
        landing_bytes: With fold "arrival", the most payload of pushes that may be on its way in at once, >= 1. Each
            takes room for all of it when it is announced, until it is added up, and who finds too little waits in line,
            first come, first served: it is not read, and not given up meanwhile. A push that is larger than all of it
            lands alone. None is no limit: room for every worker that pushes at the same time.
        stream_bytes: Chunk streaming, under bulk sync: buckets are at most so large, a multiple of 4, and each is
            merged and sent back as soon as every worker's part of it is here, while the next ones are on their way up.
            A sync then takes as long as the slower direction and one bucket. None waits for whole pushes.
        auto: NBSync that measures its links and its workers' pushes, streams chunks of a size of its own unless
            ``stream_bytes`` is given, and turns Top-k both ways or drift correction on and off by itself, see
            :mod:`aiops.policy.auto`. It wants work fill_the_sync and merge partial, which :meth:`parse` fills in.
        injection: Which samples workers share through the server, where they call ``share``; None is none.
        share_bytes: Largest records that a worker may give in one round of sharing, >= 1 and at most
            ``max_frame_bytes``. The server holds those of the donors of two rounds.
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
    landing_bytes: int | None = None
    stream_bytes: int | None = None
    auto: bool = False
    injection: InjectionRule | None = None
    share_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        check(self)

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
    def topk(self) -> tuple[Codec, Codec] | None:
        """How updates travel up, and what rounds change down, once ``auto`` finds the links slow; None without it."""
        return (topk_int8(UP_DENSITY), topk_int8(DOWN_DENSITY)) if self.auto else None

    @property
    def rules(self) -> Rules | None:
        """How rounds become parameters; None where that is the weighted sum, added: kernels of its own do it."""
        rules = self.all_rules
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

    @property
    def all_rules(self) -> Rules:
        """How rounds become parameters, in full."""
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
        for name, parse in PARSERS.items():
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
