"""Real processes that take turns: the smallest rounds of ours and of the bound, and peers that fail."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import aiops
from aiops.bench.campaign import Contender, campaign
from aiops.bench.fleet import Fleet, together
from aiops.bench.machine import Watch, congestion, cpu_s
from aiops.bench.network import DEFAULT, network
from aiops.bench.peers.base import Case, Sample
from aiops.bench.peers.sockets import Blocking
from aiops.bench.result import Figure, Miss, Row
from aiops.bench.run import Bench

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Quiet:
    def __init__(self):
        self.warnings = []

    def say(self, text): ...

    def warn(self, text):
        self.warnings.append(text)


@pytest.fixture
def bench(tmp_path):
    view, lines = Quiet(), []
    made = Bench(view, lines.append, scratch=str(tmp_path), quick=True)
    made.lines = lines
    return made


@needs_compiler
@pytest.mark.parametrize("n_workers", [1, 2])
async def test_ours_and_the_bound_take_turns(bench, n_workers):
    case = bench.case(4096, n_workers)
    contenders = [Contender("aiops", "ours", case), Contender("C sockets", "sockets", case)]
    result = await bench.compete(
        "round", "4 KB", contenders, passes=3, turn_s=0.01, bound="C sockets"
    )
    for outcome in result.outcomes.values():
        assert outcome.means.keys() == outcome.samples.keys()
        assert min(outcome.means.values()) >= outcome.best_s / n_workers
    ours, bound = (line for line in bench.lines if isinstance(line, Row))
    assert (ours.peer, ours.n, ours.ratio) == ("aiops", 3, 1.0)
    assert (bound.peer, bound.n, bound.bound_ratio) == ("C sockets", 3, 1.0)
    assert bound.ratio < 1 < ours.bound_ratio
    assert ours.bound_ratio == pytest.approx(1 / bound.ratio, rel=0.5)
    assert ours.network == f"system's {congestion()}"


@needs_compiler
@pytest.mark.parametrize("n_workers", [1, 3])
async def test_workers_tell_when_their_rounds_began_and_ended(tmp_path, n_workers):
    fleet = Fleet("sockets", Case(n_bytes=4096, n_workers=n_workers, scratch=str(tmp_path)))
    await fleet.start()
    before = time.monotonic()
    sample = await fleet.rounds(10)
    assert before < sample.start_s < sample.end_s < time.monotonic()
    assert 0 < sample.best_s <= sample.median_s <= sample.end_s - sample.start_s
    await fleet.stop()


@needs_compiler
@pytest.mark.parametrize(("spins", "state"), [(True, "T"), (False, "S")])
async def test_peers_that_poll_are_stopped_between_their_turns(monkeypatch, tmp_path, spins, state):
    monkeypatch.setattr(Blocking, "spins", spins)
    fleet = Fleet("sockets", Case(n_bytes=4096, n_workers=2, scratch=str(tmp_path)))
    await fleet.start()
    for _ in range(2):
        assert [await settled(pid, state) for pid in fleet.pids] == [state] * 3
        assert await fleet.rounds(1) is not None
    pids = fleet.pids
    await fleet.stop()
    assert not alive(pids)


# A process stops, or falls asleep, a little later.
async def settled(pid, state):
    for _ in range(200):
        if (found := state_of(pid)) == state:
            break
        await asyncio.sleep(0.01)
    return found


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_round_of_several_workers_lasts_until_the_last_one_has_its_answer():
    first = Sample(median_s=1.0, best_s=0.5, start_s=10.0, end_s=13.0)
    last = Sample(median_s=1.5, best_s=1.25, start_s=11.0, end_s=16.0)
    assert together([first], 3) == first
    assert together([first, last], 3) == Sample(median_s=2.0, best_s=1.25, start_s=10.0, end_s=16.0)


async def test_what_our_transport_merges_while_it_comes_is_whole(tmp_path):
    case = Case(n_bytes=4_000_000, one_way=True, merging=True, scratch=str(tmp_path))
    fleet = Fleet("transport", case)
    await fleet.start()
    assert not fleet.failed
    assert (await fleet.rounds(3)).best_s > 0
    await fleet.stop()


@needs_compiler
async def test_a_peer_that_fails_is_named_and_the_campaign_goes_on(bench):
    good, bad = bench.case(4096), bench.case(4096, congestion="nonsense")
    contenders = [Contender("good", "sockets", good), Contender("bad", "sockets", bad)]
    await bench.compete("round", "4 KB", contenders, passes=2, turn_s=0.01, ours="good")
    rows = [line for line in bench.lines if isinstance(line, Row)]
    (miss,) = (line for line in bench.lines if isinstance(line, Miss))
    assert [line.peer for line in rows] == ["good"]
    assert miss.peer == "bad"
    assert miss.reason == "server ended with 1: nonsense: No such file or directory"


@needs_compiler
async def test_a_peer_that_dies_between_turns_fails_and_the_others_go_on(tmp_path):
    case = Case(n_bytes=4096, n_workers=2, scratch=str(tmp_path))
    fleet = Fleet("sockets", case)
    await fleet.start()
    assert await fleet.rounds(1) is not None
    os.kill(fleet.workers[1].pid, 9)
    assert await fleet.rounds(1) is None
    assert fleet.failed.startswith("worker 1 ended with -9")
    await fleet.stop()


@needs_compiler
async def test_nothing_runs_any_more_after_a_cancelled_campaign(tmp_path):
    case = Case(n_bytes=4096, scratch=str(tmp_path))
    contenders = [Contender("aiops", "ours", case), Contender("C", "sockets", case)]
    started = asyncio.Event()

    def tell(text):
        if text.startswith("pass 3"):
            started.set()

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(campaign(contenders, passes=100_000, turn_s=0.01, tell=tell))
        await started.wait()
        mine = children(os.getpid())
        running.cancel()
    assert len(mine) == 4
    assert not alive(mine)


async def test_memory_of_a_push_is_a_figure(bench):
    from aiops.bench.memory import push_memory

    await push_memory(bench, "round", 1 << 24)
    grown, peak = (line.value for line in bench.lines if isinstance(line, Figure))
    assert 0 <= grown < peak < 20


async def test_control_messages_are_measured_idle_and_busy(bench):
    from aiops.bench.control import control

    await control(bench, "round", n_bytes=1_000_000, passes=2)
    rows = [line for line in bench.lines if isinstance(line, Row)]
    assert [line.peer for line in rows] == ["aiops", "bare loop"] * 2
    assert all(line.median_s > 0 for line in rows)


@pytest.mark.parametrize("asker", ["prober", "worker"])
async def test_what_a_table_calls_tcp_is_tcp(monkeypatch, bench, asker):
    from aiops.bench import control, memory

    asked = {}

    def connect(url, **options):
        asked.update(options)
        raise ConnectionError

    monkeypatch.setattr(aiops, "connect", connect)
    case = bench.case(4096)
    url = "aiops://localhost"
    ask = control._asker("ours", case, url).__aenter__ if asker == "prober" else None
    with pytest.raises(ConnectionError):
        await (ask() if ask else memory._work(case, url))
    assert asked["shared_memory"] is False


def test_a_network_of_its_own_has_the_congestion_control_asked_for_and_is_left_again():
    before = congestion()
    with network("reno") as in_force:
        assert in_force in ("reno", f"system's {before}")
        if in_force == "reno":
            assert congestion() == "reno"
    assert congestion() == before
    with network(DEFAULT) as in_force:
        assert in_force == f"system's {before}"


def test_our_own_work_is_not_foreign():
    watch = Watch()
    sum(i * i for i in range(3_000_000))
    # Others may be busy; we are not counted among them.
    assert watch.foreign_cores() < os.cpu_count()
    assert cpu_s([os.getsid(0)])[0] > 0


def alive(pids):
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_the_work_of_others_is_foreign():
    watch = Watch()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(1.0)
        assert watch.foreign_cores() > 0.1
    finally:
        busy.kill()
        busy.wait()


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found
