"""Every example runs, as its first lines say."""

import asyncio
import importlib.util
import pathlib

import msgspec
import pytest

from aiops.lab import virtual
from aiops.lab.problem import Problem
from aiops.lab.scenario import read
from aiops.sim.virtual import VirtualLoop

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "asyncio_only",
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
    ends = await example("asyncio_only").main()
    assert ends == pytest.approx([2.0, 2.0], abs=0.01)


def test_an_hour_at_two_sites_without_a_wait():
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        fast, slow = runner.run(example("overlap").main())
        assert runner.get_loop().time() > 3600
    assert (fast.waits, slow.waits) == (0, 0)
    assert fast.n_steps > 2.9 * slow.n_steps


async def test_three_lines_learn_the_digits():
    pytest.importorskip("torch")
    import aiops

    async with aiops.serve() as server:
        accuracy = await asyncio.to_thread(example("three_lines").main, server.url, 12)
    # Chance is 0.1. Where a model lands among the steps is a matter of timing, so the last points are, too.
    assert accuracy > 0.85
