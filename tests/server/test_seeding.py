"""The first worker seeds, the others receive; whoever goes away before it is done is replaced."""

import numpy as np
import pytest

from aiops.errors import Busy, NotFinite, Refused, ShapeMismatch
from aiops.server.seeding import MAX_WAITING
from aiops.sim.cluster import Cluster
from aiops.wire.frame import Kind
from aiops.wire.message import Seed
from tests.server.kit import settle

pytestmark = pytest.mark.virtual

SPECS = ("w", (2, 3), "float32"), ("b", (2,), "float32")
FLAT = np.arange(8, dtype=np.float32)


async def seeder(hand, house, name=None):
    """Return a worker that is asked for the first parameters, and its request."""
    worker = await hand(house, name)
    answer = await worker.init(*SPECS)
    assert answer.kind is Kind.TABLE
    assert answer.body.seed
    return worker, answer.request


async def received(worker):
    """Return the model that follows a table."""
    table, model = await worker.events.get(), await worker.events.get()
    assert (table.kind, table.body.seed, model.kind) == (Kind.TABLE, False, Kind.MODEL)
    return np.concatenate([np.frombuffer(part.payload, np.float32) for part in model.parts])


async def test_the_first_worker_seeds_and_all_others_receive_its_parameters(hand):
    async with Cluster() as house:
        first, request = await seeder(hand, house)
        waiting, watching = [await hand(house) for _ in range(2)]
        for worker, specs in ((waiting, SPECS), (watching, ())):
            await worker.send_init(*specs)
            assert worker.events.empty()
        assert (await first.seed(request, FLAT)).kind is Kind.ACK
        for worker in (waiting, watching):
            np.testing.assert_array_equal(await received(worker), FLAT)
        late = await hand(house)
        table = await late.init(*SPECS)
        assert not table.body.seed
        assert (await late.events.get()).kind is Kind.MODEL
        np.testing.assert_array_equal(house.server.params()["w"], FLAT[:6].reshape(2, 3))


@pytest.mark.parametrize("way", ["abort", "leave"])
async def test_a_seeder_that_goes_away_is_replaced_by_the_next_in_line(hand, way):
    async with Cluster() as house:
        first, _ = await seeder(hand, house)
        watching, second, third = [await hand(house) for _ in range(3)]
        for worker, specs in ((watching, ()), (second, SPECS), (third, SPECS)):
            await worker.send_init(*specs)
        if way == "abort":
            first.connection.abort()
        else:
            await first.leave()
        table = await second.events.get()
        assert table.body.seed
        assert (await second.seed(table.request, FLAT + 1)).kind is Kind.ACK
        for worker in (watching, third):
            np.testing.assert_array_equal(await received(worker), FLAT + 1)


async def test_a_seeder_that_goes_away_with_nobody_in_line_takes_its_table_along(hand):
    async with Cluster() as house:
        first, _ = await seeder(hand, house)
        first.connection.abort()
        await first.lost
        assert house.server.service.table is None
        other = await hand(house)
        table = await other.init(("v", (3,), "float32"))
        assert table.body.seed
        assert (await other.seed(table.request, FLAT[:3])).kind is Kind.ACK


async def test_a_seeder_cut_in_the_middle_of_its_seed_leaves_no_trace(hand):
    async with Cluster(bucket_bytes=16) as house:
        first, request = await seeder(hand, house)
        second = await hand(house)
        await second.send_init(*SPECS)
        head = first.session.send(Kind.SEED, Seed(2), request=request)
        (one, _) = first.tensors(request, [FLAT[:4], FLAT[4:]])
        await first.connection.send([(head, ()), one])
        await settle()
        first.connection.abort()
        table = await second.events.get()
        assert table.body.seed
        assert (await second.seed(table.request, FLAT[:4], FLAT[4:])).kind is Kind.ACK
        assert house.server.version == 0


