"""Compression both ways, against plain numpy: every worker has the server's model, whatever happens to its line."""

import numpy as np
import pytest

from aiops.codec.dense import dense
from aiops.codec.half import fp16
from aiops.codec.topk import topk
from aiops.config import ServerConfig
from aiops.errors import ConfigError, NotFinite
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.types import TensorSpec
from aiops.wire.frame import Kind
from tests.server.kit import MANY, cluster, count, value

pytestmark = pytest.mark.virtual

N = 200
START = np.linspace(-1, 1, N, dtype=np.float32)
SPEC = {"shards": 2, "bucket_bytes": 256, "weights": "uniform", "work": "fixed:1", "sync": "bulk:0"}
DENSITY = 0.1


class Reference:
    """Two-way Top-k as it is written down: T = rest + mean; the k largest of T go down, the others stay."""

    def __init__(self, params, table):
        self.params, self.rest = params.copy(), np.zeros_like(params)
        self.buckets = [slice(bucket.start, bucket.stop) for bucket in table.buckets]

    def close_round(self, *updates):
        total = np.zeros_like(self.params)
        for update in updates:
            total += np.float32(1 / len(updates)) * update
        total += self.rest
        for bucket in self.buckets:
            part = total[bucket]
            k = max(1, round(DENSITY * part.size))
            sent = np.argsort(-np.abs(part), kind="stable")[:k]
            self.params[bucket][sent] += part[sent]
            part[sent] = 0
        self.rest = total
        return self.params


@pytest.fixture
def draw():
    rng = np.random.default_rng(5)
    return lambda: rng.standard_normal(N).astype(np.float32)


def house(**spec):
    return Cluster(params={"w": START}, down=f"topk:{DENSITY}", **{**SPEC, **spec})


async def close_round(reference, workers, updates):
    """Sync one update of each worker; return the payload bytes that each got, once all have the reference's model."""
    tickets = [ps.sync({"w": u}) for ps, u in zip(workers, updates, strict=True)]
    models = [await ticket for ticket in tickets]
    expected = reference.close_round(*updates)
    for model in models:
        np.testing.assert_array_equal(model["w"], expected)
    return [ticket.bytes - 4 * N for ticket in tickets]


CODED = 8 * (3 * round(DENSITY * 64) + max(1, round(DENSITY * 8)))


async def test_rounds_are_those_of_the_reference_and_only_changes_travel(draw):
    async with house(min_workers=2) as server, server.worker("a") as a, server.worker("b") as b:
        await a.init()
        await b.init()
        reference = Reference(START, a.table)
        assert [bucket.stop - bucket.start for bucket in a.table.buckets] == [64, 64, 64, 8]
        for _ in range(6):
            assert await close_round(reference, [a, b], [draw(), draw()]) == [CODED] * 2
            np.testing.assert_array_equal(server.server.params()["w"], reference.params)
        pull = a.pull()
        np.testing.assert_array_equal((await pull)["w"], reference.params)
        assert pull.bytes == 4 * N
        assert np.abs(reference.rest).max() > 0.5


async def test_a_late_joiner_gets_the_whole_model_and_then_changes(draw):
    async with house(min_workers=1) as server, server.worker("a") as a:
        await a.init()
        reference = Reference(START, a.table)
        for _ in range(3):
            assert await close_round(reference, [a], [draw()]) == [CODED]
        async with server.worker("late") as late:
            np.testing.assert_array_equal((await late.init())["w"], reference.params)
            for _ in range(3):
                # The newcomer first: nobody waits for it before it has pushed once.
                assert await close_round(reference, [late, a], [draw(), draw()]) == [CODED] * 2


@pytest.mark.parametrize("cut_after", [100, 200, 300])
async def test_a_line_that_breaks_while_changes_travel_is_mended_and_the_model_is_right(
    draw, cut_after
):
    down = Link(delay_s=0.01)
    async with (
        house(min_workers=2) as server,
        server.worker("a", up=Link(delay_s=0.01), down=down) as a,
        server.worker("b") as b,
    ):
        await a.init()
        await b.init()
        reference = Reference(START, a.table)
        for turn in range(5):
            if turn == 2:
                down.cut_after = cut_after
            assert await close_round(reference, [a, b], [draw(), draw()]) == [CODED] * 2
        assert a.connections == 2
        assert count(server, "pushes_repeated") == 1


