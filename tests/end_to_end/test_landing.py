"""Many workers and little room for what they push, in one process and over sockets, on real loops and threads."""

import asyncio
import contextlib

import numpy as np
import pytest

import aiops
from aiops.sim.cluster import Cluster
from aiops.transport import tcp
from aiops.wire.frame import Kind
from aiops.wire.message import Ping, Push
from tests.certificates import Authority
from tests.server.kit import Hand

# Two buckets, each of which goes through a lane.
VALUES = 800_000
MODEL_BYTES = 4 * VALUES
START = {"w": np.zeros(VALUES, np.float32)}

SETTINGS = {"fold": "arrival", "weights": "uniform", "shards": 2, "work": "fixed:1"}

# Waited for longer below, and yet long enough for a machine with other things to do.
TIMES = {"lease_s": 1.5, "heartbeat_s": 0.2, "idle_timeout_s": 0.6}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["memory", "tcp", "shm", "tls"])
def house(request, authority):
    """Enter a server on a transport; gives it and what makes its workers by name."""

    @contextlib.asynccontextmanager
    async def enter(**spec):
        spec = {"params": START, **SETTINGS, **spec}
        if request.param == "memory":
            async with Cluster(**spec) as cluster:
                yield cluster.server, cluster.worker
            return
        shared, tls = request.param == "shm", request.param == "tls"
        shows, takes = (authority.server(), authority.worker()) if tls else (None, None)
        async with aiops.serve(shared_memory=shared, tls=shows, **spec) as server:
            yield (
                server,
                lambda name: aiops.connect(server.url, name=name, shared_memory=shared, tls=takes),
            )

    return enter


async def trained(house, n, rounds, **spec):
    """Train with ``n`` workers at once; return the parameters and the server's last state."""
    async with house(min_workers=n, **spec) as (server, worker):

        async def train(i):
            # Whole numbers, and a mean of a power of two: whose push comes first does not matter.
            update = {"w": np.arange(VALUES, dtype=np.float32) % 5 + i}
            async with worker(f"w{i}") as ps:
                await ps.init()
                for _ in range(rounds):
                    await ps.sync(update)
                assert ps.connections == 1

        async with asyncio.TaskGroup() as tasks:
            for i in range(n):
                tasks.create_task(train(i))
        assert server.version == rounds
        return server.params()["w"], server.status()


async def test_all_rounds_close_alike_with_room_for_a_few_pushes(house):
    free, _ = await trained(house, 8, 3)
    params, status = await trained(house, 8, 3, landing_bytes=2 * MODEL_BYTES)
    np.testing.assert_array_equal(params, free)
    landing = status["landing"]
    assert 0 < landing["peak_bytes"] <= 2 * MODEL_BYTES
    assert (landing["bytes"], landing["waiting"]) == (0, 0)
    # Beside those: the parameters and the next ones, a sum that is merged and one that is filled.
    assert status["pool"]["peak_bytes"] <= 6 * MODEL_BYTES + 64 * 4096
    assert status["counters"]["pushes_merged"] == 8 * 3


class Holder(Hand):
    """A worker by hand, over TCP, that has room and stops in the middle of its push."""

    async def connect(self, server, name):
        _, _, port = server.url.rpartition(":")
        self.connection = await tcp.connect(
            [("127.0.0.1", int(port))],
            lambda: self,
            max_frame_bytes=1 << 30,
            idle_timeout_s=TIMES["idle_timeout_s"],
        )
        self.connection.patient = True
        await self.hello(name)

    async def push_first_half(self, halves):
        number = self.session.next_request()
        push = Push(0, 0, 0, 1, 1, 0.0, 2, False, payload_bytes=MODEL_BYTES)
        first, self.rest = self.tensors(number, halves)
        head = self.session.send(Kind.PUSH, push, request=number)
        await self.connection.send([(head, ()), first])

    async def stay(self):
        while True:
            self.connection.post(self.session.send(Kind.PING, Ping()))
            await asyncio.sleep(TIMES["heartbeat_s"])

    async def push_rest(self):
        await self.connection.send([self.rest])


