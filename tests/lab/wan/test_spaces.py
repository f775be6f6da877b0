"""Links between real network namespaces: made, used, changed, and gone however their owner ends."""

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aiops.errors import ConfigError, ConnectFailed
from aiops.lab.wan import netem
from aiops.lab.wan.door import best_kind, open_wan, why_not_spaces, why_not_tun
from aiops.lab.wan.gate import worst
from aiops.lab.wan.link import Change, LinkSpec
from aiops.lab.wan.probe import examine
from aiops.lab.wan.spaces import SpaceWan
from aiops.launch.process import Child
from aiops.url import parse_url

WHY_NOT = why_not_tun()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

LINK = LinkSpec(up_bits_s=20e6, down_bits_s=20e6, delay_s=0.01)


async def out_of(wan, place, *argv):
    process = await asyncio.create_subprocess_exec(
        *wan.command(place, argv), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


@contextlib.asynccontextmanager
async def connection(wan, worker=0):
    """A connection of a worker to the server: both ends."""
    loop = asyncio.get_running_loop()
    with wan.socket("server") as door, wan.socket(worker) as near:
        door.bind((wan.server_host, 0))
        door.listen()
        _, port = door.getsockname()
        await loop.sock_connect(near, await wan.address_for(worker, port))
        far, _ = await loop.sock_accept(door)
        with far:
            yield near, far


async def round_trip(near, far):
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    await loop.sock_sendall(near, b"?")
    assert await loop.sock_recv(far, 1) == b"?"
    await loop.sock_sendall(far, b"!")
    assert await loop.sock_recv(near, 1) == b"!"
    return time.perf_counter() - start


async def test_commands_run_where_they_belong():
    async with SpaceWan([LINK, LINK]) as wan:
        for place, quad in (("server", "10.77.0.1"), (0, "10.77.0.10"), (1, "10.77.0.11")):
            assert f"inet {quad}/24" in await out_of(wan, place, "ip", "-4", "address")
        assert await wan.url_for(1, 4711) == "aiops://10.77.0.1:4711"
        with pytest.raises(ConfigError, match="worker 2 has no link, there are 2"):
            wan.command(2, ["true"])


async def test_a_server_of_ours_is_reached_over_the_link():
    serve = ["serve", "--host", "10.77.0.1", "--port", "0", "--insecure", "--end-with-stdin"]
    async with (
        SpaceWan([LINK]) as wan,
        Child("aiops", serve, name="server", prefix=wan.command("server", [])) as server,
    ):
        told = (await server.hear(15.0)).decode()
        url = await wan.url_for(0, parse_url(told)[0].port)
        before = await wan.counters()
        status = await out_of(wan, 0, sys.executable, "-m", "aiops", "status", url)
        after = await wan.counters()
    assert status.startswith("version")
    # Not through shared memory: that is for workers of the server's own network.
    assert after.up[0].packets > before.up[0].packets + 3


async def test_a_round_trip_takes_two_delays_and_is_counted():
    async with SpaceWan([LINK]) as wan, connection(wan) as ends:
        before = await wan.counters()
        assert await round_trip(*ends) >= 0.02
        after = await wan.counters()
    assert after.up[0].packets > before.up[0].packets
    assert after.down[0].n_bytes > before.down[0].n_bytes


def read(paths):
    return [Path(path).read_text() for path in paths]


# cubic is not among what every user may choose where bbr is the system's own.
@pytest.mark.parametrize("congestion", ["reno", "cubic"])
async def test_a_namespace_has_the_settings_asked_for(congestion):
    settings = "/proc/sys/net/ipv4/tcp_{}"
    names = ("congestion_control", "slow_start_after_idle", "no_metrics_save")
    paths = [settings.format(name) for name in names]
    before = read(paths)
    async with SpaceWan([LINK], congestion=congestion, slow_start_after_idle=False) as wan:
        assert wan.congestion == congestion
        for place in ("server", 0):
            assert (await out_of(wan, place, "cat", *paths)).split() == [congestion, "0", "1"]
    assert read(paths) == before


async def test_a_congestion_control_that_the_kernel_lacks_is_refused():
    with pytest.raises(ConfigError, match=r"congestion is 'nonesuch', this kernel has .*reno"):
        async with open_wan([LINK], kind="tun", congestion="nonesuch"):
            pass


@pytest.mark.parametrize("n_links", [0, 201])
async def test_too_few_and_too_many_links_are_refused(n_links):
    with pytest.raises(ConfigError, match=f"there are {n_links} links, between 1 and 200"):
        async with open_wan([LINK] * n_links):
            pass


async def test_a_link_that_does_not_answer_is_told(monkeypatch):
    monkeypatch.setattr("aiops.lab.wan.spaces.ANSWERING_S", 0.2)
    cut = LinkSpec(up_bits_s=20e6, down_bits_s=20e6, loss=1.0)
    with pytest.raises(ConnectFailed, match="the link of worker 1 does not answer"):
        async with SpaceWan([LINK, cut]):
            pass


async def test_a_link_changes_on_schedule():
    late = LinkSpec(up_bits_s=20e6, down_bits_s=20e6, changes=(Change(at_s=0.1, delay_s=0.2),))
    async with SpaceWan([late]) as wan, connection(wan) as ends:
        await asyncio.sleep(0.2)
        assert await round_trip(*ends) < 0.4
        await wan.begin()
        await asyncio.sleep(0.2)
        assert await round_trip(*ends) >= 0.4
        await wan.reset()
        assert await round_trip(*ends) < 0.4


async def test_an_interface_that_is_set_down_works_again_once_it_is_up():
    async with SpaceWan([LINK]) as wan:
        await out_of(wan, 0, "ip", "link", "set", "wan0", "down")
        await out_of(wan, 0, "ip", "link", "set", "wan0", "up")
        async with connection(wan) as ends:
            assert await round_trip(*ends) >= 0.02


async def test_leaving_ends_who_is_left_inside():
    async with SpaceWan([LINK]) as wan:
        process = await asyncio.create_subprocess_exec(*wan.command(0, ["sleep", "300"]))
        emulator = wan._carrier.pid
    assert await process.wait() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(emulator, 0)


def test_what_this_machine_allows_is_chosen_by_itself():
    assert best_kind() == "tun"


async def test_netem_is_refused_where_the_kernel_has_none(monkeypatch):
    monkeypatch.setattr(netem, "available", lambda: False)
    with pytest.raises(
        ConfigError, match="kind is 'netem', which is not possible here: the kernel"
    ):
        async with open_wan([LINK], kind="netem"):
            pass


async def test_the_pairs_of_netem_connect_even_without_it(monkeypatch):
    commands = netem.commands

    def untimed(spaces, links):
        return ((space, words) for space, words in commands(spaces, links) if words[0] != "tc")

    monkeypatch.setattr(netem, "commands", untimed)
    async with SpaceWan([LINK, LINK], kind="netem") as wan, connection(wan, 1) as ends:
        assert wan.label == "netem"
        assert await round_trip(*ends) < 0.02
        assert ends[1].getpeername()[0] == "10.77.0.11"
        assert await wan.counters() is None


# What is left of a WAN whose owner was ended in every way there is.

OWNER = """
import asyncio, json, os, sys
from aiops.lab.wan.link import LinkSpec
from aiops.lab.wan.spaces import SpaceWan

async def main():
    link = LinkSpec(up_bits_s=20e6, down_bits_s=20e6, delay_s=0.01)
    async with SpaceWan([link, link]) as wan:
        # The shell ends with its parent; what it has started does not by itself.
        script = "sleep 300 & echo $!; wait"
        inner = await asyncio.create_subprocess_exec(
            *wan.command(0, ["sh", "-c", script]), stdout=asyncio.subprocess.PIPE
        )
        sleeper = int(await inner.stdout.readline())
        namespaces = [os.fstat(space).st_ino for space in wan._spaces]
        pids = [wan._carrier.pid, inner.pid, sleeper]
        print(json.dumps({"pids": pids, "namespaces": namespaces}), flush=True)
        await asyncio.sleep(300)

asyncio.run(main())
"""


def holders(namespaces):
    """Return who holds one of these namespaces: being in it, by a descriptor, or by a mount."""
    found = []
    names = {f"net:[{number}]" for number in namespaces}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            links = [entry / "ns/net", *(entry / "fd").iterdir()]
            found += [link for link in links if os.readlink(link) in names]
    mounts = Path("/proc/self/mountinfo").read_text()
    return found + [name for name in names if name in mounts]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_an_owner_that_was_ended(number):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as owner:
        told = json.loads(owner.stdout.readline())
        assert holders(told["namespaces"])
        watched = [os.pidfd_open(pid) for pid in told["pids"]]
        owner.send_signal(number)
        owner.wait(10)
        for pidfd in watched:
            assert select.select([pidfd], [], [], 10)[0], "a process outlives its owner"
            os.close(pidfd)
    assert holders(told["namespaces"]) == []


def test_an_owner_ends_who_is_inside_even_when_its_emulator_was_killed():
    script = OWNER.replace("await asyncio.sleep(300)", "os.kill(wan._carrier.pid, 9)")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
        told = json.loads(owner.stdout.readline())
        assert owner.wait(10) == 0
    assert holders(told["namespaces"]) == []


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_links_are_what_they_should_be():
    links = [LinkSpec(up_bits_s=10e6, down_bits_s=20e6, delay_s=0.02)] * 3
    async with open_wan(links, kind="tun", congestion="cubic") as wan:
        verdict = await examine(wan)
    rate, trip_s = worst(links, verdict.links)
    # Others may be busy on this machine: the gate itself is narrower.
    assert abs(rate) < 0.15
    assert 0 <= trip_s < 0.005
    assert 0 < verdict.late_s < 0.01
    assert (verdict.label, verdict.congestion) == ("TUN emulator", "cubic")
    assert len(verdict.links) == len(verdict.own) == 3


def test_spaces_are_possible_here():
    assert why_not_spaces() is None
