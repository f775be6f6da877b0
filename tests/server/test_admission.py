"""The gate, shown frames that our client would never send: refused, nothing changed, and the connection goes on."""

import numpy as np
import pytest

from aiops.errors import (
    NotFinite,
    Refused,
    ShapeMismatch,
    StalePush,
    UnknownKey,
    ZeroWeight,
)
from aiops.sim.cluster import Cluster
from aiops.types import DTYPE_IDS
from aiops.wire.frame import Kind

pytestmark = pytest.mark.virtual

START = {"w": np.arange(20, dtype=np.float32), "b": np.ones(4, np.float32)}
GOOD = np.ones(16, np.float32), np.ones(8, np.float32)


def cluster(**spec):
    """One shard with two buckets: values 0..16 of w, and the rest of w with b."""
    return Cluster(params=START, bucket_bytes=64, **spec)


def spoilt(value, *, at):
    values = GOOD[1].copy()
    values[at] = value
    return GOOD[0], values


def part(data, **header):
    return {"data": data, **header}


def pairs(index, value):
    """Lay out a topk payload."""
    return np.concatenate(
        [np.array(index, np.uint32).view(np.uint8), np.array(value, np.float32).view(np.uint8)]
    )


TOPK = {"key": 1, "codec": 4}

REFUSED = [
    pytest.param(
        spoilt(np.nan, at=3), {}, NotFinite, "tensor 'w' (value 19 of 20)", id="NaN in a tensor"
    ),
    pytest.param(
        spoilt(np.inf, at=7), {}, NotFinite, "tensor 'b' (value 3 of 4)", id="infinity in another"
    ),
    pytest.param(
        [part(pairs([1, 5], [1.0, -np.inf]), **TOPK)],
        {},
        NotFinite,
        "tensor 'b' (value 1 of 4)",
        id="infinity in a sparse payload",
    ),
    pytest.param(
        [part(np.array([0x7C00] * 8, np.uint16), key=1, codec=2, dtype=DTYPE_IDS["float16"])],
        {},
        NotFinite,
        "tensor 'w' (value 16 of 20)",
        id="infinity in half precision",
    ),
    pytest.param((GOOD[0], GOOD[1][:7]), {}, ShapeMismatch, "key 1", id="too few values"),
    pytest.param((GOOD[0], np.ones(9, np.float32)), {}, ShapeMismatch, "key 1", id="too many"),
    pytest.param(
        (GOOD[0], np.ones(1000, np.float32)), {}, ShapeMismatch, "4000 bytes", id="far too many"
    ),
    pytest.param((GOOD[0], b"abc"), {}, ShapeMismatch, "3 bytes", id="no whole values"),
    pytest.param((GOOD[0], b""), {}, ShapeMismatch, "key 1", id="no values at all"),
    pytest.param(
        [part(GOOD[0], dtype=DTYPE_IDS["float64"])], {}, ShapeMismatch, "dtype 4", id="wrong dtype"
    ),
    pytest.param([part(GOOD[0], codec=77)], {}, ShapeMismatch, "codec 77", id="unknown codec"),
    pytest.param([part(GOOD[0], key=2)], {}, UnknownKey, "key 2", id="unknown key"),
    pytest.param([part(GOOD[0], key=2**32 - 1)], {}, UnknownKey, "4294967295", id="largest key"),
    pytest.param(
        [part(pairs([8], [1.0]), **TOPK)], {}, ShapeMismatch, "index", id="an index outside"
    ),
    pytest.param(
        [part(pairs([2**32 - 1], [1.0]), **TOPK)], {}, ShapeMismatch, "index", id="largest index"
    ),
    pytest.param(GOOD, {"n_samples": 0}, ZeroWeight, "1 pushes", id="no weight"),
    pytest.param(GOOD, {"base": 1}, Refused, "the server is at 0", id="a base from the future"),
    pytest.param(GOOD, {"base": 2**63 - 1}, Refused, "the server is at 0", id="the largest base"),
]


@pytest.mark.parametrize(("parts", "options", "error", "told"), REFUSED)
async def test_a_bad_push_is_refused_and_the_next_one_is_merged(hand, parts, options, error, told):
    async with cluster() as house:
        worker = await hand(house)
        answer = await worker.push(1, *map(as_array, parts), **options)
        assert answer.kind is Kind.REFUSE
        assert answer.body.code == error.code
        assert told in answer.body.message
        assert house.server.version == 0
        assert_params(house, add=0)
        answer = await worker.push(2, *GOOD)
        assert answer.kind is Kind.ACK
        assert answer.body.version == house.server.version == 1
        assert_params(house, add=1)


