"""Servers and workers over real sockets, on both loops."""

import asyncio
import contextlib
import random
import threading

import numpy as np
import pytest

from aiops import connect, serve
from aiops.errors import Busy, ConfigError, ConnectFailed, ConnectionLost, Rejected

START = {"w": np.zeros(4, np.float32)}
ONES = {"w": np.ones(4, np.float32)}


def gradients(rng, shapes):
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


async def held(server, n):
    """Wait until the server holds or has merged ``n`` pushes."""
    while server.status()["counters"].get("pushes", 0) < n:  # noqa: ASYNC110 -- it tells nobody
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param({"w": (17, 5), "b": (5,), "scale": (), "none": (0, 3)}, id="small"),
        # More than goes through on the loop, so that checks and merges are done by the shards' threads.
        pytest.param({"w": (500, 900), "b": (900,)}, id="large"),
        # Buckets that are merged while they come.
        pytest.param({"w": (1200, 1000), "b": (3,)}, id="drafted"),
    ],
)
async def test_bulk_rounds_equal_a_single_process_bit_for_bit(shapes):
    n_workers, rounds = 3, 4
    start = gradients(np.random.default_rng(0), shapes)
    pushed = [
        [gradients(np.random.default_rng([round_, i]), shapes) for i in range(n_workers)]
        for round_ in range(rounds)
    ]

    # The single process: the mean of three gradients, summed in worker order, in float32.
    expected, params = [], {name: value.copy() for name, value in start.items()}
    for updates in pushed:
        for name in params:
            acc = np.zeros(shapes[name], np.float32)
            for update in updates:
                acc += np.float32(1 / 3) * update[name]
            params[name] = params[name] + acc
        expected.append(dict(params))

    got = [[] for _ in range(n_workers)]
    async with serve(
        sync="bulk", codec="dense", weights="uniform", min_workers=n_workers, shards=2
    ) as server:
        async with contextlib.AsyncExitStack() as stack:
            workers = []
            for i in range(n_workers):
                ps = await stack.enter_async_context(connect(server.url, name=f"w{i}"))
                assert ps.worker == i
                await ps.init(start)
                workers.append(ps)
            for round_, updates in enumerate(pushed):
                order = random.Random(round_).sample(range(n_workers), n_workers)
                tickets = {}
                for i in order:
                    tickets[i] = workers[i].sync(updates[i], n_samples=1 + i)
                    # The next worker's push comes after this one's is held.
                    await held(server, 3 * round_ + len(tickets))
                for i in range(n_workers):
                    got[i].append(await tickets[i])
                    assert tickets[i].version == round_ + 1
        final = server.params()
    for name in shapes:
        for i in range(n_workers):
            for round_ in range(rounds):
                np.testing.assert_array_equal(got[i][round_][name], expected[round_][name])
        np.testing.assert_array_equal(final[name], expected[-1][name])


@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_push_over_a_connection_that_is_cut_is_merged_once(chaos, way):
    n = 20_000
    start, ones = {"w": np.zeros(n, np.float32)}, {"w": np.ones(n, np.float32)}
    # From the first byte of the push's header over its 80 kB to the last and beyond.
    size = 4 * n + 140
    offsets = [0, 1, 31, 32, 33, 64, 100, *range(5000, size, 13_000), size - 33, size - 1]
    async with serve(params=start, sync="asynchronous", bucket_bytes=32_000) as server:
        async with chaos(server.url) as relay, connect(relay.url, name="a") as ps:
            await ps.init()
            for version, offset in enumerate(offsets, start=1):
                relay.cut_after[way] = offset
                params = await ps.sync(ones)
                np.testing.assert_array_equal(params["w"], version)
                relay.cut_after.clear()
            assert server.version == len(offsets)
            assert ps.connections > len(offsets) // 2
        np.testing.assert_array_equal(server.params()["w"], len(offsets))


async def test_workers_train_on_while_all_connections_are_cut_again_and_again(chaos):
    async with serve(params=START, sync="asynchronous") as server, chaos(server.url) as relay:

        async def work(i):
            async with connect(relay.url, name=f"w{i}") as ps:
                await ps.init()
                for _ in range(15):
                    await ps.push(ONES)
                return ps.connections

        async def trouble():
            while True:
                await server.version_after(server.version + 7)
                relay.cut()

        troubling = asyncio.ensure_future(trouble())
        connections = await asyncio.gather(*map(work, range(4)))
        troubling.cancel()
        assert sum(connections) > 8
        assert server.version == 60
        np.testing.assert_array_equal(server.params()["w"], 60)


async def test_a_worker_whose_compute_thread_is_busy_keeps_its_lease():
    async with (
        serve(params=START, lease_s=1.0, heartbeat_s=0.1) as server,
        connect(server.url) as ps,
    ):
        await ps.init()
        done = threading.Event()

        def compute():
            n = 0
            while not done.is_set():
                n += 1

        computing = asyncio.ensure_future(asyncio.to_thread(compute))
        await asyncio.sleep(1.7)
        done.set()
        await computing
        await ps.sync(ONES)
        assert ps.connections == 1
        assert server.status()["counters"].get("left_lease", 0) == 0


