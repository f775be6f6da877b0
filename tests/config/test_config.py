"""Server configuration: tables of good and bad."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

from aiops.codec.dense import dense
from aiops.codec.half import bf16, fp16
from aiops.codec.int8 import int8
from aiops.codec.topk import topk
from aiops.codec.topk_coded import topk_int8
from aiops.config import (
    CODEC,
    PRESETS,
    SYNC,
    WEIGHTS,
    WORK,
    ServerConfig,
    parse_codec,
    preset,
)
from aiops.errors import ConfigError
from aiops.policy.dssp import dssp
from aiops.policy.injection import random
from aiops.policy.sync import asynchronous, buffered, bulk, ssp
from aiops.policy.weight import by_samples, by_staleness, by_steps, product, uniform
from aiops.policy.work import fill_the_sync, fixed, fragments, until_model

MIB = 1024 * 1024


def test_the_default_server_is_nbsync():
    config = ServerConfig()
    assert config.sync == bulk(max_staleness=1)
    assert config.weights == by_samples()
    assert config.work == until_model()
    assert config.codec == dense()
    assert (config.merge, config.bootstrap, config.server_lr) == ("reset", "fixed", 1.0)
    assert config == ServerConfig.parse() == ServerConfig.parse(**preset("nbsync"))


def test_the_default_limits():
    config = ServerConfig()
    assert (config.shards, config.min_workers, config.max_members) == (1, 1, 1024)
    assert (config.bucket_bytes, config.max_frame_bytes) == (64 * MIB, 16 * 1024 * MIB)
    assert (config.heartbeat_s, config.lease_s, config.idle_timeout_s) == (2.0, 20.0, 15.0)
    assert config.token is None


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_a_server(name):
    config = ServerConfig.parse(**preset(name))
    assert pickle.loads(pickle.dumps(config)) == config
    overlapped = name.startswith("nbsync") or name in ("streaming-diloco", "eager")
    assert config.work.overlap == overlapped


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ({"sync": "bulk"}, {}),
        ({"sync": "ssp:2"}, {"sync": ssp(2), "work": fixed(1)}),
        ({"sync": ssp(2)}, {"sync": ssp(2), "work": fixed(1)}),
        ({"sync": "dssp:3,15"}, {"sync": dssp(3, 15), "work": fixed(1)}),
        ({"sync": "ssp:20", "work": "fixed:10"}, {"sync": ssp(20), "work": fixed(10)}),
        (
            {"sync": "ssp:2", "work": "until_model:1,5"},
            {"sync": ssp(2), "work": until_model(1, 5)},
        ),
        (
            {"sync": "asynchronous", "weights": "by_staleness:0.5"},
            {"sync": asynchronous(), "weights": by_staleness(0.5)},
        ),
        (
            {"weights": "by_samples*by_staleness:0.5", "codec": "topk:0.01"},
            {"weights": product(by_samples(), by_staleness(0.5)), "codec": topk(0.01)},
        ),
        ({"work": "fixed:10"}, {"work": fixed(10)}),
        ({"fold": "arrival"}, {"fold": "arrival"}),
        (
            {"fold": "arrival", "landing_bytes": 1},
            {"fold": "arrival", "landing_bytes": 1},
        ),
        (
            {"sync": "buffered:4,20", "max_members": 4},
            {"sync": buffered(4, 20), "max_members": 4},
        ),
        (
            {"injection": "random:0.5,0.25", "share_bytes": 1000},
            {"injection": random(0.5, 0.25), "share_bytes": 1000},
        ),
        ({"injection": None, "share_bytes": 2**40}, {"share_bytes": 2**40}),
        ({"codec": "fp16"}, {"codec": fp16()}),
        ({"codec": bf16(), "weights": uniform()}, {"codec": bf16(), "weights": uniform()}),
        ({"merge": "carry"}, {"merge": "carry"}),
        ({"merge": "eager"}, {"merge": "eager"}),
        ({"merge": "mix"}, {"merge": "mix", "alpha": 0.5}),
        ({"merge": "mix:0.25"}, {"merge": "mix", "alpha": 0.25}),
        ({"merge": "partial:0"}, {"merge": "partial", "beta": 0}),
        ({"merge": "partial:1"}, {"merge": "partial", "beta": 1.0}),
        ({"bootstrap": "authors"}, {"bootstrap": "authors"}),
        ({"server_lr": 0.25, "shards": 4}, {"server_lr": 0.25, "shards": 4}),
        ({"min_workers": 3, "max_members": 3}, {"min_workers": 3, "max_members": 3}),
        ({"lease_s": 4.0, "heartbeat_s": 1.9}, {"lease_s": 4.0, "heartbeat_s": 1.9}),
        (
            {"bucket_bytes": 4, "max_frame_bytes": 65536},
            {"bucket_bytes": 4, "max_frame_bytes": 65536},
        ),
        ({"token": "s3cret"}, {"token": "s3cret"}),
        ({"proximal": 0.01}, {"proximal": 0.01}),
        (
            {"work": "fragments:4,100,5", "merge": "mix:0.25"},
            {"work": fragments(4, 100, 5), "merge": "mix", "alpha": 0.25},
        ),
        (
            {"drift": "infer", "weights": "by_steps", "merge": "partial:0.5", "codec": "int8"},
            {"drift": "infer", "weights": by_steps(), "merge": "partial", "codec": int8()},
        ),
    ],
)
def test_good_specs(spec, settings):
    assert ServerConfig.parse(**spec) == ServerConfig(**settings)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"sync": "bsp"},
            "unknown sync 'bsp', known are bulk, asynchronous, ssp, buffered, dssp, did you mean 'bulk'",
        ),
        ({"weights": "samples"}, "unknown weights 'samples', .*, did you mean 'by_samples'"),
        ({"work": "fixd:1"}, "unknown work 'fixd', .*, did you mean 'fixed'"),
        ({"codec": "topk"}, "codec 'topk' does not fit .*missing a required argument: 'density'"),
        ({"codec": "topk:1%"}, "argument '1%' of codec 'topk:1%' is not a number"),
        ({"codec": "topk:0"}, r"topk's density is 0, it must be in \(0, 1\]"),
        ({"codec": "float16"}, "unknown codec 'float16', .*, did you mean 'fp16'"),
        ({"codec": "none"}, "did you mean 'dense'"),
        ({"merge": "avg"}, "unknown merge 'avg', known are reset, carry, eager, mix, partial"),
        ({"merge": "mix:1"}, r"alpha of merge 'mix' is 1, it must be in \[0, 1\)"),
        ({"merge": "mix:-0.1"}, r"alpha of merge 'mix' is -0.1"),
        ({"merge": "partial:1.5"}, r"beta of merge 'partial' is 1.5, it must be in \[0, 1\]"),
        ({"merge": "partial:nan"}, "beta of merge 'partial' is nan"),
        ({"bootstrap": "author"}, "unknown bootstrap 'author', known are fixed, authors, did you"),
        ({"work": "fragments:4,100,25"}, "fragments' delay is 25"),
        ({"work": "fragments:4,100"}, "merge 'reset' is for models that come whole"),
        (
            {"work": "fragments:4,100", "merge": "mix", "proximal": 0.1},
            "proximal is 0.1, which holds steps near the whole newest model",
        ),
        (
            {"work": "fragments:4,100", "merge": "mix", "down": "fp16"},
            "down 'fp16' tells what has changed in the whole model",
        ),
        (
            {"work": "fragments:4,100", "merge": "mix", "codec": "topk_fp16:0.1"},
            "codec 'topk_fp16:0.1' keeps what it does not send for the next push",
        ),
        ({"proximal": -0.1}, "proximal is -0.1, it must be finite and >= 0"),
        ({"proximal": float("nan")}, "proximal is nan"),
        ({"drift": "send"}, "unknown drift 'send', known are off, infer"),
        (
            {"drift": "infer", "weights": "by_steps", "work": "fixed:2", "optimizer": "adam"},
            "optimizer 'adam:.*' makes another one of it: use aggregation mean and optimizer sgd",
        ),
        (
            {"drift": "infer", "weights": "by_steps", "work": "fixed:2", "down": "topk:0.1"},
            "codec 'topk:0.1' sends a few values late",
        ),
        (
            {"drift": "infer"},
            "weights BySamples.* count fast workers' steps for more: use by_steps",
        ),
        (
            {"drift": "infer", "weights": "by_steps", "merge": "partial:0.5", "codec": "topk:0.1"},
            "of which codec 'topk:0.1' sends a few values late: use dense, fp16, bf16 or int8",
        ),
        (
            {"drift": "infer", "weights": "by_steps", "work": "fixed:2", "codec": "topk_int8:0.1"},
            "of which codec 'topk_int8:0.1' sends a few values late",
        ),
        (
            {
                "drift": "infer",
                "weights": "by_steps",
                "merge": "partial:0.5",
                "codec": "artopk:0.1",
            },
            "of which codec 'artopk:0.1' sends a few values late",
        ),
        (
            {"work": "fragments:4,100", "merge": "mix", "codec": "artopk:0.1"},
            "codec 'artopk:0.1' keeps what it does not send for the next push",
        ),
        *[
            (
                {"codec": "artopk:0.1", "sync": sync, "work": "fixed:1"},
                "sends? values at the same positions, and sync .* does not wait for them all: "
                "use sync bulk, or codec topk_fp32:0.1",
            )
            for sync in ("asynchronous", "ssp:2", "dssp:2,8", "buffered:2")
        ],
        (
            {"codec": "artopk:0.1", "stream_bytes": 64},
            "codec 'artopk:0.1' lets nobody push before the whole model's positions are known",
        ),
        (
            {"codec": "artopk:0.1", "fold": "arrival"},
            "codec 'artopk:0.1' adds up the few values that pushes have at the same positions",
        ),
        (
            {"codec": "artopk:0.1", "auto": True},
            "auto chooses codec itself, and it is 'artopk:0.1'",
        ),
        (
            {"codec": "dense", "down": "artopk:0.1"},
            "down 'artopk:0.1' sends changes at the positions that the round's updates had, and "
            "codec 'dense' has others: use codec artopk:0.1",
        ),
        ({"codec": "artopk:0.2", "down": "artopk:0.1"}, "codec 'artopk:0.2' has others"),
        ({"codec": "artopk:0"}, "density is 0"),
        ({"codec": "artopk"}, "artopk"),
        ({"server_lr": 0.0}, "server_lr is 0.0, it must be finite and > 0"),
        ({"server_lr": -1}, "server_lr is -1"),
        ({"server_lr": float("inf")}, "server_lr is inf"),
        ({"server_lr": "1"}, "server_lr is '1'"),
        ({"shards": 0}, "shards is 0, it must be a whole number >= 1"),
        ({"shards": 1.5}, "shards is 1.5"),
        ({"shards": True}, "shards is True"),
        ({"min_workers": 0}, "min_workers is 0, it must be a whole number >= 1"),
        ({"max_members": 0}, "max_members is 0"),
        ({"min_workers": 5, "max_members": 4}, "max_members is 4, it must be >= min_workers = 5"),
        ({"bucket_bytes": 3}, "bucket_bytes is 3, it must be a whole number >= 4"),
        ({"bucket_bytes": 6}, "bucket_bytes is 6, it must be a multiple of 4"),
        ({"stream_bytes": 0}, "stream_bytes is 0, it must be a whole number >= 4"),
        ({"stream_bytes": 64, "fold": "arrival"}, "fold 'arrival' adds whole pushes up"),
        (
            {"stream_bytes": 64, "work": "fragments:2,8,1", "sync": "bulk:0", "merge": "mix:0.5"},
            "sends a fragment a round already",
        ),
        ({"stream_bytes": 18}, "stream_bytes is 18, it must be a multiple of 4"),
        ({"stream_bytes": 64.0}, "stream_bytes is 64.0, it must be a whole number"),
        (
            {"stream_bytes": 64, "sync": "asynchronous"},
            r"with sync Asynchronous\(\) another push may become a version first: use sync bulk",
        ),
        ({"stream_bytes": 64, "sync": "ssp:3"}, "use sync bulk, or leave stream_bytes out"),
        ({"stream_bytes": 64, "sync": "buffered:2"}, "use sync bulk, or leave stream_bytes out"),
        (
            {"stream_bytes": 64, "aggregation": "krum:1,1", "min_workers": 5},
            "chooses between whole pushes, .* use aggregation median or trimmed_mean, or leave",
        ),
        ({"max_frame_bytes": 65535}, "max_frame_bytes is 65535, it must be .* >= 65536"),
        (
            {"bucket_bytes": MIB, "max_frame_bytes": MIB - 1},
            "bucket_bytes is 1048576, which takes frames of 1048576 bytes with codec 'dense', "
            "but max_frame_bytes is 1048575",
        ),
        (
            {"bucket_bytes": MIB, "max_frame_bytes": MIB, "codec": "topk:1"},
            "frames of 2097152 bytes with codec 'topk:1', but max_frame_bytes is 1048576",
        ),
        ({"lease_s": 0}, "lease_s is 0, it must be finite and > 0"),
        ({"idle_timeout_s": float("nan")}, "idle_timeout_s is nan"),
        ({"heartbeat_s": -2.0}, "heartbeat_s is -2.0"),
        (
            {"heartbeat_s": 10.0},
            "heartbeat_s is 10, it must be less than half of lease_s = 20",
        ),
        ({"token": ""}, "token has 0 characters, it must have 1 to 4096"),
        ({"token": "x" * 4097}, "token has 4097 characters"),
        ({"token": 17}, "token is of type int, it must be text"),
        ({"bucket_byte": 4}, "unknown setting 'bucket_byte', .*, did you mean 'bucket_bytes'"),
        ({"sync": None}, "sync is None, it must be a policy object with 'ready'"),
        ({"codec": 7}, "codec is 7, it must be a policy object with 'add_to'"),
        ({"work": "fixed:10", "merge": "carry"}, "merge 'carry' keeps what a worker does while"),
        ({"work": "fixed:1", "bootstrap": "authors"}, "bootstrap 'authors' is about the first"),
        ({"sync": "bulk:0"}, "merges no push that is 1 round old"),
        ({"injection": "random:2,0.5"}, "injection's alpha is 2, it must be in"),
        ({"injection": "randm:1,1"}, "unknown injection 'randm', known are random, did you mean"),
        ({"injection": 7}, "injection is 7, it must be a policy object with 'donors'"),
        ({"injection": "random:1,1", "share_bytes": 0}, "share_bytes is 0, it must be a .* >= 1"),
        (
            {"injection": "random:1,1", "share_bytes": 2**35},
            "share_bytes is 34359738368, it must be at most max_frame_bytes = 17179869184",
        ),
        ({"fold": "arival"}, "unknown fold 'arival', known are ordered, arrival, did you mean"),
        ({"fold": "arrival", "landing_bytes": 0}, "landing_bytes is 0, it must be a .* >= 1"),
        ({"fold": "arrival", "landing_bytes": 1.5}, "landing_bytes is 1.5, it must be a whole"),
        (
            {"landing_bytes": 64},
            "landing_bytes is 64, which makes .* with fold 'ordered' each is held .* fold 'arrival'",
        ),
        ({"landing_bytes": 64, "stream_bytes": 64}, "fold 'arrival' and no stream_bytes, or leave"),
        ({"landing_bytes": 64, "auto": True}, "use sync bulk, fold 'arrival' and no stream_bytes"),
        ({"landing_bytes": 64, "sync": "asynchronous"}, "use sync bulk, fold 'arrival' and no str"),
        ({"fold": "arrival", "sync": "ssp:3"}, "holds no round of all workers: use sync bulk, or"),
        (
            {"sync": "buffered:5", "max_members": 4},
            "buffered waits for 5 pushes and there are at most",
        ),
        (
            {"sync": "buffered"},
            "sync 'buffered' does not fit .*missing a required argument: 'size'",
        ),
        ({"sync": "fedbuff:3"}, "unknown sync 'fedbuff', .*, did you mean 'buffered'"),
        ({"sync": "ssp:2", "work": "until_model"}, "ssp's bound of 2 steps would not hold"),
        ({"sync": "ssp:2", "work": "fixed:3"}, "every push makes 3, so it would act as 0"),
        ({"weights": "by_staleness:0.5"}, "give two equal pushes of a bulk round 2 in all, not 1"),
        ({"sync": "asynchronous", "weights": "by_steps"}, "by_steps compares the pushes"),
        (
            {"sync": "asynchronous", "weights": "normalized(by_staleness)"},
            "normalized makes the weight of a single push 1",
        ),
    ],
)
def test_bad_specs(spec, sentence):
    with pytest.raises(ConfigError, match=sentence) as caught:
        ServerConfig.parse(**spec)
    text = str(caught.value)
    assert "\n" not in text
    assert not text.endswith(".")


def test_a_text_where_a_policy_belongs_says_who_takes_texts():
    with pytest.raises(ConfigError, match=r"sync is 'ssp:2', it must be .*ServerConfig\.parse"):
        ServerConfig(sync="ssp:2")


def test_a_configuration_is_frozen_keyword_only_and_checked_when_replaced():
    config = ServerConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.shards = 2
    with pytest.raises(TypeError):
        ServerConfig(bulk())
    assert dataclasses.replace(config, shards=2).shards == 2
    with pytest.raises(ConfigError, match="shards is 0"):
        dataclasses.replace(config, shards=0)


def test_a_token_is_never_printed():
    config = ServerConfig(token="s3cret")
    assert "s3cret" not in repr(config)


class Sign:
    """A user's own codec."""

    name = "sign"
    wire_id = 200
    dtype = "float32"

    def init(self, n):
        return None

    def encode(self, update, residual, *, spare=None):
        return (np.sign(update),), None

    def check(self, payload, n):
        return -1

    def add_to(self, acc, payload, weight):
        acc += weight

    def payload_bytes(self, n):
        return 4 * n


