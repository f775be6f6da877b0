"""The command line as processes: they are told to end, and killed without being told."""

import asyncio
import contextlib
import os
import signal
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from aiops import connect

# They watch the wall clock, and one loop in the test is enough for what happens in other processes.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.asyncio(loop_factories=["asyncio"]),
]

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

WORKER = textwrap.dedent(
    """
    import asyncio, sys
    import numpy as np
    import aiops

    async def main(url, name):
        async with aiops.connect(url, name=name, connect_timeout_s=20) as ps:
            await ps.init({"w": np.zeros(1000, np.float32)})
            while True:
                params = await ps.sync({"w": np.ones(1000, np.float32)})
                (value,) = set(params["w"].tolist())
                print(ps.worker, ps.version, value, flush=True)
                await asyncio.sleep(0.01)

    asyncio.run(main(*sys.argv[1:]))
    """
)


@contextlib.asynccontextmanager
async def process(*arguments):
    """Run python with these arguments; whatever happens, it is gone in the end."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        # Takes what is left in the pipes, and closes them.
        await child.communicate()


@contextlib.asynccontextmanager
async def server(*options):
    """Run ``aiops serve`` on a free port; yields the process and its url."""
    async with process("-m", "aiops", "serve", "--port", "0", *options) as child:
        url = (await child.stdout.readline()).decode().strip()
        assert url.startswith("aiops://127.0.0.1:"), url
        yield child, url


@contextlib.asynccontextmanager
async def worker(url, name):
    async with process("-c", WORKER, url, name) as child:
        yield child


async def rounds(child, n):
    """Return what a worker prints of its next ``n`` rounds: its number, the version and the value of each."""
    lines = [(await child.stdout.readline()).split() for _ in range(n)]
    return [(int(number), int(version), float(value)) for number, version, value in lines]


async def ending(child, number):
    """Send a signal; return the exit code and how long it took."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    child.send_signal(number)
    code = await asyncio.wait_for(child.wait(), 10)
    return code, loop.time() - start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_server_that_is_told_to_end_is_gone_in_two_seconds_whoever_is_connected(number):
    start = {"w": np.zeros(1_000_000, np.float32)}
    async with server("--min-workers", "99") as (child, url), contextlib.AsyncExitStack() as stack:
        host, _, port = url.removeprefix("aiops://").rpartition(":")
        for i in range(3):
            await stack.enter_async_context(connect(url, name=f"idle{i}", give_up_s=0.0))
        strangers = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        busy = []
        for i in range(5):
            ps = await stack.enter_async_context(connect(url, name=f"busy{i}", give_up_s=0.0))
            await ps.init(start)
            ps.push({"w": start["w"] + 1})
            busy.append(ps)
        for ps in busy:
            # Answers that nobody reads.
            ps._link._line.connection.pause_reading()
            for _ in range(3):
                ps.pull()
        await asyncio.sleep(0.2)
        code, took_s = await ending(child, number)
        assert code == 128 + number
        assert took_s < 2
        assert (await child.stderr.read()).decode() == ""
        for _, writer in strangers:
            writer.close()


async def test_the_others_go_on_when_a_worker_is_killed_and_it_comes_back_as_the_same_worker():
    options = [
        "--lease-s",
        "1",
        "--heartbeat-s",
        "0.2",
        "--min-workers",
        "3",
        "--weights",
        "uniform",
    ]
    async with server(*options) as (_, url), contextlib.AsyncExitStack() as stack:
        children = [await stack.enter_async_context(worker(url, f"w{i}")) for i in range(3)]
        before = [await rounds(child, 5) for child in children]
        numbers = [told[0][0] for told in before]
        assert sorted(numbers) == [0, 1, 2]
        for told in before:
            assert [(version, value) for _, version, value in told] == [
                (version, float(version)) for version in range(1, 6)
            ]

        code, _ = await ending(children[1], signal.SIGKILL)
        assert code == -signal.SIGKILL
        loop = asyncio.get_running_loop()
        start = loop.time()
        # What they printed before the kill comes first; 200 more rounds are none of those.
        for child in (children[0], children[2]):
            await rounds(child, 200)
        assert loop.time() - start < 1 + 10

        back = await stack.enter_async_context(worker(url, "w1"))
        told = await rounds(back, 5)
        assert {number for number, _, _ in told} == {numbers[1]}
        versions = [version for _, version, _ in told]
        assert versions == list(range(versions[0], versions[0] + 5))
        async with connect(url) as ps:
            status = await ps.status()
        assert status["counters"]["left_lease"] == 1
        assert [m["connected"] for m in status["members"]] == [True] * len(status["members"])


async def test_a_killed_worker_that_is_back_before_anybody_noticed_takes_its_place_at_once():
    options = [
        "--lease-s",
        "60",
        "--heartbeat-s",
        "1",
        "--min-workers",
        "2",
        "--weights",
        "uniform",
    ]
    async with server(*options) as (_, url), worker(url, "a") as a:
        async with worker(url, "b") as b:
            await rounds(a, 3)
            ((number, *_),) = await rounds(b, 1)
        async with worker(url, "b") as b:
            assert {told[0] for told in await rounds(b, 20)} == {number}
        await rounds(a, 20)


async def test_a_killed_server_that_is_started_again_is_found_by_its_workers():
    async with server() as (child, url):
        port = url.rpartition(":")[2]
        async with connect(url, name="a") as ps:
            params = await ps.init({"w": np.zeros(10, np.float32)})
            await ps.sync({"w": np.ones(10, np.float32)})
            await ending(child, signal.SIGKILL)
            status = asyncio.ensure_future(ps.status())
            arguments = ("-m", "aiops", "serve", "--port", port)
            async with process(*arguments) as again:
                assert (await again.stdout.readline()).decode().strip() == url
                assert (await status)["version"] == 0
                # It was started without parameters, so that it takes them from the first worker again.
                params = await ps.init(params)
                params = await ps.sync({"w": np.ones(10, np.float32)})
                assert params["w"].tolist() == [1.0] * 10
                assert ps.connections == 2
