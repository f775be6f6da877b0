"""Chunk streaming from end to end: how long a synchronization takes, and that its bits are those without it."""

import asyncio
import contextlib

import numpy as np
import pytest

from aiops import connect, serve
from aiops.sim.cluster import Cluster
from aiops.sim.relay import Relay, WanLink
from aiops.transport.memory import Link
from aiops.types import TensorSpec
from aiops.worker.meter import Meter
from aiops.worker.overlap import overlapped
from aiops.worker.rounds import blocking
from tests.certificates import Authority

WORKERS, CHUNKS = 4, 16
CHUNK_BYTES = 128 * 1024
N = CHUNKS * CHUNK_BYTES // 4
# A dense model takes two seconds in one direction.
RATE, DELAY_S = 1024 * 1024, 0.05
SPEC = {"min_workers": WORKERS, "bucket_bytes": CHUNK_BYTES, "weights": "uniform"}


def stream(on):
    return {"stream_bytes": CHUNK_BYTES} if on else {}


async def training(make, codec, *, on, **options):
    """Let four workers train for some rounds over slow links; return how long their last syncs took, and a model."""
    loop = asyncio.get_running_loop()
    spec = SPEC | stream(on) | {"codec": codec} | options
    spec["work"] = "fixed:1" if make is blocking else "until_model"
    async with (
        Cluster(params={"w": np.zeros(N, np.float32)}, rounds=4, **spec) as house,
        contextlib.AsyncExitStack() as stack,
    ):
        meters = [Meter(loop.time()) for _ in range(WORKERS)]
        trained = []
        for number in range(WORKERS):
            up, down = (Link(DELAY_S, RATE) for _ in range(2))
            ps = await stack.enter_async_context(house.worker(f"w{number}", up=up, down=down))
            trained.append((ps, number))
        starts = await asyncio.gather(*(ps.init() for ps, _ in trained))

        async def train(ps, number, start):
            progress = np.random.default_rng(number).standard_normal(N).astype(np.float32)

            async def step(x):
                await asyncio.sleep(0.25)
                x += progress

            return await make(ps, start["w"], step, meter=meters[number])

        models = await asyncio.gather(
            *(train(ps, number, start) for (ps, number), start in zip(trained, starts, strict=True))
        )
        for model in models:
            np.testing.assert_array_equal(model, house.server.params()["w"])
        assert house.server.status()["counters"].get("chunks_ahead", 0) == 4 * (CHUNKS - 1) * on
        return [meter.last_sync_s for meter in meters], models[0]


@pytest.mark.virtual
@pytest.mark.parametrize("make", [blocking, overlapped], ids=["blocking", "overlapped"])
@pytest.mark.parametrize(("codec", "up_s"), [("dense", 2.0), ("topk:0.25", 1.0), ("topk:1", 4.0)])
async def test_a_sync_takes_the_slower_way_and_a_chunk_instead_of_both(make, codec, up_s):
    down_s = 2.0
    whole, plain = await training(make, codec, on=False)
    streamed, same = await training(make, codec, on=True)
    both_s = up_s + down_s + 2 * DELAY_S
    one_s = max(up_s, down_s) + min(up_s, down_s) / CHUNKS + 2 * DELAY_S
    seen = f"{whole[0]:.3f} s ({both_s:.3f}) without streaming, {streamed[0]:.3f} s ({one_s:.3f}) with it"
    print(f"{make.__name__} {codec}: {seen}")  # noqa: T201 -- pytest -s shows it
    assert whole == pytest.approx([both_s] * WORKERS, rel=0.05)
    assert streamed == pytest.approx([one_s] * WORKERS, rel=0.05)
    if make is blocking:
        np.testing.assert_array_equal(plain.view(np.uint32), same.view(np.uint32))