@pytest.mark.parametrize(
    ("parts", "error", "told"),
    [
        pytest.param(
            [np.array([0, 1, 2, np.nan, 4, 5, 6, 7], np.float32)],
            NotFinite,
            "tensor 'w' (value 3 of 6)",
            id="NaN",
        ),
        pytest.param(
            [np.array([0, 1, 2, 3, 4, 5, 6, np.inf], np.float32)],
            NotFinite,
            "tensor 'b' (value 1 of 2)",
            id="infinity",
        ),
        pytest.param([FLAT[:7]], ShapeMismatch, "28 bytes", id="too short"),
        pytest.param([np.zeros(999, np.float32)], ShapeMismatch, "seed of key 0", id="too long"),
        pytest.param([{"data": FLAT, "codec": 2}], ShapeMismatch, "codec 2", id="coded"),
        pytest.param([{"data": FLAT, "key": 1}], ShapeMismatch, "1 parts", id="wrong key"),
        pytest.param([], ShapeMismatch, "0 parts", id="nothing"),
        pytest.param([FLAT, {"data": FLAT, "key": 1}], ShapeMismatch, "2 parts", id="too many"),
    ],
)
async def test_a_bad_seed_is_refused_and_the_next_in_line_takes_over(hand, parts, error, told):
    async with Cluster() as house:
        first, request = await seeder(hand, house)
        second = await hand(house)
        await second.send_init(*SPECS)
        answer = await first.seed(request, *parts)
        assert answer.kind is Kind.REFUSE
        assert answer.body.code == error.code
        assert told in answer.body.message
        table = await second.events.get()
        assert table.body.seed
        assert (await second.seed(table.request, FLAT)).kind is Kind.ACK
        # The one that was refused is welcome to receive.
        table = await first.init(*SPECS)
        assert not table.body.seed


async def test_who_was_not_asked_cannot_seed(hand):
    async with Cluster() as house:
        first, request = await seeder(hand, house)
        other = await hand(house)
        answer = await other.seed(other.session.next_request(), FLAT)
        assert answer.body.code == Refused.code
        assert "nobody asked" in answer.body.message
        assert (await first.seed(request, FLAT)).kind is Kind.ACK
        answer = await first.seed(first.session.next_request(), FLAT + 1)
        assert "nobody asked" in answer.body.message
        np.testing.assert_array_equal(house.server.params()["b"], FLAT[6:])


@pytest.mark.parametrize(
    ("specs", "told"),
    [
        pytest.param([("w", (3,), "float32")], "'w' has shape (3,)", id="shape"),
        pytest.param([("v", (2, 3), "float32")], "'v' stands where 'w'", id="name"),
        pytest.param([("w", (2, 3), "float64"), SPECS[1]], "'w' is float64", id="dtype"),
        pytest.param(SPECS[:1], "1 tensors", id="fewer"),
    ],
)
async def test_who_trains_another_model_is_refused_and_may_try_again(hand, specs, told):
    async with Cluster() as house:
        first, request = await seeder(hand, house)
        await first.seed(request, FLAT)
        other = await hand(house)
        answer = await other.init(*specs)
        assert answer.body.code == ShapeMismatch.code
        assert told in answer.body.message
        assert (await other.init(*SPECS)).kind is Kind.TABLE


@pytest.mark.parametrize("shape", [(10**18,), (2**60, 2**60)])
async def test_a_model_that_nobody_can_hold_is_refused_before_memory_is_taken(hand, shape):
    async with Cluster() as house:
        worker = await hand(house)
        answer = await worker.init(("w", shape, "float32"))
        assert answer.body.code == ShapeMismatch.code
        assert house.server.service.pool.outstanding == 0
        worker, request = await seeder(hand, house)
        assert (await worker.seed(request, FLAT)).kind is Kind.ACK


async def test_one_connection_may_not_fill_the_line(hand):
    async with Cluster() as house:
        await seeder(hand, house)
        flood = await hand(house)
        for _ in range(MAX_WAITING):
            await flood.send_init(*SPECS)
        assert flood.events.empty()
        answer = await flood.init(*SPECS)
        assert answer.body.code == Busy.code
        other = await hand(house)
        await other.send_init(*SPECS)
        assert other.events.empty()


async def test_who_left_while_it_waited_gets_nothing_and_does_no_harm(hand):
    async with Cluster() as house:
        first, request = await seeder(hand, house)
        other = await hand(house)
        await other.send_init(*SPECS)
        await other.leave()
        assert (await first.seed(request, FLAT)).kind is Kind.ACK
        assert (await first.pull()).kind is Kind.MODEL
