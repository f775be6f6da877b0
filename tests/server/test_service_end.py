"""How a server ends: told to, cancelled, or by a bug; its workers hear of it and nothing is left behind."""

import asyncio
import logging

import numpy as np
import pytest

from aiops.errors import AiopsError, UnknownKey
from aiops.policy.sync import bulk
from aiops.policy.weight import uniform
from aiops.policy.work import fixed
from aiops.server.service import GRACE_S
from aiops.transport.memory import Link
from aiops.wire.frame import Kind
from tests.server.kit import LEASE, MANY, ONES, cluster

pytestmark = pytest.mark.virtual


class Broken:
    """Policies that work until they are told to break."""

    def __init__(self, where):
        self.where = where
        self.broken = False
        self.max_staleness = None
        self.barrier = True
        self.overlap = False

    def check(self, here):
        if self.broken and here == self.where:
            raise ZeroDivisionError("a bug in a policy")

    def ready(self, view):
        self.check("ready")
        return bulk().ready(view)

    def may_proceed(self, worker, view):
        self.check("may_proceed")
        return True

    def plan(self, monitor):
        self.check("plan")
        return fixed(1).plan(monitor)

    def __call__(self, pushes):
        self.check("weights")
        return uniform()(pushes)

    def spec(self):
        return {"sync": self, "weights": self, "work": self}


@pytest.mark.parametrize("n", [4, 300_000], ids=["on the loop", "in a thread"])
@pytest.mark.parametrize("where", ["ready", "may_proceed", "plan", "weights"])
async def test_a_policy_that_raises_takes_the_server_down_loudly(where, n, caplog):
    caplog.set_level(logging.CRITICAL)
    policy = Broken(where)
    house = cluster(n, **policy.spec())
    await house.start()
    ones = {"w": np.ones(n, np.float32)}
    async with house.worker("a", give_up_s=1.0) as ps:
        await ps.init()
        await ps.sync(ones)
        policy.broken = True
        ticket = ps.sync(ones)
        with pytest.raises(ZeroDivisionError, match="a bug in a policy"):
            await house.server.wait()
        assert "server ends, this is a bug" in caplog.text
        # The workers are told, and nobody is let in any more.
        with pytest.raises(AiopsError):
            await ticket
        with pytest.raises(AiopsError, match="the server ended at version"):
            await house.server.version_after(99)
    with pytest.raises(ZeroDivisionError):
        await house.server.stop()


@pytest.mark.parametrize("how", ["lease", "leave", "join"])
async def test_a_policy_that_raises_when_somebody_comes_or_goes_does_too(hand, how):
    policy = Broken("plan")
    house = cluster(**policy.spec(), **LEASE)
    await house.start()
    first = await hand(house)
    policy.broken = True
    if how == "lease":
        first.connection.abort()
    elif how == "leave":
        await first.leave()
    else:
        joining = await hand(house, greet=False)
        assert await joining.hello("b") is None
    with pytest.raises(ZeroDivisionError):
        await house.server.wait()
    with pytest.raises(ZeroDivisionError):
        await house.server.stop()


async def test_a_failed_server_does_not_wait_for_those_who_do_not_read(hand):
    policy = Broken("ready")
    n = 50_000
    house = cluster(n, **policy.spec())
    await house.start()
    deaf = await hand(house, down=Link(rate_bytes_s=10.0))
    deaf.send_pull()
    await asyncio.sleep(0.1)
    policy.broken = True
    await (await hand(house)).send_push(1)
    start = asyncio.get_running_loop().time()
    with pytest.raises(ZeroDivisionError):
        await house.server.wait()
    assert asyncio.get_running_loop().time() - start <= GRACE_S + 0.1
    with pytest.raises(ZeroDivisionError):
        await house.server.stop()


async def test_stopping_says_goodbye_and_may_be_repeated(hand):
    house = cluster()
    await house.start()
    worker, stranger = await hand(house), await hand(house, greet=False)
    await house.server.stop("maintenance")
    answer = await worker.events.get()
    assert (answer.kind, answer.body.reason) == (Kind.BYE, "maintenance")
    await worker.lost
    await stranger.lost
    await house.server.stop()
    with pytest.raises(AiopsError, match="the server ended at version 0"):
        await house.server.version_after(0)
    with pytest.raises(UnknownKey, match="its parameters are gone"):
        house.server.params()