@pytest.mark.virtual
async def test_a_sync_whose_answer_says_what_has_changed_is_streamed_too():
    whole, plain = await training(blocking, "dense", on=False, down="topk:0.25")
    streamed, same = await training(blocking, "dense", on=True, down="topk:0.25")
    assert whole == pytest.approx([2.0 + 1.0 + 2 * DELAY_S] * WORKERS, rel=0.05)
    assert streamed == pytest.approx([2.0 + 1.0 / CHUNKS + 2 * DELAY_S] * WORKERS, rel=0.05)
    np.testing.assert_array_equal(plain.view(np.uint32), same.view(np.uint32))


@pytest.mark.virtual
async def test_several_shards_are_gone_through_in_one_order_by_all_workers():
    streamed, _ = await training(blocking, "dense", on=True, shards=4)
    one_s = 2.0 + 2.0 / CHUNKS + 2 * DELAY_S
    assert streamed == pytest.approx([one_s] * WORKERS, rel=0.02)


# The last one is averaged: a bucket of its own, plain float32 whatever the codec.
SPECS = [
    TensorSpec("w", (300, 70), "float32"),
    TensorSpec("none", (0,), "float32"),
    TensorSpec("b", (333,), "float32"),
    TensorSpec("mean", (90,), "float32", averaged=True),
]
SIZE = 300 * 70 + 333 + 90


async def versions(*, on, **spec):
    """Let three workers with links of different speeds make some versions; return them, and the bytes received."""
    spec = {"bucket_bytes": 4000, "min_workers": 3, "work": "fixed:1"} | spec
    if on:
        spec["stream_bytes"] = 4000
    found = []
    async with Cluster(**spec) as house, contextlib.AsyncExitStack() as stack:
        workers = []
        for i, rate in enumerate((30_000, 50_000, 70_000)):
            up, down = Link(0.01, rate), Link(0.02, 2 * rate)
            workers.append(await stack.enter_async_context(house.worker(f"w{i}", up=up, down=down)))
            await workers[-1].init_flat(SPECS, lambda _, flat: flat.fill(1.0))
        for round_ in range(4):
            tickets = []
            for i, ps in enumerate(workers):
                rng = np.random.default_rng([round_, i])
                update = rng.standard_normal(SIZE).astype(np.float32)
                tickets.append(ps.push_flat(update, n_samples=1 + i, n_steps=3 - i))
            models = [(await ticket).flat.copy() for ticket in tickets]
            for model in models:
                np.testing.assert_array_equal(model, house.server.service.store.vector())
            found.append(models[0])
        counters = house.server.status()["counters"]
        assert (counters.get("chunks_ahead", 0) > 12) is on
        assert "rounds_unforeseen" not in counters
        return found, sum(ps.received_bytes for ps in workers)


CODECS = ["dense", "fp16", "bf16", "int8", "topk:0.1", "topk_fp16:0.1", "topk_int8:0.1"]


@pytest.mark.virtual
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("weights", "shards"), [("uniform", 1), ("by_samples", 3), ("by_steps", 2)]
)
async def test_the_bits_are_those_without_streaming(codec, weights, shards):
    await compare(codec=codec, weights=weights, shards=shards, server_lr=0.5)


