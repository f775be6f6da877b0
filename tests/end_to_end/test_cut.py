"""The link is cut at every single byte, both ways, and every push is merged exactly once."""

import asyncio

import numpy as np
import pytest

from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link

pytestmark = pytest.mark.virtual

START = {"w": np.zeros(4, np.float32)}
ONES = {"w": np.ones(4, np.float32)}

# Sizes of one exchange on the wire, for the sweeps below: they may be larger than the truth, and not smaller.
PUSH_BYTES = 130
MODEL_BYTES = 130
LIFE_BYTES = 480


def sweep(size, *, step=1):
    return [
        pytest.param(way, offsets, id=f"{way} from byte {offsets.start}")
        for way in ("up", "down")
        for start in range(0, size, 40)
        for offsets in [range(start, min(start + 40, size), step)]
    ]


async def cut_push(way, offset, verb):
    """Push with one worker over a link that breaks after ``offset`` bytes, beside one whose link is fine."""
    links = {"up": Link(0.01), "down": Link(0.01)}
    async with (
        Cluster(params=START, min_workers=2, weights="uniform") as cluster,
        cluster.worker("a", **links) as a,
        cluster.worker("b") as b,
    ):
        await a.init()
        await b.init()
        for version in (1, 2):
            if version == 1:
                links[way].cut_after = offset
            one, other = getattr(a, verb)(ONES, base=version - 1), b.sync(ONES)
            await asyncio.gather(one, other)
            assert (one.version, other.version) == (version, version)
            assert cluster.server.version == version
            np.testing.assert_array_equal(cluster.server.params()["w"], float(version))
        assert cluster.server.status()["counters"]["pushes_merged"] == 4
        return a.connections


@pytest.mark.parametrize("verb", ["push", "sync"])
@pytest.mark.parametrize(("way", "offsets"), sweep(PUSH_BYTES))
async def test_a_push_is_merged_once_wherever_the_link_is_cut(way, offsets, verb):
    for offset in offsets:
        await cut_push(way, offset, verb)


@pytest.mark.parametrize("way", ["up", "down"])
async def test_the_sweep_goes_beyond_the_last_byte_of_a_push_and_its_answer(way):
    # Both rounds together are longer than the sweep, one alone is not: the cut falls into the second.
    assert await cut_push(way, 0, "sync") == 2
    assert await cut_push(way, PUSH_BYTES - 1, "sync") == 2
    sizes = []
    async with Cluster(params=START) as cluster, cluster.worker("a") as ps:
        await ps.init()
        (line,) = cluster.connections["a"]
        for _ in range(2):
            sizes.append((line.sent_bytes, line.received_bytes))
            await ps.sync(ONES)
    sent, received = np.subtract(sizes[1], sizes[0])
    assert sent < PUSH_BYTES
    assert received < MODEL_BYTES


@pytest.mark.parametrize(("way", "offsets"), sweep(LIFE_BYTES, step=3))
async def test_a_run_survives_a_cut_anywhere_in_a_connections_life(way, offsets):
    for offset in offsets:
        links = {"up": Link(0.01), "down": Link(0.01)}
        links[way].cut_after = offset
        async with Cluster() as cluster, cluster.worker("a", **links) as a:
            params = await a.init(START)
            np.testing.assert_array_equal(params["w"], START["w"])
            for version in (1, 2):
                params = await a.sync(ONES)
                np.testing.assert_array_equal(params["w"], float(version))
            assert cluster.server.version == 2


async def test_cuts_again_and_again_lose_and_repeat_nothing():
    links = {"up": Link(0.01), "down": Link(0.01)}
    async with (
        Cluster(params=START, sync="asynchronous") as cluster,
        cluster.worker("a", **links) as a,
    ):
        await a.init()
        for round_ in range(1, 60):
            links["up" if round_ % 2 else "down"].cut_after = (round_ * 37) % 200
            await a.sync(ONES)
        assert a.connections > 30
        np.testing.assert_array_equal(cluster.server.params()["w"], 59.0)


async def test_a_push_whose_lease_ended_while_the_link_was_down_is_merged_once():
    down_s = 60.0
    network_up = asyncio.Event()
    network_up.set()
    async with Cluster(
        params=START, min_workers=2, weights="uniform", lease_s=5.0, heartbeat_s=1.0
    ) as cluster:
        connect = cluster._network.connect

        async def connect_when_up(name, make, **options):
            await network_up.wait()
            return await connect(name, make, **options)

        cluster._network.connect = connect_when_up
        async with cluster.worker("a") as a, cluster.worker("b") as b:
            await a.init()
            await b.init()
            ticket = a.sync(ONES)
            await asyncio.sleep(1)
            network_up.clear()
            a._link.cut()
            await asyncio.sleep(down_s)
            assert cluster.server.status()["counters"]["left_lease"] == 1
            assert not ticket.done()
            network_up.set()
            await asyncio.sleep(10)
            await b.sync(ONES)
            await ticket
            assert (ticket.version, a.worker) == (1, 0)
            np.testing.assert_array_equal(cluster.server.params()["w"], 1.0)
