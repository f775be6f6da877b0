"""Pushing in turn: what compression leaves behind is carried over once, and only by pushes that were taken."""

import asyncio
import collections
import contextlib
import itertools
import sys

import numpy as np
import pytest

from aiops.codec.topk import TopK
from aiops.errors import (
    Busy,
    ConnectionLost,
    LocalProtocolError,
    NotFinite,
    ShapeMismatch,
    StalePush,
)
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.types import Version
from aiops.wire.frame import parse_header
from aiops.worker.pusher import INLINE_VALUES, MAX_WAITING, Pusher
from aiops.worker.request import PushRequest
from aiops.worker.ticket import Snapshot

pytestmark = pytest.mark.virtual

N = 100


def cluster(n=N, **spec):
    spec = {"codec": "topk:0.1", "sync": "asynchronous", "bucket_bytes": 160, **spec}
    return Cluster(params={"w": np.zeros(n, np.float32)}, **spec)


def left(ps):
    return np.concatenate([ps.residuals()[key] for key in sorted(ps.residuals())])


def whole(house):
    return house.server.params()["w"]


@pytest.mark.parametrize("kind", ["integers", "floats"])
@pytest.mark.parametrize("n_workers", [1, 3])
async def test_what_the_server_merged_and_what_is_left_is_all_that_was_pushed(kind, n_workers):
    rng = np.random.default_rng(1)

    def update():
        values = rng.integers(-50, 50, N) if kind == "integers" else rng.standard_normal(N)
        return values.astype(np.float32)

    async with cluster() as house:
        workers = [house.worker(f"w{i}") for i in range(n_workers)]
        total = np.zeros(N, np.float64)

        async def work(ps):
            nonlocal total
            async with ps:
                await ps.init()
                for _ in range(20):
                    one = update()
                    total += one
                    await ps.sync({"w": one})
                return left(ps)

        rests = await asyncio.gather(*map(work, workers))
        merged = whole(house).astype(np.float64) + sum(rest.astype(np.float64) for rest in rests)
        if kind == "integers":
            np.testing.assert_array_equal(merged, total)
        else:
            np.testing.assert_allclose(merged, total, atol=1e-4)
        assert any(rest.any() for rest in rests)


async def test_a_link_that_is_cut_keeps_the_books_right():
    up = Link(0.01)
    async with cluster() as house, house.worker("a", up=up) as ps:
        await ps.init()
        for round_ in range(1, 30):
            up.cut_after = 13 * round_ % 500
            await ps.push({"w": np.full(N, round_, np.float32)})
        assert ps.connections > 10
        np.testing.assert_array_equal(whole(house) + left(ps), sum(range(1, 30)))


async def test_a_refused_push_leaves_the_residual_as_it_was():
    async with cluster(sync="bulk:0", work="fixed:1") as house, house.worker("a") as ps:
        await ps.init()
        ones = {"w": np.ones(N, np.float32)}
        for _ in range(3):
            await ps.sync(ones)
        before = left(ps)
        with pytest.raises(StalePush):
            await ps.sync(ones, base=0)
        np.testing.assert_array_equal(left(ps), before)
        await ps.sync(ones)
        np.testing.assert_array_equal(whole(house) + left(ps), 4)


async def test_a_push_refused_by_the_merge_leaves_the_residual_as_it_was():
    async with cluster(server_lr=2.0, sync="bulk") as house, house.worker("a") as ps:
        await ps.init()
        await ps.sync({"w": np.ones(N, np.float32)})
        before = left(ps)
        with pytest.raises(NotFinite, match="merging would make tensor 'w'"):
            await ps.sync({"w": np.full(N, 3e38, np.float32)})
        np.testing.assert_array_equal(left(ps), before)
        assert house.server.version == 1


async def test_an_update_that_cannot_be_coded_fails_alone():
    async with cluster(codec="fp16") as house, house.worker("a") as ps:
        await ps.init()
        update = np.ones(N, np.float32)
        bad = update.copy()
        bad[77] = 1e6
        failing, good = ps.push({"w": bad}), ps.push({"w": update})
        with pytest.raises(NotFinite, match="does not fit float16"):
            await failing
        await good
        np.testing.assert_array_equal(whole(house), 1)


async def test_a_codec_with_a_bug_fails_the_push_and_not_the_ones_behind_it():
    async with cluster() as house, house.worker("a") as ps:
        await ps.init()
        codec, ps._pusher._codec = ps._pusher._codec, None
        failing = ps.push({"w": np.ones(N, np.float32)})
        with pytest.raises(AttributeError):
            await failing
        ps._pusher._codec = codec
        await ps.push({"w": np.ones(N, np.float32)})