async def test_stopping_takes_half_a_second_with_those_who_do_not_read(hand):
    n = 50_000
    house = cluster(n)
    await house.start()
    for _ in range(3):
        deaf = await hand(house, down=Link(rate_bytes_s=10.0))
        deaf.send_pull()
    await asyncio.sleep(0.1)
    start = asyncio.get_running_loop().time()
    await house.server.stop()
    assert asyncio.get_running_loop().time() - start == pytest.approx(GRACE_S, abs=0.1)


async def test_stopping_while_pushes_wait_gives_everything_back(hand):
    house = cluster(min_workers=9)
    await house.start()
    for _ in range(3):
        await (await hand(house)).send_push(1, ONES)
    half = await hand(house)
    (head, payload), *_ = half.tensors(1, [ONES])
    await half.send_push(1, ONES, {"data": ONES, "key": 1}, split=True)
    half.connection.post(head + bytes(payload[0][:3]))
    await asyncio.sleep(0.1)
    await house.server.stop()
    assert house.server.service.pool.outstanding == 0


async def test_a_cancelled_server_ends_cleanly_and_its_workers_notice(hand):
    house = cluster(min_workers=2)
    await house.start()
    worker, other = await hand(house), await hand(house, greet=False)
    deaf = await hand(house, down=Link(rate_bytes_s=10.0))
    deaf.send_pull()
    await worker.send_push(1, ONES)
    await asyncio.sleep(0.1)
    start = asyncio.get_running_loop().time()
    house.server._main.cancel()
    for each in (worker, other, deaf):
        await each.lost
    assert asyncio.get_running_loop().time() - start < 0.1
    with pytest.raises(asyncio.CancelledError):
        await house.server._main
    await house.server._listener.close()
    assert house.server.service.pool.outstanding == 0


async def test_a_server_that_is_cancelled_again_and_again_lets_go_of_everything(hand):
    house = cluster(min_workers=9)
    await house.start()
    for _ in range(3):
        worker = await hand(house)
        await worker.send_push(1, ONES)
    waiting = asyncio.ensure_future(house.server.version_after(0))
    await asyncio.sleep(0.1)
    while not house.server._main.done():
        house.server._main.cancel()
        await asyncio.sleep(0)
    with pytest.raises(AiopsError, match="the server ended at version 0"):
        await waiting
    await worker.lost
    await house.server._listener.close()
    assert house.server.service.pool.outstanding == 0


async def test_a_waiting_caller_that_is_cancelled_leaves_the_server_running(hand):
    async with cluster() as house:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await house.server.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await house.server.version_after(0)
        assert (await (await hand(house)).push(1, ONES)).body.version == 1
        assert await house.server.version_after(0) == 1


async def test_who_waits_for_a_version_hears_of_every_one(hand):
    async with cluster() as house:
        seen = []

        async def watch():
            while True:
                seen.append(await house.server.version_after(seen[-1] if seen else 0))

        watching = [asyncio.ensure_future(watch()), asyncio.ensure_future(watch())]
        worker = await hand(house)
        for base in range(3):
            await worker.push(base + 1, ONES, base=base)
        await asyncio.sleep(1)
        assert seen == [1, 1, 2, 2, 3, 3] or sorted(set(seen)) == [1, 2, 3]
        for task in watching:
            task.cancel()


async def test_a_bug_in_a_shards_thread_takes_the_server_down_with_its_own_exception(
    hand, monkeypatch
):
    def run(job):
        raise ZeroDivisionError("a bug in a kernel")

    monkeypatch.setattr("aiops.server.shard.MergeJob.run", run)
    for n in (4, MANY):
        house = cluster(n, shards=2)
        await house.start()
        await (await hand(house)).send_push(1)
        with pytest.raises(ZeroDivisionError, match="a bug in a kernel"):
            await house.server.wait()
        with pytest.raises(ZeroDivisionError):
            await house.server.stop()
        assert house.server.service.pool.outstanding == 0


async def test_a_bug_that_shows_when_a_connection_ends_is_not_swallowed(hand, monkeypatch):
    def lost(seeding, peer):
        raise ZeroDivisionError("a bug in seeding")

    house = cluster()
    await house.start()
    worker = await hand(house)
    monkeypatch.setattr("aiops.server.seeding.Seeding.lost", lost)
    worker.connection.abort()
    with pytest.raises(ZeroDivisionError, match="a bug in seeding"):
        await house.server.wait()
    with pytest.raises(ZeroDivisionError):
        await house.server.stop()
