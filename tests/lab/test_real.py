"""The real lab: what ends a run before its time, what is left behind, and links without privilege."""

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from aiops.errors import ConfigError
from aiops.lab.line import congestion_of, links_of
from aiops.lab.method import Method, get
from aiops.lab.real import RealLab
from aiops.lab.result import read_result
from aiops.lab.scenario import Change, Link
from aiops.lab.wan.door import why_not_tun
from aiops.launch.process import Child, ChildFailed
from tests.lab.kit import small

WHY_NOT = why_not_tun()
needs_tun = pytest.mark.skipif(
    WHY_NOT is not None, reason=f"the real lab is not possible here: {WHY_NOT}"
)
pytestmark = pytest.mark.timeout(120)

# Without a congestion control of their own, links may be relayed, too.
PLAIN = Link(up_mbit=20.0, delay_ms=5.0, congestion="")
# As /proc/net/tcp says it.
ESTABLISHED, LISTENING = "01", "0A"

KINDS = [pytest.param("tun", marks=needs_tun), "relay"]


def test_links_are_the_scenarios_in_si_units_each_with_its_own_changes():
    scenario = small(
        link=Link(up_mbit=10.0, down_mbit=20.0, delay_ms=25.0, jitter_ms=2.0, loss=0.01),
        links={"1": Link(up_mbit=5.0)},
        changes=(
            Change(at_s=1.0, workers=(1,), up_mbit=1.0, delay_ms=50.0),
            Change(at_s=2.0, slowdown=3.0),
            Change(at_s=3.0, loss=0.02),
        ),
    )
    first, second = links_of(scenario)
    assert (first.up_bits_s, first.down_bits_s) == (10e6, 20e6)
    assert (first.delay_s, first.jitter_s, first.loss) == (0.025, 0.002, 0.01)
    assert (second.up_bits_s, second.down_bits_s) == (5e6, 5e6)
    # A slowdown is the worker's, not the link's.
    assert [change.at_s for change in first.changes] == [3.0]
    assert [change.at_s for change in second.changes] == [1.0, 3.0]
    assert (second.changes[0].up_bits_s, second.changes[0].down_bits_s) == (1e6, None)
    assert (second.changes[0].delay_s, second.changes[1].loss) == (0.05, 0.02)


def test_links_have_one_congestion_control():
    assert congestion_of(small()) == "bbr"
    assert congestion_of(small(link=PLAIN)) is None
    with pytest.raises(ConfigError, match="links have 'bbr', 'cubic', one run has one"):
        congestion_of(small(links={"1": Link(congestion="cubic")}))


def test_a_relay_refuses_a_congestion_control():
    async def enter():
        async with RealLab(small(), kind="relay"):
            pass

    with pytest.raises(ConfigError, match="congestion is set, a relay splits TCP and has none"):
        asyncio.run(enter())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [pytest.param("tun", "fedavg", marks=needs_tun), ("relay", "fedavg"), ("relay", "nbsync")],
)
def test_a_run_that_diverges_is_a_run_that_does_not_arrive(kind, algorithm):
    scenario = small(link=PLAIN, budget_s=60.0)

    async def diverge():
        async with RealLab(scenario, kind=kind) as lab:
            return await lab.run(Method(label="x", algorithm=algorithm, lr=1e30), 0)

    record = asyncio.run(diverge())
    assert record.reached_s is None
    # The very sentence of the virtual lab, at once; and that is no reason to reject the run.
    assert record.failed.startswith("training diverged: update holds ")
    assert record.ended_s < 30.0
    assert not [reason for reason in record.rejected if "ended" in reason]
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["worker 1", "server"])
def test_a_process_that_is_killed_ends_the_run_with_a_sentence(monkeypatch, whom):
    scenario = small(link=PLAIN, target=0.99, budget_s=100.0)
    children = {}
    enter = Child.__aenter__

    async def remember(child):
        children[child.name] = await enter(child)
        return child

    monkeypatch.setattr(Child, "__aenter__", remember)

    def kill(point):
        children[whom].signal(signal.SIGKILL)

    async def run():
        async with RealLab(scenario, kind="relay") as lab:
            await lab.run(get("fedavg"), 0, tell=kill)

    start = time.monotonic()
    with pytest.raises(ChildFailed, match=rf"^{whom} ended with -9: no message$"):
        asyncio.run(run())
    assert time.monotonic() - start < 60.0
    assert {"server", "worker 0", "worker 1"} <= set(children)
    assert [name for name, child in children.items() if child._process.returncode is None] == []