def test_a_users_codec_needs_a_number_of_its_own():
    assert ServerConfig(codec=Sign()).codec.wire_id == 200
    for number in (0, 1, 4, 256):
        codec = Sign()
        codec.wire_id = number
        with pytest.raises(
            ConfigError,
            match=f"codec 'sign' has wire id {number}, it must be in 1..255 and none of",
        ):
            ServerConfig(codec=codec)


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("dense", dense()),
        ("fp16", fp16()),
        ("bf16", bf16()),
        ("int8", int8()),
        ("topk:0.01", topk(0.01)),
        ("topk:1e-05", topk(0.00001)),
        ("topk:1", topk(1)),
    ],
)
def test_a_worker_rebuilds_the_codec_from_its_name(text, codec):
    assert parse_codec(text) == codec
    assert parse_codec(codec.name) == codec


def test_the_name_tables():
    assert list(SYNC) == ["bulk", "asynchronous", "ssp", "buffered", "dssp"]
    assert list(WORK) == [
        *["fixed", "until_model", "fill_the_sync", "esync", "esync_prototype", "fragments"],
    ]
    assert list(CODEC) == [
        *["dense", "fp16", "bf16", "int8", "topk"],
        *["topk_fp32", "topk_fp16", "topk_bf16", "topk_int8", "artopk"],
    ]
    assert set(WEIGHTS) == {
        "uniform", "by_samples", "by_data", "by_steps", "constant", "by_staleness", "hinge", "linear_scaling",
    }  # fmt: skip