def as_array(given):
    return np.frombuffer(given, np.uint8) if isinstance(given, bytes) else given


def assert_params(house, *, add):
    params = house.server.params()
    np.testing.assert_array_equal(params["w"], START["w"] + add)
    np.testing.assert_array_equal(params["b"], START["b"] + add)


async def test_a_push_from_a_base_too_old_is_refused_with_its_numbers(hand):
    async with cluster(sync="bulk:0", work="fixed:1") as house:
        worker = await hand(house)
        for base in range(3):
            assert (await worker.push(base + 1, *GOOD, base=base)).kind is Kind.ACK
        answer = await worker.push(4, *GOOD, base=1)
        assert answer.body.code == StalePush.code
        assert answer.body.args == (2, 0)
        assert house.server.version == 3
        assert (await worker.push(5, *GOOD, base=3)).body.version == 4


async def test_a_push_before_there_are_parameters_is_refused(hand):
    async with Cluster() as house:
        worker = await hand(house)
        answer = await worker.push(1, *GOOD)
        assert answer.body.code == UnknownKey.code
        assert "call init first" in answer.body.message
        assert (await worker.pull()).body.code == UnknownKey.code
        assert house.server.status()["waiting"] == "waiting for the first worker's parameters"


async def test_a_push_of_some_keys_leaves_the_others_alone(hand):
    async with cluster() as house:
        worker = await hand(house)
        assert (await worker.push(1, part(GOOD[1], key=1))).kind is Kind.ACK
        params = house.server.params()
        np.testing.assert_array_equal(params["w"][:16], START["w"][:16])
        np.testing.assert_array_equal(params["b"], START["b"] + 1)


async def test_an_empty_push_closes_a_round_and_changes_nothing(hand):
    async with cluster() as house:
        worker = await hand(house)
        assert (await worker.push(1)).body.version == 1
        assert_params(house, add=0)


async def test_a_round_of_workers_without_samples_is_refused_to_all(hand):
    async with cluster(min_workers=2, weights="by_samples") as house:
        workers = [await hand(house) for _ in range(2)]
        for worker in workers:
            await worker.send_push(1, *GOOD, n_samples=0)
        for worker in workers:
            assert (await worker.events.get()).body.code == ZeroWeight.code
        assert house.server.version == 0
        for worker in workers:
            await worker.send_push(2, *GOOD)
        for worker in workers:
            assert (await worker.events.get()).body.version == 1


async def test_a_merge_that_overflows_is_refused_to_the_whole_round(hand):
    huge = tuple(np.full(part.shape, 3e38, np.float32) for part in GOOD)
    async with cluster(min_workers=2, weights="uniform", server_lr=4.0) as house:
        workers = [await hand(house) for _ in range(2)]
        for worker in workers:
            await worker.send_push(1, *huge)
        for worker in workers:
            answer = await worker.events.get()
            assert answer.body.code == NotFinite.code
            assert "tensor 'w' (value 0 of 20)" in answer.body.message
        assert house.server.version == 0
        assert_params(house, add=0)
        for worker in workers:
            await worker.send_push(2, *(part / 4 for part in GOOD))
        for worker in workers:
            assert (await worker.events.get()).body.version == 1
        assert_params(house, add=1)


@pytest.mark.parametrize("times", [np.nan, np.inf, -np.inf, -1.0, 1e300])
async def test_nonsense_measurements_do_no_harm(hand, times):
    async with cluster() as house:
        worker = await hand(house)
        answer = await worker.push(1, *GOOD, loss=times, step_s=times, sync_s=times)
        assert answer.kind is Kind.ACK
        assert (await worker.push(2, *GOOD, base=1, n_steps=2**63 - 1)).kind is Kind.ACK


async def test_weights_by_data_refuse_a_worker_that_does_not_say_how_much_it_has():
    start = {"w": np.zeros(1, np.float32)}
    async with (
        Cluster(
            params=start, min_workers=2, sync="bulk:0", work="fixed:1", weights="by_data"
        ) as house,
        house.worker("a") as a,
        house.worker("b") as b,
    ):
        a.n_data, b.n_data = 300, 0
        await a.init(start)
        await b.init(start)
        first = a.push({"w": np.ones(1, np.float32)})
        with pytest.raises(Refused, match=r"worker 1 says 0: give n_data to connect"):
            await b.push({"w": np.ones(1, np.float32)})
        b.n_data = 100
        await b.push({"w": -np.ones(1, np.float32)})
        await first
        assert (await a.pull())["w"] == pytest.approx([0.75 - 0.25])
