"""Updates and models that are lent instead of copied: the same numbers, in memory that is nobody else's meanwhile."""

import asyncio
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from aiops import connect, serve
from aiops.errors import LocalProtocolError, NotFinite, ShapeMismatch
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from tests.worker.kit import ONES, START, same

virtual = pytest.mark.virtual
CODECS = ["dense", "fp16", "topk:0.5"]


def filled(tensors, values):
    """Lendable tensors with these values."""
    for name, value in values.items():
        tensors[name][...] = value
    return tensors


def base(tensors):
    """Where their one vector lies."""
    return next(iter(tensors.values())).base.__array_interface__["data"][0]


@virtual
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("large", [False, True], ids=["on the loop", "encoded in a thread"])
async def test_lending_gives_the_numbers_that_copying_gives(codec, large):
    rng = np.random.default_rng(1)
    shapes = {"w": (600, 500) if large else (6, 5), "none": (0, 3), "scale": (), "b": (7,)}
    start = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    rounds = [
        {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(3)
    ]
    results = []
    for lent in (False, True):
        async with Cluster(params=start, codec=codec) as house, house.worker("a") as ps:
            params = await ps.init()
            update = ps.empty()
            for values in rounds:
                if lent:
                    filled(update, values)
                    got = await ps.sync(update, copy=False, out=params)
                    assert got is params
                    same(update, values)  # not even the codec may change it
                else:
                    params = await ps.sync(values)
            results.append({name: value.copy() for name, value in params.items()})
            same(house.server.params(), params)
    same(results[1], results[0])


@virtual
@pytest.mark.parametrize("codec", CODECS)
async def test_push_and_pull_may_lend_too(codec):
    async with Cluster(params=START, codec=codec) as house, house.worker("a") as ps:
        await ps.init()
        update, model = filled(ps.empty(), ONES), ps.empty()
        assert await ps.push(update, copy=False) == 1
        assert await ps.pull(out=model) is model
        same(model, house.server.params())


@virtual
async def test_an_update_is_lent_until_the_ticket_is_done_since_it_may_be_sent_again():
    up = Link(0.01)
    async with Cluster(params=START) as house, house.worker("a", up=up) as ps:
        params = await ps.init()
        update = filled(ps.empty(), ONES)
        up.cut_after = 100
        ticket = ps.sync(update, copy=False, out=params)
        await asyncio.sleep(0.02)
        update["w"][...] = 5  # too early
        await ticket
        assert ps.connections == 2
        np.testing.assert_array_equal(params["w"], START["w"] + 5)
        update["w"][...] = 7  # in time
        same(house.server.params(), params)


@virtual
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("codec", CODECS)
async def test_a_lent_update_that_is_not_finite_is_refused_and_the_next_one_is_as_if_it_had_not_been(
    codec, bad
):
    updates = [{name: value * k for name, value in ONES.items()} for k in (1, 2, 3)]
    finals = []
    for spoilt in (False, True):
        async with Cluster(params=START, codec=codec) as house, house.worker("a") as ps:
            params = await ps.init()
            update = ps.empty()
            for number, values in enumerate(updates):
                if spoilt and number == 1:
                    filled(update, values)["w"][1, 2] = bad
                    before = house.server.params()
                    for verb in (ps.sync, ps.push):
                        with pytest.raises(NotFinite, match=r"'w' .value 5 of 6|position 5|key 0"):
                            await verb(update, copy=False)
                    same(house.server.params(), before)
                params = await ps.sync(filled(update, values), copy=False, out=params)
            finals.append({name: value.copy() for name, value in params.items()})
            rests = [rest.copy() for rest in ps.residuals().values()]
            assert all(np.isfinite(rest).all() for rest in rests)
    same(finals[1], finals[0])


LAYOUT = "not what empty(), init(), pull() or sync() of this client returned"


def wrong_tensors(ps, good):
    """None of them is what this client made, with the sentence that says so."""
    other, renamed = ps.empty(), ps.empty()
    other["b"] = good["b"]
    renamed["c"] = renamed.pop("b")
    short, long = ps.empty(), ps.empty()
    del short["b"]
    long["c"] = long["b"]
    return {
        "copies": ({name: value.copy() for name, value in good.items()}, LAYOUT),
        "lists": ({name: value.tolist() for name, value in good.items()}, LAYOUT),
        "a plain dict": (dict(good), LAYOUT),
        "none": ({}, LAYOUT),
        "one is missing": (short, LAYOUT),
        "one too many": (long, LAYOUT),
        "another's array": (other, LAYOUT),
        "another name": (renamed, LAYOUT),
    }


@virtual
async def test_what_does_not_lie_as_empty_lays_it_out_is_refused_in_one_sentence():
    async with Cluster(params=START) as house, house.worker("a") as ps:
        params = await ps.init()
        update = filled(ps.empty(), ONES)
        for name, (tensors, sentence) in wrong_tensors(ps, update).items():
            for what, ask in (
                ("out", lambda t=tensors: ps.sync(update, out=t)),
                ("out", lambda t=tensors: ps.pull(out=t)),
                ("update", lambda t=tensors: ps.sync(t, copy=False)),
                ("update", lambda t=tensors: ps.push(t, copy=False)),
            ):
                with pytest.raises(ShapeMismatch) as caught:
                    ask()
                text = str(caught.value)
                assert sentence in text, name
                assert text.startswith(f"{what} is"), text
                assert "\n" not in text
        assert house.server.version == 0
        await ps.sync(update, copy=False, out=params)
        np.testing.assert_array_equal(params["w"], START["w"] + 1)


@virtual
async def test_an_out_that_cannot_be_written_or_is_the_update_itself_is_refused():
    async with Cluster(params=START) as house, house.worker("a") as ps:
        await ps.init()
        update, model = filled(ps.empty(), ONES), ps.empty()
        model["w"].base.flags.writeable = False
        for ask in (lambda: ps.pull(out=model), lambda: ps.sync(update, copy=False, out=model)):
            with pytest.raises(ShapeMismatch, match="read-only"):
                ask()
        model["w"].base.flags.writeable = True
        model["b"].flags.writeable = False
        model["b"].base[...] = -1
        for ask in (lambda: ps.pull(out=model), lambda: ps.sync(update, copy=False, out=model)):
            with pytest.raises(ShapeMismatch, match="out's tensor 'b' is read-only"):
                ask()
        assert (model["b"] == -1).all()
        await ps.push(model, copy=False)  # what is only read may be
        # The model would land in what may have to be sent again.
        with pytest.raises(ShapeMismatch, match="update and out"):
            ps.sync(update, copy=False, out=update)
        assert await ps.sync(update, out=update) is update  # a copy is sent
        assert house.server.version == 2


@virtual
@pytest.mark.parametrize("dtype", ["float64", "float16"])
async def test_tensors_of_another_dtype_are_converted_and_cannot_be_lent(dtype):
    start = {"w": np.ones(3, np.float32), "x": np.ones(2, dtype)}
    async with Cluster(params=start) as house, house.worker("a") as ps:
        params = await ps.init()
        with pytest.raises(ShapeMismatch, match=f"'x' in {dtype}, which is converted"):
            ps.empty()
        for ask in (lambda: ps.sync(params, copy=False), lambda: ps.sync(params, out=params)):
            with pytest.raises(ShapeMismatch, match=f"'x' in {dtype}, which is converted"):
                ask()
        params = await ps.sync(params)
        assert params["x"].dtype == dtype
        same(params, house.server.params())


@virtual
@pytest.mark.parametrize(
    "start", [{}, {"none": np.zeros((0, 3), np.float32)}], ids=["no tensor", "no value"]
)
async def test_a_model_of_nothing_is_lent_as_well(start):
    async with Cluster(params=start) as house, house.worker("a") as ps:
        params = await ps.init()
        for version in (1, 2):
            params = await ps.sync(ps.empty(), copy=False, out=params)
            same(params, start)
            assert house.server.version == version
        assert await ps.push(ps.empty(), copy=False) == 3


@virtual
async def test_nothing_is_lent_before_there_is_a_table():
    async with Cluster(params=START) as house, house.worker("a") as ps:
        with pytest.raises(LocalProtocolError, match="call init first"):
            ps.empty()


@virtual
async def test_a_result_that_is_kept_is_never_written_again_and_others_are():
    async with Cluster(params=START) as house, house.worker("a") as ps:
        await ps.init()
        kept, copies, seen = [], [], []
        for number in range(40):
            params = await ps.sync(ONES)
            seen.append(base(params))
            if number % 10 == 3:
                kept.append(params["b"])
                copies.append(params["b"].copy())
            del params
        for array, values in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(array, values)
        # The update's and the model's memory in turn, besides what is kept.
        assert len(set(seen)) <= 2 + len(kept)


@virtual
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("large", [False, True], ids=["on the loop", "encoded in a thread"])
@pytest.mark.parametrize("verb", ["push", "sync", "pull"])
async def test_between_two_requests_nothing_holds_on_to_a_vector(codec, large, verb):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    start = {"w": np.ones((600, 500) if large else (6, 5), np.float32)}
    async with Cluster(params=start, codec=codec) as house, house.worker("a") as ps:
        await ps.init()
        taken, take = [], ps._spares.take

        def noted():
            vector = take()
            taken.append(weakref.ref(vector))
            return vector

        ps._spares = SimpleNamespace(take=noted)
        await (ps.pull() if verb == "pull" else getattr(ps, verb)(start))
        assert len(taken) == (2 if verb == "sync" else 1)
        # The thread that encoded has let go of its work once it does some more.
        await asyncio.to_thread(int)
        assert all(vector() is None for vector in taken)


async def test_lent_memory_is_used_again_over_lanes_and_two_lives_of_a_client():
    n = 700_000
    start = {"w": np.zeros(n, np.float32)}
    async with serve(params=start) as server:
        client = connect(server.url, name="a")
        version = 0
        for _ in range(2):
            async with client as ps:
                params = await ps.init()
                update, seen = filled(ps.empty(), {"w": 1}), set()
                for _ in range(3):
                    version += 1
                    params = await ps.sync(update, copy=False, out=params)
                    np.testing.assert_array_equal(params["w"], float(version))
                for _ in range(6):
                    version += 1
                    other = await ps.sync(start | {"w": update["w"] * 1})
                    seen.add(base(other))
                    np.testing.assert_array_equal(other["w"], float(version))
                    del other
                # An update's memory and a model's, which every round finds free again: what a lane has moved it
                # does not hold on to while its thread waits for the interpreter.
                assert len(seen) <= 2
        assert server.status()["counters"]["buckets_drafted"] == version