async def test_nobody_there_is_named_within_the_connect_timeout():
    async with serve() as server:
        url = server.url
    start = asyncio.get_running_loop().time()
    with pytest.raises(ConnectFailed, match=url.removeprefix("aiops://")):
        async with connect(url, connect_timeout_s=0.5):
            pass
    assert asyncio.get_running_loop().time() - start < 2


async def test_a_wrong_token_is_rejected_at_once():
    async with serve(token="geheim") as server:
        start = asyncio.get_running_loop().time()
        with pytest.raises(Rejected, match="the token is wrong"):
            async with connect(server.url.replace("aiops://", "aiops://falsch@")):
                pass
        assert asyncio.get_running_loop().time() - start < 2
        assert server.status()["counters"] == {"rejected": 1}
        async with connect(server.url.replace("aiops://", "aiops://geheim@")) as ps:
            await ps.init(START)


async def test_a_full_server_says_busy():
    async with serve(params=START, max_members=1) as server, connect(server.url):
        with pytest.raises(Busy, match="1 members"):
            async with connect(server.url, connect_timeout_s=0.5):
                pass


async def test_twenty_workers_at_once_are_one_cohort():
    async with serve(min_workers=20) as server:

        async def work(i):
            async with connect(server.url, name=f"w{i}") as ps:
                params = await ps.init({"w": np.full(3, i, np.float32)})
                after = await ps.sync({"w": np.ones(3, np.float32)})
                return ps.worker, params["w"][0], after["w"][0] - params["w"][0]

        told = await asyncio.gather(*map(work, range(20)))
        assert sorted(worker for worker, _, _ in told) == list(range(20))
        assert len({value for _, value, _ in told}) == 1
        np.testing.assert_allclose([added for _, _, added in told], 1, atol=1e-5)
        assert server.version == 1


async def test_an_address_in_use_is_an_error_that_names_it_and_leaves_nothing():
    async with serve(params=START) as server:
        host, _, port = server.url.removeprefix("aiops://").rpartition(":")
        with pytest.raises(ConfigError, match=f"{host}:{port}"):
            async with serve(host, int(port), params=START):
                pass


async def test_a_server_on_the_same_port_again_is_found_and_the_push_merged(chaos):
    server = serve(params=START)
    await server.__aenter__()
    host, _, port = server.url.removeprefix("aiops://").rpartition(":")
    async with connect(server.url, name="a") as ps:
        await ps.init()
        await server.stop()
        tickets = ps.sync(ONES), ps.pull()
        await asyncio.sleep(0.3)
        assert not tickets[0].done()
        async with serve(host, int(port), params=START) as server:
            params = await tickets[0]
            np.testing.assert_array_equal(params["w"], 1)
            await tickets[1]
            assert ps.connections == 2


async def test_ctrl_c_ends_a_server_cleanly_with_workers_in_the_middle_of_things():
    serving = asyncio.get_running_loop().create_future()

    async def main():
        async with serve(params=START, min_workers=9) as server:
            serving.set_result(server)
            await server.wait()

    task = asyncio.ensure_future(main())
    server = await serving
    async with connect(server.url, give_up_s=0.0) as ps:
        await ps.init()
        ticket = ps.sync(ONES)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ConnectFailed, match="no connection"):
            await ticket
    assert server.service.pool.outstanding == 0


async def test_a_server_whose_task_is_cancelled_lets_go_of_everything():
    server = serve(params=START, min_workers=9)
    await server.__aenter__()
    async with connect(server.url, give_up_s=0.0) as ps:
        await ps.init()
        ticket = ps.sync(ONES)
        await asyncio.sleep(0.05)
        server._main.cancel()
        with pytest.raises(ConnectFailed):
            await ticket
        with pytest.raises(asyncio.CancelledError):
            await server._main
    await server._listener.close()
    assert server.service.pool.outstanding == 0


async def test_a_server_with_a_bug_turns_its_workers_out_and_lets_nobody_in():
    server = serve(params=START, min_workers=9)
    await server.__aenter__()
    async with connect(server.url, give_up_s=0.0) as ps:
        await ps.init()
        ticket = ps.sync(ONES)
        await asyncio.sleep(0.05)
        server.service.fail(ZeroDivisionError("a bug"))
        with pytest.raises(ZeroDivisionError):
            await server.wait()
        with pytest.raises(ConnectFailed):
            await ticket
        with pytest.raises(ConnectFailed, match="hung up before its welcome"):
            async with connect(server.url, connect_timeout_s=0.3):
                pass
    with pytest.raises(ZeroDivisionError):
        await server.stop()


async def test_leaving_and_coming_over_and_over_leaves_no_connection_behind():
    async with serve(params=START, sync="asynchronous") as server:
        for _ in range(50):
            async with connect(server.url, name="a") as ps:
                await ps.init()
                await ps.sync(ONES)
        for _ in range(100):
            if not server.service.peers:
                break
            await asyncio.sleep(0.01)
        assert not server.service.peers
        assert server.status()["n_members"] == 0
        assert server.version == 50


async def test_a_worker_that_vanishes_fails_its_tickets_when_it_is_closed():
    async with serve(params=START, min_workers=2) as server:
        ps = connect(server.url)
        async with ps:
            await ps.init()
            ticket = ps.sync(ONES)
            await asyncio.sleep(0.05)
        with pytest.raises(ConnectionLost):
            await ticket