SCENARIO = """
name = "left behind"
target = 0.99
budget_s = 100.0
eval_s = 0.25
data = {name = "digits", n_train = 400, n_test = 100, batch = 8}
model = {hidden = [8]}
workers = {count = 2, step_s = 0.05}
link = {up_mbit = 20.0, delay_ms = 5.0, congestion = ""}
methods = ["fedavg"]
"""


def command(path, kind, *more):
    arguments = ["lab", "run", str(path), "--lab", "real", "--emulator", kind, *more]
    return [sys.executable, "-m", "aiops", *arguments]


def descendants(pid):
    """Process ids of children, and of theirs."""
    found, parents = [], {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def namespace_of(pid):
    try:
        return (Path("/proc") / str(pid) / "ns/net").stat().st_ino
    except OSError:
        return None


def command_line(pid):
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def sockets_of(pid):
    found = set()
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(entry))
    return found


def tcp(pid, state, sockets):
    """Local ports of these sockets in a process's namespace, those in one state of TCP's."""
    ports = []
    for line in (Path("/proc") / str(pid) / "net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == state and f"socket:[{fields[9]}]" in sockets:
            ports.append(int(fields[1].rpartition(":")[2], 16))
    return ports


def is_connected(pid):
    return bool(tcp(pid, ESTABLISHED, sockets_of(pid)))


def listening(pids):
    """TCP ports of this namespace that these processes listen on."""
    return tcp("self", LISTENING, set[str]().union(*map(sockets_of, pids)))


# Wait until both workers are connected; return all processes of a lab.
def await_training(lab):
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and lab.poll() is None:
        pids = descendants(lab.pid)
        workers = [pid for pid in pids if b"aiops.lab.real_worker" in command_line(pid)]
        if len(workers) == 2 and all(map(is_connected, workers)):
            return pids
        time.sleep(0.05)
    raise AssertionError(f"no training within a minute, exit code {lab.poll()}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_leaves_no_process_no_namespace_and_no_socket_behind(kind, tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    own = namespace_of("self")
    with subprocess.Popen(
        command(path, kind), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as lab:
        pids = await_training(lab)
        spaces = {namespace_of(pid) for pid in pids} - {own, None}
        assert len(spaces) == (3 if kind == "tun" else 0)
        ports = listening([lab.pid, *pids])
        assert len(ports) >= (0 if kind == "tun" else 3)
        watched = [os.pidfd_open(pid) for pid in pids]
        lab.send_signal(signal.SIGINT)
        _, err = lab.communicate(timeout=30)
        assert lab.returncode == 130, err
    assert "interrupted, all processes are ended" in err
    for pidfd in watched:
        assert select.select([pidfd], [], [], 0)[0], "a process outlives its owner"
        os.close(pidfd)
    left = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    assert [pid for pid in left if namespace_of(pid) in spaces] == []
    for port in ports:
        with socket.socket() as sock:
            assert sock.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.slow
def test_the_relayed_lab_runs_without_a_congestion_control(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO.replace("0.99", "0.3").replace("100.0", "40.0"))
    done = subprocess.run(
        command(path, "relay", "--out", str(tmp_path / "out"), "--no-pictures"),
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    (record,) = read_result(tmp_path / "out").records
    assert (record.lab, record.failed) == ("real", "")
    assert {(wire.kind, wire.congestion) for wire in record.wires} == {("split TCP", "none")}
    assert not [reason for reason in record.rejected if "ended" in reason]
    assert record.reached_s is not None
    # On a busy machine the gates reject the run, so that it counts as none that has reached its target.
    assert done.returncode == (5 if record.rejected else 0), done.stderr
