"""The model in answer to a request: what it says, and who gets none."""

import numpy as np
import pytest

from aiops.errors import NotMember, Refused, StalePush, UnknownKey
from aiops.sim.cluster import Cluster
from aiops.wire.frame import Kind
from tests.server.kit import ONES, cluster, settle

pytestmark = pytest.mark.virtual


async def test_a_model_tells_its_version_its_parts_and_what_became_of_the_push(hand):
    async with cluster(min_workers=2, bucket_bytes=8) as house:
        a, b = await hand(house), await hand(house)
        for each in (a, b):
            await each.send_push(1, ONES[:2], ONES[2:], want=True)
        for each in (a, b):
            body = (await each.events.get()).body
            assert (body.version, body.staleness, body.n_merged, body.parts) == (1, 0, 2, 2)
        body = (await a.pull()).body
        assert (body.version, body.staleness, body.n_merged, body.parts) == (1, 0, 0, 2)


async def test_nobody_is_sent_a_model_before_there_are_parameters(hand):
    async with Cluster() as house:
        event = await (await hand(house)).pull()
        assert (event.kind, event.body.code) == (Kind.REFUSE, UnknownKey.code)


async def test_who_has_left_is_sent_none(hand):
    async with cluster() as house:
        a = await hand(house)
        a.send_leave()
        a.send_pull()
        await settle()
        event = await a.events.get()
        assert (event.kind, event.body.code) == (Kind.REFUSE, NotMember.code)


async def test_a_model_tells_by_how_many_steps_its_version_has_moved(hand):
    async with cluster(min_workers=2, weights="by_steps", server_lr=0.5) as house:
        a, b = await hand(house), await hand(house)
        await a.send_push(1, ONES, want=True, n_steps=2)
        await b.send_push(1, 6 * ONES, want=True, n_steps=6)
        for each in (a, b):
            # (2 + 6) / 2 steps in the mean, half of which are taken: the change of 1.5 is what one step makes, 0.75,
            # the mean of 1 / 2 and 6 / 6, times that.
            assert (await each.events.get()).body.moved_steps == 2.0
        assert house.server.params()["w"].tolist() == [1.5] * 4
        assert (await a.pull()).body.moved_steps == 0.0


PARTS = {"work": "fragments:2,4,1", "merge": "mix", "bucket_bytes": 4, "sync": "bulk:0"}
ONE = np.ones(1, np.float32)


def of(key, value=ONE):
    return {"key": key, "data": value}


async def test_a_push_of_a_fragment_changes_that_and_is_answered_with_it(hand):
    async with cluster(min_workers=2, weights="uniform", **PARTS) as house:
        a, b = await hand(house), await hand(house)
        for each in (a, b):
            await each.send_push(1, of(0), of(1, 3 * ONE), fragment=0, want=True)
        for each in (a, b):
            event = await each.events.get()
            assert (event.body.version, event.body.parts) == (1, 2)
            assert [part.header.key for part in event.parts] == [0, 1]
        await a.send_push(2, of(2), of(3), fragment=1, base=1, want=True)
        await b.send_push(2, of(2), of(3, 5 * ONE), fragment=1, base=1, want=True)
        parts = (await a.events.get()).parts
        assert [(p.header.key, p.header.version, bytes(p.payload)) for p in parts] == [
            *[(2, 2, ONE.tobytes()), (3, 2, (3 * ONE).tobytes())]
        ]
        assert house.server.params()["w"].tolist() == [1.0, 3.0, 1.0, 3.0]
        assert (await a.pull()).body.parts == 4


@pytest.mark.parametrize(
    ("parts", "options", "code", "told"),
    [
        ((of(2), of(3)), {"fragment": 1}, Refused, "push is of fragment 1 with 2 keys, fragment 0"),
        ((of(0),), {"fragment": 0}, Refused, "fragment 0 with keys 0 to 1 is due"),
        ((of(0), of(1), of(2)), {"fragment": 0}, Refused, "push is of fragment 0 with 3 keys"),
        ((of(0), of(3)), {"fragment": 0}, Refused, "fragment 0 with keys 0 to 1 is due"),
        (
            (of(0), of(1)),
            {},
            Refused,
            "push is of the whole model, a round of this server takes one",
        ),
        ((of(0), of(1)), {"fragment": 0, "base": 3}, Refused, "starts from version 3, the server"),
    ],
)
async def test_a_push_of_another_fragment_is_refused(hand, parts, options, code, told):
    async with cluster(**PARTS) as house:
        a = await hand(house)
        event = await a.push(1, *parts, **options)
        assert (event.kind, event.body.code) == (Kind.REFUSE, code.code)
        assert told in event.body.message
        assert house.server.version == 0


async def test_a_newcomers_push_of_a_fragment_that_is_over_is_stale(hand):
    async with cluster(**PARTS) as house:
        a, late = await hand(house), await hand(house)
        await a.push(1, of(0), of(1), fragment=0)
        # Of a whole model a newcomer's first push may be late.
        event = await late.push(1, of(0), of(1), fragment=0)
        assert (event.body.code, event.body.args) == (StalePush.code, (1, 0))
        await a.leave()
        assert (await late.push(2, of(2), of(3), fragment=1, base=1)).body.version == 2


async def test_where_the_model_goes_whole_no_push_is_of_a_fragment(hand):
    async with cluster() as house:
        event = await (await hand(house)).push(1, ONES, fragment=0)
        assert "push is of fragment 0, there are none" in event.body.message