async def test_residuals_can_be_saved_and_gone_on_from():
    async with cluster() as house:
        async with house.worker("a", incarnation=1) as ps:
            await ps.init()
            await ps.push({"w": np.arange(N, dtype=np.float32)})
            saved = {key: rest.copy() for key, rest in ps.residuals().items()}
        async with house.worker("a", incarnation=2) as ps:
            await ps.init()
            assert not left(ps).any()
            ps.restore_residuals(saved)
            await ps.push({"w": np.zeros(N, np.float32)})
            np.testing.assert_array_equal(whole(house) + left(ps), np.arange(N))
            for wrong in ({99: saved[0]}, {0: saved[0][:3]}):
                with pytest.raises(LocalProtocolError, match="residual of key"):
                    ps.restore_residuals(wrong)


async def test_residuals_take_turns_in_the_same_memory(monkeypatch):
    places, encode = [], TopK.encode

    def watched(self, update, residual, *, spare=None):
        parts, rest = encode(self, update, residual, spare=spare)
        places.append((residual.ctypes.data, rest.ctypes.data))
        return parts, rest

    monkeypatch.setattr(TopK, "encode", watched)
    async with cluster(bucket_bytes=4 * N) as house, house.worker("a") as ps:
        await ps.init()
        for _ in range(6):
            await ps.sync({"w": np.ones(N, np.float32)})
    assert len({rest for _, rest in places}) == 2
    assert all(old != new for old, new in places)


async def test_residuals_that_were_shown_never_change():
    async with cluster() as house, house.worker("a") as ps:
        await ps.init()
        shown = []
        for round_ in range(8):
            await ps.sync({"w": np.arange(N, dtype=np.float32)})
            if round_ % 3 == 0:
                shown += [(rest, rest.copy()) for rest in ps.residuals().values()]
        for rest, copy in shown:
            np.testing.assert_array_equal(rest, copy)
        assert len({rest.ctypes.data for rest, _ in shown}) == len(shown)


@contextlib.contextmanager
def traced(function, tell):
    """Do something else, as another thread would, before the n-th line or opcode of a function."""

    def enter(frame, event, argument):
        if frame.f_code is not function.__code__:
            return None
        frame.f_trace_opcodes = True
        counts = collections.Counter()

        def step(frame, event, argument):
            counts[event] += 1
            tell(event, counts[event])
            return step

        return step

    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(None)


NOTHING_NEW = Snapshot(Version(1), np.empty(0, np.float32))


# Places in the reader of residuals, by lines executed; a place that is named twice has two pushes taken there.
@pytest.mark.parametrize("places", [(1,), (2,), (3,), (2, 2), (3, 3), (2, 3), (1, 2, 3, 4, 5, 6)])
async def test_residuals_are_shown_whole_to_a_thread_that_asks_while_pushes_are_taken(places):
    async with cluster() as house, house.worker("a") as ps:
        await ps.init()
        update = {"w": np.arange(N, dtype=np.float32)}
        await ps.push(update)
        tickets = [ps.push_flat(update["w"], want=False) for _ in places]
        due = list(places)

        def take(event, number):
            while event == "line" and due and due[0] == number:
                del due[0]
                next(t for t in tickets if not t.done()).resolve(NOTHING_NEW)

        with traced(Pusher.residuals.fget, take):
            shown = ps.residuals()
        copies = {key: rest.copy() for key, rest in shown.items()}
        for _ in range(3):
            await ps.push(update)
        for key, rest in shown.items():
            np.testing.assert_array_equal(rest, copies[key])


async def test_residuals_are_shown_whole_to_a_thread_that_asks_anywhere_in_the_taking_of_a_push():
    async with cluster() as house, house.worker("a") as ps:
        await ps.init()
        update = {"w": np.arange(N, dtype=np.float32)}
        shown, place = [], 0
        while len(shown) == place:
            place += 1

            def show(event, number, place=place):
                if event == "opcode" and number == place:
                    shown.append([(rest, rest.copy()) for rest in ps.residuals().values()])

            with traced(Pusher._answered, show):
                await ps.push(update)
            for _ in range(3):
                await ps.push(update)
        assert place > 20
        for rest, copy in itertools.chain(*shown):
            np.testing.assert_array_equal(rest, copy)


async def test_codecs_that_keep_nothing_have_no_residuals():
    async with cluster(codec="dense") as house, house.worker("a") as ps:
        await ps.init()
        assert ps.residuals() == {}
        with pytest.raises(LocalProtocolError, match="none due"):
            ps.restore_residuals({0: np.zeros(40, np.float32)})


