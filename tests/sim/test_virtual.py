"""The virtual-time loop: jumps, never sleeps, and fails at once when nothing can happen any more."""

import asyncio
import threading
import time

import pytest

from aiops.sim.virtual import VirtualLoop


def run(work):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def test_an_hour_of_sleep_takes_under_a_second():
    async def sleep():
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    before = time.perf_counter()
    assert run(sleep()) == pytest.approx(3600)
    assert time.perf_counter() - before < 1.0


def test_timers_fire_in_their_order():
    async def order():
        seen = []

        async def one(delay):
            await asyncio.sleep(delay)
            seen.append(delay)

        await asyncio.gather(*(one(delay) for delay in (3, 1, 2, 0.5)))
        return seen

    assert run(order()) == [0.5, 1, 2, 3]


def test_a_deadlock_fails_at_once():
    async def wait_for_ever():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing is ready and no timer is set"):
        run(wait_for_ever())


def test_work_for_threads_runs_in_this_one():
    async def work():
        return await asyncio.to_thread(threading.get_ident)

    assert run(work()) == threading.get_ident()


def test_an_error_in_work_for_threads_is_raised_where_it_is_awaited():
    def fail():
        raise KeyError("x")

    async def work():
        await asyncio.to_thread(fail)

    with pytest.raises(KeyError):
        run(work())


def test_timeouts_are_virtual_too():
    async def work():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await asyncio.sleep(1000)
        return asyncio.get_running_loop().time()

    assert run(work()) == pytest.approx(600)
