"""What a server tells about itself: enough for people, and never more than a message holds."""

import msgspec
import numpy as np
import pytest

from aiops.server.members import Members
from aiops.server.status import MAX_NAME, REPORT_BYTES, report
from aiops.wire.frame import CONTROL_BYTES, Kind
from aiops.wire.message import Report, Status, decode, encode
from tests.server.kit import ONES, cluster

pytestmark = pytest.mark.virtual


def crowd(n, name):
    members = Members(lease_s=10.0)
    for number in range(n):
        members.join(f"id{number}", 1, name, now=0.0)
    return members


@pytest.mark.parametrize("name", ["w", "\U0001f600" * 4096, '"' * 4096, "\x00" * 4096])
@pytest.mark.parametrize("n", [0, 1, 5000])
async def test_a_report_fits_its_message_whatever_workers_call_themselves(n, name):
    async with cluster() as house:
        house.server.service.members = crowd(n, name)
        text = report(house.server.service)
        assert len(text.encode()) <= REPORT_BYTES < CONTROL_BYTES
        assert decode(Kind.REPORT, encode(Kind.REPORT, Report(text))).json == text
        told = msgspec.json.decode(text)
        assert told["n_members"] == n
        assert len(told["members"]) >= min(n, 12)
        assert all(member["name"] == name[:MAX_NAME] for member in told["members"])


async def test_a_crowd_that_is_waited_for_is_a_sentence(hand):
    async with cluster(min_workers=300, sync="bulk") as house:
        workers = [await hand(house) for _ in range(300)]
        for worker in workers:
            await worker.send_push(1, ONES)
        for worker in workers:
            await worker.events.get()
        await workers[7].send_push(2, ONES, base=1)
        waiting = msgspec.json.decode((await workers[0].ask(Kind.STATUS, Status())).body.json)[
            "waiting"
        ]
        assert waiting.startswith("waiting for worker 0, worker 1, ")
        assert waiting.endswith(" and 99 more")
        assert "worker 7," not in waiting
        np.testing.assert_allclose(house.server.params()["w"], 1.0, rtol=1e-5)