def test_chunks_that_are_streamed_are_no_larger_than_buckets_and_the_other_way_round():
    assert ServerConfig().chunk_bytes == 64 * MIB
    assert ServerConfig(stream_bytes=4096).chunk_bytes == 4096
    assert ServerConfig(stream_bytes=4096, bucket_bytes=64).chunk_bytes == 64
    # Frames are as large as chunks, not as buckets could be.
    assert ServerConfig(stream_bytes=4096, bucket_bytes=MIB, max_frame_bytes=65536)


def test_auto_fills_in_what_it_needs_and_streams_chunks_of_a_size_of_its_own():
    config = ServerConfig.parse(auto=True)
    assert config == ServerConfig.parse(**preset("nbsync-auto"))
    assert (config.work, config.merge, config.beta) == (fill_the_sync(8), "partial", 0.5)
    assert (config.streams, config.chunks) == (True, 16)
    assert config.topk == (topk_int8(0.05), topk_int8(0.1))
    assert ServerConfig.parse(auto=True, stream_bytes=4096).chunks == 0
    plain = ServerConfig()
    assert (plain.streams, plain.chunks, plain.topk) == (False, 0, None)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"auto": 1}, "auto is 1, it must be True or False"),
        ({"sync": "asynchronous"}, "auto measures the workers of one round, and sync Asynchronous"),
        (
            {"work": "until_model"},
            "auto overlaps work with rounds that it measures, and work is Un",
        ),
        (
            {"merge": "reset"},
            "auto may turn drift correction on, which needs merge partial .* 'res",
        ),
        ({"merge": "partial:1"}, "needs merge partial with 0 < beta < 1, not 'partial:1'"),
        ({"codec": "topk:0.01"}, "auto chooses codec itself, and it is 'topk:0.01': leave one of"),
        ({"down": "fp16"}, "auto chooses down itself, and it is 'fp16': leave one of the two out"),
        ({"drift": "infer"}, "auto chooses drift itself, and it is 'infer': leave one of the two"),
        (
            {"weights": "by_steps"},
            "auto takes weights for shares, per local step where it corrects",
        ),
        ({"bootstrap": "authors"}, "bootstrap 'authors' pushes steps twice, which auto would meas"),
        (
            {"proximal": 0.1},
            "proximal is 0.1, which holds steps near the model as drift correction",
        ),
        (
            {"aggregation": "median"},
            "aggregation 'median' makes another one of it: .* leave auto out",
        ),
        ({"optimizer": "momentum:1,0.9"}, "auto may turn drift correction on, .* optimizer 'momen"),
        ({"fold": "arrival"}, "fold 'arrival' adds whole pushes up, and stream_bytes merges"),
    ],
)
def test_auto_is_refused_beside_what_it_chooses_itself_or_cannot_work_with(spec, message):
    with pytest.raises(ConfigError, match=message):
        ServerConfig.parse(**{"auto": True, **spec})