async def test_a_line_that_breaks_after_a_model_came_whole_goes_on_from_that_one(draw):
    async with (
        house(min_workers=2) as server,
        server.worker("a", up=Link(delay_s=0.5), down=Link(delay_s=0.5)) as a,
        server.worker("b") as b,
    ):
        await a.init()
        await b.init()
        reference = Reference(START, a.table)
        await close_round(reference, [a, b], [draw(), draw()])
        updates = [draw(), draw()]
        ticket = a.sync({"w": updates[0]})
        await b.sync({"w": updates[1]})
        # The answer is lost on its way; the pull is sent first on the next line, and answered first.
        a._link.cut()
        pull = a.pull()
        a._link._requests.rotate(1)
        expected = reference.close_round(*updates)
        np.testing.assert_array_equal((await pull)["w"], expected)
        np.testing.assert_array_equal((await ticket)["w"], expected)
        assert ticket.bytes == 8 * N
        for _ in range(2):
            assert await close_round(reference, [a, b], [draw(), draw()]) == [CODED] * 2


async def test_the_worker_that_seeds_holds_the_first_version(draw):
    async with Cluster(down=f"topk:{DENSITY}", **SPEC) as server, server.worker("a") as a:
        await a.init({"w": START})
        reference = Reference(START, a.table)
        for _ in range(2):
            assert await close_round(reference, [a], [draw()]) == [CODED]


async def test_overlapped_workers_get_changes_too(draw):
    spec = {**SPEC, "work": "until_model", "sync": "bulk:1"}
    async with house(**spec) as server, server.worker("a") as a:
        await a.init()
        reference = Reference(START, a.table)
        updates = [draw() for _ in range(4)]
        base = a.version
        for update in updates:
            # Each starts from the version before the newest one.
            older, base = base, a.version
            ticket = a.sync({"w": update}, base=older)
            np.testing.assert_array_equal((await ticket)["w"], reference.close_round(update))
            assert ticket.bytes == 4 * N + CODED


async def test_running_statistics_travel_whole_and_changes_of_the_others_coded(draw):
    specs = [TensorSpec("w", (60,), "float32"), TensorSpec("m", (4,), "float32", averaged=True)]
    async with Cluster(down="topk:0.05", **SPEC) as server, server.worker("a") as a:
        flat = np.arange(64, dtype=np.float32)

        def fill(_, out):
            out[:] = flat

        await a.init_flat(specs, fill)
        update = np.ones(64, np.float32)
        update[[5, 6, 40]] = 3
        ticket = a.push_flat(update)
        model = (await ticket).flat
        flat[[5, 6, 40]] += 3
        flat[60:] += 1
        np.testing.assert_array_equal(model, flat)
        assert ticket.bytes == 4 * 64 + 3 * 8 + 4 * 4


async def test_optimizers_and_aggregations_are_coded_like_any_round():
    spec = {"down": "topk:0.5", "optimizer": "momentum:1,0.5", "aggregation": "median"}
    async with cluster(**spec, weights="uniform") as server, server.worker("a") as a:
        await a.init()
        # Velocities 1, 1.5, 1.75; two of four values go down a round, the largest, of equal ones the first.
        for expected in ([1, 1, 0, 0], [1, 1, 2.5, 2.5], [4.25, 4.25, 2.5, 2.5]):
            model = await a.sync({"w": np.ones(4, np.float32)})
            assert model["w"].tolist() == expected


async def test_a_round_that_cannot_be_coded_leaves_everything_as_it_was():
    async with cluster(down="fp16", sync="bulk") as server, server.worker("a") as a:
        await a.init()
        with pytest.raises(NotFinite, match="does not fit down codec fp16: value 70000"):
            await a.sync({"w": np.full(4, 7e4, np.float32)})
        assert (server.server.version, value(server)) == (0, 0.0)
        ticket = a.sync({"w": np.full(4, 2048.5, np.float32)})
        # In half precision: 2048, and nothing is left behind.
        assert (await ticket)["w"].tolist() == [2048.0] * 4
        assert ticket.bytes == 16 + 8