@contextlib.asynccontextmanager
async def held_up(**spec):
    """A server over TCP whose room one worker has, and that worker."""
    async with aiops.serve(
        params=START,
        landing_bytes=MODEL_BYTES,
        bucket_bytes=MODEL_BYTES // 2,
        shared_memory=False,
        **SETTINGS,
        **TIMES,
        **spec,
    ) as server:
        holder = Holder()
        await holder.connect(server, "holder")
        await holder.push_first_half(np.split(np.full(VALUES, 2, np.float32), 2))
        await waits(server, 0, MODEL_BYTES)
        staying = asyncio.create_task(holder.stay())
        try:
            yield server, holder
        finally:
            staying.cancel()
            holder.connection.abort()


async def waits(server, n, size=MODEL_BYTES, *, times=0):
    """Return once so many wait, so many bytes are landing, and so often somebody had to wait."""
    async with asyncio.timeout(10):
        while True:
            landing, waited = server.status()["landing"], server.service.counters["pushes_waited"]
            if (landing["waiting"], landing["bytes"]) == (n, size) and waited >= times:
                return
            await asyncio.sleep(0.01)


async def test_over_tcp_who_waits_longer_than_all_timeouts_is_kept():
    async with (
        held_up(min_workers=2) as (server, holder),
        aiops.connect(server.url, name="b") as b,
    ):
        await b.init()
        ticket = b.sync({"w": np.full(VALUES, 4, np.float32)})
        await waits(server, 1)
        await asyncio.sleep(1.5 * TIMES["lease_s"])
        await waits(server, 1)
        await holder.push_rest()
        assert ((await ticket)["w"] == 3).all()
        assert b.connections == 1
        assert server.status()["counters"].get("left_lease", 0) == 0


async def test_over_tcp_a_worker_cut_while_it_waits_comes_again():
    async with (
        held_up(min_workers=2) as (server, holder),
        aiops.connect(server.url, name="b") as b,
    ):
        await b.init()
        ticket = b.sync({"w": np.full(VALUES, 4, np.float32)})
        await waits(server, 1)
        b._link.cut()
        await waits(server, 1, times=2)
        await holder.push_rest()
        assert ((await ticket)["w"] == 3).all()
        assert b.connections == 2
        assert server.status()["landing"]["peak_bytes"] == MODEL_BYTES


async def test_over_tcp_a_worker_that_is_gone_while_it_waits_is_noticed():
    async with held_up() as (server, _):
        gone = Holder()
        await gone.connect(server, "gone")
        sending = asyncio.create_task(gone.push_first_half(np.split(START["w"], 2)))
        await waits(server, 1)
        gone.connection.abort()
        await asyncio.wait([sending])
        assert sending.exception() is not None
        await waits(server, 0)


async def test_over_tcp_a_worker_cut_while_it_lands_makes_room():
    async with (
        held_up() as (server, holder),
        aiops.connect(server.url, name="b") as b,
    ):
        await b.init()
        ticket = b.sync({"w": np.full(VALUES, 4, np.float32)})
        await waits(server, 1)
        holder.connection.abort()
        assert ((await ticket)["w"] == 4).all()
        await waits(server, 0, 0)


async def test_over_tcp_a_server_ends_at_once_though_some_wait():
    async with (
        held_up() as (server, _),
        aiops.connect(server.url, name="b", give_up_s=0.1) as b,
    ):
        await b.init()
        ticket = b.sync({"w": np.full(VALUES, 4, np.float32)})
        await waits(server, 1)
        async with asyncio.timeout(5):
            await server.stop()
        with pytest.raises(aiops.AiopsError):
            await ticket
        assert server.service.pool.outstanding == 0
