"""The model in answer to a request: what it says, and who gets none."""

import pytest

from aiops.errors import NotMember, UnknownKey
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
