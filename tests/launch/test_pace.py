"""Padded steps: the schedule is absolute, and begins anew after a wait."""

import asyncio
import time

import pytest

from aiops.launch.pace import AsyncPace, Pace


@pytest.mark.virtual
async def test_every_step_ends_on_the_schedule_and_a_late_one_is_caught_up():
    loop = asyncio.get_running_loop()
    start = loop.time()
    pace, ends = AsyncPace(0.1), []
    for computing_s in (0.02, 0.25, 0.02, 0.02):
        await asyncio.sleep(computing_s)
        await pace.wait()
        ends.append(loop.time() - start)
    assert ends == pytest.approx([0.1, 0.35, 0.37, 0.4])


@pytest.mark.virtual
async def test_a_wait_that_was_not_computing_is_not_caught_up():
    loop = asyncio.get_running_loop()
    pace = AsyncPace(0.1)
    await pace.wait()
    await asyncio.sleep(5.0)
    pace.restart()
    start = loop.time()
    await pace.wait()
    await pace.wait()
    assert loop.time() - start == pytest.approx(0.2)


def test_blocking_steps_keep_the_same_schedule(monkeypatch):
    clock = [10.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))
    pace = Pace(0.1)
    ends = []
    for computing_s in (0.02, 0.25, 0.02, 0.02):
        clock[0] += computing_s
        pace.wait()
        ends.append(clock[0] - 10)
    assert ends == pytest.approx([0.1, 0.35, 0.37, 0.4])
    clock[0] += 5
    pace.restart()
    pace.wait()
    assert clock[0] == pytest.approx(15.5)