async def test_rests_survive_a_round_that_fails(draw):
    async with house(server_lr=2.0) as server, server.worker("a") as a:
        await a.init()
        reference = Reference(START, a.table)
        for _ in range(3):
            update = draw()
            model = await a.sync({"w": update})
            np.testing.assert_array_equal(model["w"], reference.close_round(2 * update))
            with pytest.raises(NotFinite, match="would make tensor 'w' "):
                await a.sync({"w": np.full(N, 3e38, np.float32)})


async def test_answers_by_hand(hand):
    async with cluster(down="topk:0.5", sync="bulk") as server:
        worker = await hand(server)

        async def since(sequence, **options):
            answer = await worker.push(sequence, np.ones(4, np.float32), want=True, **options)
            assert answer.kind is Kind.MODEL
            codecs = {part.header.codec for part in answer.parts}
            answer.release()
            assert codecs == ({1} if answer.body.since is None else {4})
            return answer.body.since

        # A version that this server never sent is another server's.
        assert await since(1, holds=0) is None
        assert await since(2, base=1, holds=1) == 1
        assert await since(3, base=2) is None
        assert await since(4, base=3, holds=2) is None
        assert await since(5, base=4, holds=4) == 4
        # Again: what was sent on this connection meanwhile is what it holds now.
        assert await since(5, base=4, holds=4) is None


@pytest.mark.parametrize("shards", [1, 3])
async def test_large_rounds_are_coded_in_the_shards_threads(hand, shards):
    spec = {"shards": shards, "bucket_bytes": 512 * 1024, "down": "topk:0.01", "sync": "bulk"}
    async with cluster(MANY, **spec) as server, server.worker("a") as a:
        await a.init()
        update = np.zeros(MANY, np.float32)
        update[::1000] = 5
        for turn in (1, 2):
            ticket = a.sync({"w": update})
            np.testing.assert_array_equal((await ticket)["w"], turn * update)
            assert 4 * MANY < ticket.bytes < 4.1 * MANY


async def test_a_push_repeated_on_a_new_line_gets_the_right_change_or_all(hand):
    async with cluster(down="topk:0.5", sync="bulk") as server:
        for holds, since in ((1, 1), (0, None)):
            name = f"worker{holds}"
            worker = await hand(server, name)
            start = server.server.version
            await worker.push(1, np.ones(4, np.float32), want=True, base=start)
            body = (await worker.pull()).body
            assert body.version == start + 1
            options = {"base": start + 1, "want": True}
            await worker.push(2, np.ones(4, np.float32), holds=start + 1, **options)
            worker.connection.abort()
            back = await hand(server, name)
            held = start + holds
            answer = await back.push(2, np.ones(4, np.float32), holds=held, **options)
            assert (answer.body.version, answer.body.since) == (
                start + 2,
                None if since is None else held,
            )
            await back.leave()


def test_down_is_a_codec_under_bulk_sync():
    assert ServerConfig.parse(down="topk:0.01").down == topk(0.01)
    assert ServerConfig.parse(down="fp16").down == fp16()
    assert ServerConfig.parse(down="fp16").rules is not None
    assert ServerConfig().down == dense()
    assert ServerConfig.parse(sync="asynchronous", weights="uniform", down="dense").rules is None
    for sync in ("asynchronous", "ssp:2"):
        with pytest.raises(ConfigError, match=r"down codec 'topk:0.01' sends .* use sync bulk"):
            ServerConfig.parse(sync=sync, weights="uniform", down="topk:0.01")
    with pytest.raises(ConfigError, match="unknown codec 'zip'"):
        ServerConfig.parse(down="zip")
    with pytest.raises(ConfigError, match=r"frames of 131072 bytes with codec 'topk:1.0'"):
        ServerConfig.parse(down="topk:1.0", bucket_bytes=65536, max_frame_bytes=65536)
