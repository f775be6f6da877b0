"""The client against a real server inside the loop: connecting, losing the server, leaving."""

import asyncio

import pytest

from aiops.errors import (
    BadHandshake,
    Busy,
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    Refused,
    Rejected,
    UnknownKey,
)
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from tests.worker.kit import ONES, START, same

pytestmark = pytest.mark.virtual


async def test_a_wrong_token_is_rejected_at_once_and_for_good():
    async with Cluster(params=START, token="geheim") as cluster:
        for token in (None, "falsch"):
            with pytest.raises(Rejected, match="token"):
                async with cluster.worker("a", token=token):
                    pass
        assert len(cluster.connections["a"]) == 2
        assert asyncio.get_running_loop().time() < 0.1
        async with cluster.worker("a", token="geheim") as ps:
            await ps.init()


async def test_a_server_with_all_its_members_says_busy_until_one_leaves():
    async with Cluster(params=START, max_members=1) as cluster:
        async with cluster.worker("a") as first:
            with pytest.raises(Busy, match="1 members, that is its limit"):
                async with cluster.worker("b", connect_timeout_s=3.0):
                    pass
            assert asyncio.get_running_loop().time() <= 3.0
            entering = asyncio.ensure_future(cluster.worker("b").__aenter__())
            await asyncio.sleep(1)
            await first.leave()
        await (await entering).leave()


async def test_a_codec_that_this_library_does_not_know_is_an_error_and_no_hanging_member():
    async with Cluster(params=START) as cluster:
        ps = cluster.worker("a")

        def unknown(name):
            raise LocalProtocolError(f"codec {name!r} is unknown")

        ps._make_codec = unknown
        with pytest.raises(LocalProtocolError, match="codec 'dense' is unknown"):
            async with ps:
                pass
        assert cluster.server.status()["n_members"] == 0


async def test_a_cancelled_connect_leaves_nothing_behind():
    async with Cluster(params=START) as cluster:
        await cluster.server._listener.close()
        before = asyncio.all_tasks()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), cluster.worker("a"):
                pass
        assert asyncio.all_tasks() == before


async def test_tickets_wait_while_the_server_is_stopped_and_started_again():
    cluster = Cluster(params=START, min_workers=2, weights="uniform")
    await cluster.start()
    async with cluster.worker("a") as a, cluster.worker("b") as b:
        await a.init()
        await b.init()
        tickets = [a.sync(ONES), a.pull(), b.pull()]
        await asyncio.sleep(1)
        await cluster.server.stop()
        tickets.append(b.sync(ONES))
        await asyncio.sleep(30)
        assert not tickets[0].done()
        await cluster.start()
        await asyncio.gather(*tickets)
        same(cluster.server.params(), {name: value + 1 for name, value in START.items()})
        assert (cluster.server.version, a.connections, b.connections) == (1, 2, 2)
    await cluster.server.stop()


async def test_a_server_that_lost_its_parameters_says_so_and_takes_them_again():
    cluster = Cluster()
    await cluster.start()
    async with cluster.worker("a") as ps:
        params = await ps.init(START)
        await ps.sync(ONES)
        await cluster.server.stop()
        await cluster.start()
        with pytest.raises(UnknownKey, match="call init first"):
            await ps.sync(ONES)
        same(await ps.init(params), START)
        assert ps.version == 0
        await ps.sync(ONES)
    await cluster.server.stop()


async def test_a_base_of_an_earlier_server_is_refused_and_not_waited_for():
    cluster = Cluster(params=START)
    await cluster.start()
    async with cluster.worker("a") as ps:
        await ps.init()
        await ps.sync(ONES)
        await cluster.server.stop()
        await cluster.start()
        with pytest.raises(Refused, match="push starts from version 1, the server is at 0"):
            await ps.sync(ONES)
        await ps.init()
        await ps.sync(ONES)
    await cluster.server.stop()


async def test_a_server_that_stays_away_fails_every_ticket_in_the_end():
    cluster = Cluster(params=START)
    await cluster.start()
    async with cluster.worker("a", give_up_s=60.0) as ps:
        await ps.init()
        await cluster.server.stop()
        start = asyncio.get_running_loop().time()
        for ticket in (ps.sync(ONES), ps.pull(), ps.push(ONES)):
            with pytest.raises(ConnectFailed, match="cannot connect to server"):
                await ticket
        assert 59 < asyncio.get_running_loop().time() - start <= 61
        with pytest.raises(ConnectFailed):
            await ps.status()


async def test_a_worker_replaced_by_another_life_is_told_so_and_does_not_fight():
    async with Cluster(params=START) as cluster, cluster.worker("a", incarnation=1) as old:
        await old.init()
        async with cluster.worker("a", incarnation=2) as new:
            await new.init()
            assert new.worker == old.worker
            with pytest.raises(Rejected, match="has come back as incarnation 2"):
                await old.pull()
            await asyncio.sleep(100)
            assert new.connections == 1


async def test_a_worker_that_leaves_is_not_waited_for():
    async with (
        Cluster(params=START, min_workers=2, weights="uniform") as cluster,
        cluster.worker("long") as long,
    ):
        await long.init()
        async with cluster.worker("short") as short:
            await short.init()
            for _ in range(3):
                await asyncio.gather(long.sync(ONES), short.sync(ONES))
        for _ in range(4):
            await long.sync(ONES)
        assert cluster.server.version == 7
        assert asyncio.get_running_loop().time() < 1


async def test_open_tickets_fail_when_the_worker_leaves_and_so_do_later_ones():
    async with Cluster(params=START, min_workers=2) as cluster:
        async with cluster.worker("a") as ps:
            await ps.init()
            tickets = [ps.sync(ONES), ps.push(ONES)]
            await asyncio.sleep(0.01)
        for ticket in (*tickets, ps.pull(), ps.push(ONES)):
            with pytest.raises(ConnectionLost):
                await ticket
        await ps.leave()


async def test_a_push_nobody_awaited_before_leaving_leaves_before_the_goodbye_and_a_later_one_is_not_sent():
    async with Cluster(params=START) as cluster:
        async with cluster.worker("a") as ps:
            await ps.init()
            first, second = ps.push(ONES), ps.push(ONES)
        assert await first == 1
        with pytest.raises(ConnectionLost, match="the worker left before this push was sent"):
            await second
        assert cluster.server.version == 1


async def test_a_client_may_be_entered_again_and_its_pushes_are_new_ones():
    async with Cluster(params=START) as cluster:
        ps = cluster.worker("a")
        for life in range(1, 4):
            async with ps:
                await ps.init()
                assert (await ps.push(ONES), ps.worker) == (life, 0)
        same(cluster.server.params(), {name: value + 3 for name, value in START.items()})


async def test_a_cancelled_farewell_ends_the_tasks_all_the_same():
    async with Cluster(params=START) as cluster:
        link = Link()
        before = asyncio.all_tasks()
        ps = await cluster.worker("a", up=link).__aenter__()
        link.delay_s = 3600.0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await ps.leave()
        names = {task.get_name() for task in asyncio.all_tasks() - before}
        assert not names & {"aiops link", "aiops pushes"}


async def test_a_stranger_is_named_and_not_asked_again():
    async with Cluster(params=START) as cluster:
        connect = cluster._network.connect

        async def impostor(name, make, **options):
            connection = await connect(name, make, **options)
            connection._twin.post(b"HTTP/1.1 404 Not Found\r\n")
            return connection

        cluster._network.connect = impostor
        with pytest.raises(BadHandshake, match="looks like an HTTP"):
            async with cluster.worker("a"):
                pass
