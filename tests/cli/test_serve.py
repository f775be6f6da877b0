"""`aiops serve` as a process: its options reach the server, and files go in and come out."""

import asyncio
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from aiops.api.connecting import connect
from aiops.cli import main
from aiops.config import AGGREGATION, CODEC, COMPENSATION, OPTIMIZER
from aiops.launch.process import Child
from aiops.transport.connection import TcpConnection
from aiops.transport.handover import AVAILABLE
from aiops.transport.shm import ShmConnection


def test_the_help_names_every_codec(capsys):
    assert main(["serve", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"How updates travel: {', '.join(CODEC)};" in told


def test_the_help_names_every_numeric_rule(capsys):
    assert main(["serve", "--help"]) == 0
    told = "".join(capsys.readouterr().out.split())
    for name in (*AGGREGATION, *OPTIMIZER, *COMPENSATION):
        assert name in told


@pytest.mark.timeout(60)
async def test_numeric_rules_reach_the_server(tmp_path):
    start = tmp_path / "start.safetensors"
    save_file({"w": np.zeros(4, np.float32)}, start)
    rules = ["--aggregation", "median", "--optimizer", "momentum:1,0.5", "--down", "topk:0.5"]
    async with (
        Child("aiops", ["serve", "--port", "0", "--init", str(start), *rules], name="s") as server,
        connect((await server.hear(20)).decode()) as ps,
    ):
        await ps.init()
        # Of velocities 1 and 1.5 half of the values go down a round.
        for expected in ([1, 1, 0, 0], [1, 1, 2.5, 2.5]):
            params = await ps.sync({"w": np.ones(4, np.float32)})
            assert params["w"].tolist() == expected


@pytest.mark.timeout(60)
async def test_a_compensation_reaches_the_server_with_its_preset(tmp_path):
    start = tmp_path / "start.safetensors"
    save_file({"w": np.zeros(4, np.float32)}, start)
    options = [
        "--algorithm",
        "fedasync-constant",
        "--weights",
        "constant:0.5",
        "--init",
        str(start),
    ]
    async with Child("aiops", ["serve", "--port", "0", *options], name="server") as server:
        url = (await server.hear(20)).decode()
        async with connect(url, name="a") as a, connect(url, name="b") as b:
            assert (a.policy.min_steps, a.policy.max_steps) == (10, 10)
            for ps in (a, b):
                await ps.init()
            # 0.5 * 8, then 0.5 * 4 + 0.5 * 6.
            for ps, update, expected in ((a, 8, 4), (b, 6, 5)):
                params = await ps.sync({"w": np.full(4, update, np.float32)})
                assert params["w"].tolist() == [expected] * 4


@pytest.mark.timeout(60)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_options_reach_the_server_and_parameters_go_in_and_out(tmp_path, loop):
    start, end, token = tmp_path / "start.safetensors", tmp_path / "end.safetensors", tmp_path / "t"
    save_file({"w": np.arange(40, dtype=np.float32)}, start)
    token.write_text("secret\n")
    options = {
        "port": 0,
        "init": start,
        "save": end,
        "token-file": token,
        "loop": loop,
        "work": "fixed:3",
        "codec": "topk:0.5",
        "server-lr": 0.5,
        "shards": 2,
        "bucket-bytes": 64,
        "rounds": 1,
        "lease-s": 30,
        "heartbeat-s": 7,
        "idle-timeout-s": 11,
    }
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    async with Child("aiops", ["serve", *arguments], name="server") as server:
        url = (await server.hear(20)).decode().replace("//", "//secret@")
        async with connect(url) as ps:
            greeting = ps._link.greeting
            assert (greeting.lease_s, greeting.heartbeat_s, greeting.idle_timeout_s) == (30, 7, 11)
            assert (ps.policy.codec, ps.policy.min_steps, ps.policy.overlap) == (
                "topk:0.5",
                3,
                False,
            )
            params = await ps.init()
            np.testing.assert_array_equal(params["w"], np.arange(40))
            assert [b.stop - b.start for b in ps.table.buckets] == [16, 16, 8]
            assert {b.shard for b in ps.table.buckets} == {0, 1}
            update = np.zeros(40, np.float32)
            update[[0, 20, 39]] = 8.0
            params = await ps.sync({"w": update})
            np.testing.assert_array_equal(params["w"], np.arange(40) + update / 2)
            assert (await ps.pull_flat()).done
    assert server._process.returncode == 143
    np.testing.assert_array_equal(load_file(end)["w"], np.arange(40) + update / 2)


@pytest.mark.timeout(60)
async def test_a_server_streams_chunks_of_the_size_it_is_told():
    arguments = ["serve", "--port", "0", "--stream-bytes", "64", "--work", "fixed:1"]
    async with Child("aiops", arguments, name="server") as server:
        url = (await server.hear(20)).decode()
        async with connect(url) as ps:
            await ps.init({"w": np.zeros(80, np.float32)})
            assert [bucket.size for bucket in ps.table.buckets] == [16] * 5
            params = await ps.sync({"w": np.arange(80, dtype=np.float32)})
            np.testing.assert_array_equal(params["w"], np.arange(80))
            assert (await ps.status())["counters"]["chunks_ahead"] == 4


@pytest.mark.timeout(60)
async def test_a_server_lets_no_more_bytes_land_at_once_than_it_is_told():
    arguments = ["serve", "--port", "0", "--fold", "arrival", "--landing-bytes", "320"]
    async with Child("aiops", arguments, name="server") as server:
        url = (await server.hear(20)).decode()
        async with connect(url) as ps:
            await ps.init({"w": np.zeros(80, np.float32)})
            params = await ps.sync({"w": np.arange(80, dtype=np.float32)})
            np.testing.assert_array_equal(params["w"], np.arange(80))
            landing = (await ps.status())["landing"]
            assert landing == {"bytes": 0, "peak_bytes": 320, "limit_bytes": 320, "waiting": 0}


@pytest.mark.timeout(60)
async def test_workers_share_samples_through_a_server_that_is_told_to():
    arguments = ["serve", "--port", "0", "--injection", "random:1,0.5", "--share-bytes", "200"]
    async with Child("aiops", arguments, name="server") as server:
        url = (await server.hear(20)).decode()
        async with connect(url, name="a") as one, connect(url, name="b") as other:
            for n in (8, 8, 8, 80):
                batches = [(np.full((n, 2), who, np.float32), np.arange(n)) for who in (1, 2)]
                asked = [ps.share(*batch) for ps, batch in zip((one, other), batches, strict=True)]
                came = await asyncio.gather(*asked, return_exceptions=True)
                if n == 80:
                    assert all("the limit is 200 (share_bytes)" in str(error) for error in came)
            # Until both have asked there is nobody to share with.
            assert one.shared.gave_bytes == other.shared.took_bytes == 16 + 2 * (8 + 8)
            assert one.policy.injection == "random:1,0.5,0"
            assert (await one.status())["counters"]["shares"] >= 2


@pytest.mark.timeout(60)
@pytest.mark.skipif(not AVAILABLE, reason="Linux only")
@pytest.mark.parametrize(
    ("option", "kind"), [((), ShmConnection), (("--no-shared-memory",), TcpConnection)]
)
async def test_workers_on_this_machine_go_through_memory_unless_the_server_was_told(option, kind):
    async with Child("aiops", ["serve", "--port", "0", *option], name="server") as server:
        url = (await server.hear(20)).decode()
        async with connect(url) as ps:
            assert isinstance(ps._link._line.connection, kind)
            params = await ps.init({"w": np.arange(10**6, dtype=np.float32)})
            update = {"w": np.ones(10**6, np.float32)}
            params = await ps.sync(update)
            np.testing.assert_array_equal(params["w"], np.arange(10**6) + 1)
        async with connect(url, shared_memory=False) as ps:
            assert isinstance(ps._link._line.connection, TcpConnection)


def test_congestion_reaches_the_server():
    told = subprocess.run(
        [sys.executable, "-m", "aiops", "serve", "--port", "0", "--congestion", "warp"],
        capture_output=True,
        text=True,
        timeout=15,
        stdin=subprocess.DEVNULL,
    )
    assert (told.returncode, told.stdout) == (2, "")
    assert "congestion is 'warp'" in told.stderr


@pytest.mark.timeout(60)
@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
async def test_a_server_allows_itself_as_many_descriptors_as_the_system_does():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        async with Child("aiops", ["serve", "--port", "0"], name="server") as server:
            await server.hear(20)
            limits = Path(f"/proc/{server._process.pid}/limits")
            text = limits.read_text()  # noqa: ASYNC240
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (line,) = (line for line in text.splitlines() if line.startswith("Max open files"))
    assert line.split()[3:5] == [str(hard), str(hard)]


def test_auto_is_an_option_and_refused_beside_what_it_chooses():
    told = subprocess.run(
        [sys.executable, "-m", "aiops", "serve", "--port", "0", "--auto", "--codec", "fp16"],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert (told.returncode, told.stdout) == (2, "")
    assert "auto chooses codec itself, and it is 'fp16': leave one of the two out" in told.stderr


@pytest.mark.timeout(60)
async def test_auto_reaches_the_server():
    async with Child("aiops", ["serve", "--port", "0", "--auto"], name="server") as server:
        url = (await server.hear(20)).decode()
        async with connect(url) as ps:
            assert (ps.policy.merge, ps.policy.overlap) == ("partial", True)
            assert (await ps.status())["auto"]["on"] == "plain"