async def compare(**spec):
    plain, received = await versions(on=False, **spec)
    streamed, same = await versions(on=True, **spec)
    for one, other in zip(plain, streamed, strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
    # What travels is the same, answers that say what has changed included; a ping more or less.
    assert same == pytest.approx(received, rel=0.01)


@pytest.mark.virtual
@pytest.mark.parametrize("codec", ["dense", "topk:0.1"])
@pytest.mark.parametrize(
    "rules",
    [
        {"optimizer": "momentum:1,0.9"},
        {"optimizer": "adam:0.1"},
        {"optimizer": "yogi:0.1", "shards": 2},
        {"aggregation": "median", "weights": "uniform"},
        {"aggregation": "trimmed_mean:0.3", "weights": "uniform", "optimizer": "nesterov:0.7,0.9"},
        {"down": "topk:0.1"},
        {"down": "int8", "shards": 2},
        {"down": "fp16", "optimizer": "momentum:1,0.9"},
        {"drift": "infer", "weights": "by_steps", "codec": "int8"},
    ],
    ids=lambda rules: ",".join(f"{name}={rule}" for name, rule in rules.items()),
)
async def test_rules_of_the_server_make_the_same_bits_bucket_by_bucket(codec, rules):
    await compare(**{"codec": codec} | rules)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


# Buckets that go through lanes and threads, and such that do neither.
@pytest.mark.timeout(60)
@pytest.mark.parametrize("chunk_bytes", [128 * 1024, 3 * 1024 * 1024])
@pytest.mark.parametrize("way", ["tcp", "shared memory", "tls"])
async def test_models_of_megabytes_go_both_ways_at_once_over_real_links(
    authority, way, chunk_bytes
):
    n, workers = 3_000_000, 3
    start = {"w": np.zeros(n, np.float32)}
    spec = {"stream_bytes": chunk_bytes, "shards": 2, "min_workers": workers, "weights": "uniform"}
    shared = way == "shared memory"
    tls = (authority.server(), authority.worker()) if way == "tls" else (None, None)
    async with (
        serve(params=start, shared_memory=shared, tls=tls[0], **spec) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = []
        for i in range(workers):
            ps = connect(server.url, name=f"w{i}", shared_memory=shared, tls=tls[1])
            clients.append(await stack.enter_async_context(ps))
            await clients[-1].init()
        params = [ps.empty() for ps in clients]
        updates = [ps.empty() for ps in clients]
        for version in (1, 2):
            for i, update in enumerate(updates):
                update["w"][...] = np.arange(n) % (1000 + i)
            tickets = [
                ps.sync(update, copy=False, out=out)
                for ps, update, out in zip(clients, updates, params, strict=True)
            ]
            for ticket in tickets:
                await ticket
            for out in params:
                np.testing.assert_array_equal(out["w"], server.params()["w"])
            assert server.version == version
        counters = server.status()["counters"]
        buckets = len(server.service.table.buckets)
        # What a thread has not merged when the round closes is merged with it.
        assert counters["chunks_ahead"] > 0
        assert "rounds_unforeseen" not in counters
        assert server.status()["pool"]["outstanding"] == buckets


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_on_slow_lines_a_sync_takes_little_more_than_one_way():
    link = WanLink(8e6, 0.03)
    n = CHUNKS * 64 * 1024 // 4
    way_s = link.transfer_s(4 * n)
    took = {}
    for on in (False, True):
        spec = {"bucket_bytes": 64 * 1024, "min_workers": WORKERS, "weights": "uniform"}
        if on:
            spec["stream_bytes"] = 64 * 1024
        async with (
            serve(params={"w": np.zeros(n, np.float32)}, shared_memory=False, **spec) as server,
            contextlib.AsyncExitStack() as stack,
        ):
            clients = []
            port = int(server.url.rpartition(":")[2])
            for i in range(WORKERS):
                relay = await stack.enter_async_context(Relay("127.0.0.1", port, link))
                ps = connect(f"aiops://127.0.0.1:{relay.port}", name=f"w{i}", shared_memory=False)
                clients.append(await stack.enter_async_context(ps))
            await asyncio.gather(*(ps.init() for ps in clients))
            loop = asyncio.get_running_loop()
            start = loop.time()
            for _ in range(2):
                models = await asyncio.gather(
                    *(ps.sync({"w": np.full(n, i, np.float32)}) for i, ps in enumerate(clients))
                )
            took[on] = (loop.time() - start) / 2
            assert (models[0]["w"] == 3.0).all()
    seen = f"one way {way_s:.2f} s, sync {took[False]:.2f} s, streamed {took[True]:.2f} s"
    print(seen)  # noqa: T201 -- pytest -s shows it
    assert took[False] > 1.9 * way_s
    assert took[True] < 1.35 * way_s
