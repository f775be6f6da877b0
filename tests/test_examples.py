"""Every example runs, as its first lines say."""

import asyncio
import os
import re
import subprocess
import sys

import msgspec
import pytest

from aiops.lab import virtual
from aiops.lab.problem import Problem
from aiops.lab.scenario import read
from aiops.sim.virtual import VirtualLoop
from tests.example import EXAMPLES, load


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "artopk_ddp",
        "asyncio_only",
        "fashion_stream",  # tests/test_fashion_stream.py
        "flights_stream",  # tests/test_flights_stream.py
        "overlap",
        "three_lines",
    }


def test_the_labs_scenario_learns_with_every_method():
    scenario = read(EXAMPLES / "lab" / "wan.toml")
    assert len(scenario.changes) == 2
    short = msgspec.structs.replace(scenario, budget_s=10.0)
    problem = Problem(short)
    for method in short.chosen:
        assert len(list(method.points())) > 2
        record = virtual.run(short, method, 0, problem=problem)
        # Chance is 0.1.
        assert record.best_accuracy > 0.25


async def test_two_workers_that_disagree_meet_in_the_middle():
    ends = await load("asyncio_only").main()
    assert ends == pytest.approx([2.0, 2.0], abs=0.01)


def test_an_hour_at_two_sites_without_a_wait():
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        fast, slow = runner.run(load("overlap").main())
        assert runner.get_loop().time() > 3600
    assert (fast.waits, slow.waits) == (0, 0)
    assert fast.n_steps > 2.9 * slow.n_steps


async def test_three_lines_learn_the_digits():
    pytest.importorskip("torch")
    import aiops

    async with aiops.serve() as server:
        accuracy = await asyncio.to_thread(load("three_lines").main, server.url, 12)
    # Chance is 0.1. Where a model lands among the steps is a matter of timing, so the last points are, too.
    assert accuracy > 0.85


def ddp(*arguments):
    """Run the example under torchrun with two ranks; returns what it printed, and each rank's sum."""
    pytest.importorskip("torch")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    launch, own = arguments
    done = subprocess.run(
        [*command, *launch, str(EXAMPLES / "artopk_ddp.py"), *own],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    sums = dict(re.findall(r"^rank (\d): accuracy 0\.[89].* sum (\S+)$", done.stdout, re.MULTILINE))
    assert sorted(sums) == ["0", "1"], done.stdout
    assert sums["0"] == sums["1"]
    return done.stdout, sums["0"]


@pytest.mark.timeout(320)
def test_ranks_that_start_anew_end_with_the_same_bits_as_if_none_had_died(tmp_path):
    told = ["--collective", "artopk_ring", "--density", "0.05"]
    _, whole = ddp([], told)
    again = [*told, "--checkpoints", str(tmp_path), "--kill-at", "70"]
    printed, resumed = ddp(["--max-restarts", "1"], again)
    for rank in (0, 1):
        assert f"rank {rank} goes on from step 50" in printed
    assert resumed == whole