async def test_pushes_go_one_after_the_other_in_the_order_they_were_given():
    async with cluster(codec="dense") as house, house.worker("a", up=Link(0.1)) as ps:
        await ps.init()
        tickets = [ps.push({"w": np.full(N, i, np.float32)}) for i in range(10)]
        assert await asyncio.gather(*tickets) == list(range(1, 11))
        np.testing.assert_array_equal(whole(house), 45)


async def test_workers_begin_with_the_shard_of_their_number(monkeypatch):
    sent, frames = [], PushRequest.frames

    def watched(self, session, number):
        made = frames(self, session, number)
        sent.append([parse_header(memoryview(head), 1 << 20).key for head, _ in made[1:]])
        return made

    monkeypatch.setattr(PushRequest, "frames", watched)
    async with cluster(shards=2) as house, house.worker("a") as a, house.worker("b") as b:
        for ps in (a, b):
            await ps.init()
            await ps.push({"w": np.ones(N, np.float32)})
        homes = [bucket.shard for bucket in a.table.buckets]
        assert [homes[keys[0]] for keys in sent] == [0, 1]
        assert sorted(sent[1]) == sent[0] == list(range(len(homes)))


async def test_pushes_nobody_awaits_are_bounded():
    async with cluster(min_workers=2, codec="dense") as house, house.worker("a") as ps:
        await ps.init()
        update = {"w": np.ones(N, np.float32)}
        tickets = [ps.push(update) for _ in range(MAX_WAITING + 1)]
        with pytest.raises(Busy, match="await their tickets"):
            ps.push(update)
        assert ps.clock == MAX_WAITING + 1
        async with house.worker("b") as b:
            await b.init()
            await b.push(update)
            await asyncio.gather(*tickets)
        ps.push(update)


async def test_a_large_update_is_coded_in_a_thread_and_arrives_the_same():
    n = INLINE_VALUES + 1
    update = np.zeros(n, np.float32)
    update[[5, n - 1]] = 3, -4
    async with (
        cluster(n, codec="topk:0.00001", bucket_bytes=4 * n) as house,
        house.worker("a") as ps,
    ):
        await ps.init()
        await ps.push({"w": update})
        assert np.flatnonzero(whole(house)).tolist() == [5, n - 1]


OVERLAPPED = np.ones(N + 1, np.float32)


@pytest.mark.parametrize(
    ("update", "options", "error"),
    [
        (np.ones(N + 1, np.float32), {}, ShapeMismatch),
        (np.ones(N), {}, ShapeMismatch),
        (np.ones(2 * N, np.float32)[::2], {}, ShapeMismatch),
        (np.full(N, np.nan, np.float32), {}, NotFinite),
        (np.ones(N, np.float32), {"out": np.ones(3, np.float32)}, ShapeMismatch),
        (OVERLAPPED[1:], {"out": OVERLAPPED[:-1]}, ShapeMismatch),
        (np.ones(N, np.float32), {"n_samples": -1}, LocalProtocolError),
        (np.ones(N, np.float32), {"n_steps": -1}, LocalProtocolError),
        (np.ones(N, np.float32), {"base": -1}, LocalProtocolError),
    ],
)
async def test_what_cannot_be_sent_is_refused_at_once_and_counts_for_nothing(
    update, options, error
):
    async with cluster() as house, house.worker("a") as ps:
        await ps.init()
        with pytest.raises(error):
            ps.push_flat(update, **options)
        assert ps.clock == 0
        assert (await ps.push_flat(np.ones(N, np.float32))).version == 1
        assert house.server.version == 1


@pytest.mark.parametrize("what", ["n_samples", "n_steps", "base"])
@pytest.mark.parametrize("count", [float("nan"), float("inf"), 2.5, -1, 2**63, "many"])
async def test_what_is_no_count_is_refused_by_name(what, count):
    async with cluster() as house, house.worker("a") as ps:
        await ps.init()
        for verb in (ps.push, ps.sync):
            with pytest.raises(LocalProtocolError) as caught:
                verb({"w": np.ones(N, np.float32)}, **{what: count})
            assert f"{what} is {count!r}, it must be a whole number >= 0" in str(caught.value)
        assert ps.clock == 0
        assert await ps.push({"w": np.ones(N, np.float32)}) == 1


async def test_leaving_tells_every_push_what_became_of_it():
    async with cluster(min_workers=2) as house:
        async with house.worker("a") as ps:
            await ps.init()
            tickets = [ps.push({"w": np.ones(N, np.float32)}) for _ in range(3)]
            await asyncio.sleep(1)
        for ticket, told in zip(tickets, ("answered", "sent", "sent"), strict=True):
            with pytest.raises(ConnectionLost, match=f"left before this push was {told}"):
                await ticket
        with pytest.raises(ConnectionLost, match="has left"):
            await ps.push({"w": np.ones(N, np.float32)})
