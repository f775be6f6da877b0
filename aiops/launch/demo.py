"""``aiops demo``: the same training twice, blocking and overlapped, on real processes over emulated links.

One server process and one process per worker, each behind its own relay; the parent measures accuracy out of band.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.api.connecting import connect
from aiops.data import Dataset, load
from aiops.launch.demo_job import Job, Outcome, Point, Report, Result
from aiops.launch.demo_settings import DemoSettings, Progress
from aiops.launch.process import Child
from aiops.sim.relay import Relay
from aiops.url import parse_url
from aiops.worker.client import Client

# Loading torch in every worker at once, on a loaded machine.
STARTING_S = 120.0

# Accuracy is measured at most so often: often enough for a curve, seldom enough to leave the cores to the workers.
EVALUATE_S = 0.5

# How much of each run the timelines show.
PICTURE_S = 6.0


Tell = Callable[[Progress], None]


async def run_demo(settings: DemoSettings, tell: Tell) -> Report:
    """Run every algorithm for the same time and return what was measured.

    Args:
        settings: What to run.
        tell: Hears how it goes, about twice a second.

    Raises:
        ConfigError: The data set is not to be found.
        ChildFailed: A worker or the server ended too soon.
    """
    data = await asyncio.to_thread(
        load, settings.data, root=settings.data_root, cache=settings.cache
    )
    outcomes = []
    async with contextlib.AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                Child("aiops.launch.demo_worker", name=f"worker {index}")
            )
            for index in range(settings.n_workers)
        ]
        await asyncio.gather(*(worker.hear(STARTING_S) for worker in workers))
        for name, flags in settings.algorithms:
            outcomes.append(await _run(settings, data, workers, name, flags, tell))
    return _report(settings, data, outcomes)


async def _run(
    settings: DemoSettings,
    data: Dataset,
    workers: Sequence[Child],
    name: str,
    flags: Sequence[str],
    tell: Tell,
) -> Outcome:
    arguments = ["serve", "--port", "0", "--end-with-stdin"]
    arguments += ["--min-workers", str(settings.n_workers), *flags]
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(Child("aiops", arguments, name="server"))
        url = (await server.hear(STARTING_S)).decode()
        relays, urls = await _relays(settings, url, stack)
        for index, worker in enumerate(workers):
            await worker.say(msgspec.json.encode(_job(settings, data, index, urls[index])))
        await asyncio.gather(*(worker.hear(STARTING_S) for worker in workers))
        judge = await stack.enter_async_context(connect(url, name="judge", give_up_s=5.0))
        await judge.init()
        for worker in workers:
            await worker.say(b"go")
        before = sum(relay.carried_bytes for relay in relays)
        curve = await _watch(settings, data, judge, name, tell)
        n_bytes = sum(relay.carried_bytes for relay in relays) - before
        status = await judge.status()
        lines = await asyncio.gather(
            *(worker.hear(settings.budget_s + STARTING_S) for worker in workers)
        )
    results = [msgspec.json.decode(line, type=Result) for line in lines]
    return Outcome(
        algorithm=name,
        settings=" ".join(flags),
        time_to_target_s=_time_to(settings.target, curve),
        final_accuracy=curve[-1].accuracy,
        best_accuracy=max(point.accuracy for point in curve),
        rounds=status["version"],
        n_bytes=n_bytes,
        overlap_ratio=float(np.mean([result.overlap_ratio for result in results])),
        utilisation=float(np.mean([result.utilisation for result in results])),
        curve=curve,
        workers=results,
    )


async def _relays(
    settings: DemoSettings, url: str, stack: contextlib.AsyncExitStack
) -> tuple[list[Relay], list[str]]:
    if settings.link is None:
        return [], [url] * settings.n_workers
    server = parse_url(url)[0]
    relays = [
        await stack.enter_async_context(Relay(server.host, server.port, settings.link))
        for _ in range(settings.n_workers)
    ]
    return relays, [f"aiops://127.0.0.1:{relay.port}" for relay in relays]


# Measure the newest version every now and then until the budget is over, and once more after it.
async def _watch(
    settings: DemoSettings, data: Dataset, judge: Client, name: str, tell: Tell
) -> list[Point]:
    start, curve = time.perf_counter(), list[Point]()
    clocks: tuple[int, ...] = ()
    images = np.asarray(data.x_test, np.float32).reshape(len(data.x_test), -1)
    over = False
    while not over:
        at = time.perf_counter() - start
        over = at >= settings.budget_s
        model = await judge.pull()
        if not curve or judge.version > curve[-1].version:
            accuracy = await asyncio.to_thread(accuracy_of, model, images, data.y_test)
            curve.append(Point(at, judge.version, accuracy))
        status = await judge.status()
        members = {m["name"]: m["clock"] for m in status["members"] if m["name"] != "judge"}
        if len(members) == settings.n_workers:
            clocks = tuple(members[name] for name in sorted(members))
        tell(
            Progress(
                name,
                min(at, settings.budget_s),
                settings.budget_s,
                judge.version,
                curve[-1].accuracy,
                clocks,
            )
        )
        if not over:
            left_s = settings.budget_s - (time.perf_counter() - start)
            await asyncio.sleep(max(0.0, min(EVALUATE_S, left_s)))
    return curve


def accuracy_of(
    model: dict[str, NDArray[np.float32]], images: NDArray[np.float32], labels: NDArray[np.int64]
) -> float:
    """Return the share of right answers of the demo's perceptron.

    Args:
        model: Its parameters by name: weights and biases of two layers.
        images: float32, shape (n, pixels).
        labels: int64, shape (n,).
    """
    w1, b1, w2, b2 = model.values()
    hidden = np.maximum(images @ w1.T + b1, 0.0)
    return float(np.mean((hidden @ w2.T + b2).argmax(1) == labels))


def _time_to(target: float, curve: Sequence[Point]) -> float | None:
    # One lucky evaluation is no arrival: the next one must agree.
    for point, following in itertools.pairwise(curve):
        if point.accuracy >= target and following.accuracy >= target:
            return point.at
    return None


def _job(settings: DemoSettings, data: Dataset, index: int, url: str) -> Job:
    return Job(
        index=index,
        n_workers=settings.n_workers,
        url=url,
        data=settings.data,
        data_root=None if settings.data_root is None else str(settings.data_root),
        cache=None if settings.cache is None else str(settings.cache),
        n_inputs=int(np.prod(data.x_train.shape[1:])),
        n_classes=data.n_classes,
        hidden=settings.hidden,
        alpha=settings.alpha,
        split_seed=0,
        seed=settings.seed,
        batch=settings.batch,
        lr=settings.lr,
        step_s=settings.step_s * settings.slowdown[index],
        budget_s=settings.budget_s,
        picture_s=PICTURE_S,
    )


def _report(settings: DemoSettings, data: Dataset, outcomes: list[Outcome]) -> Report:
    pixels = int(np.prod(data.x_train.shape[1:]))
    n_values = settings.hidden * (pixels + 1) + data.n_classes * (settings.hidden + 1)
    link = settings.link
    first, last = outcomes[0].time_to_target_s, outcomes[-1].time_to_target_s
    return Report(
        data=settings.data,
        target=settings.target,
        budget_s=settings.budget_s,
        rate_mbit=None if link is None else link.rate_bits_s / 1e6,
        delay_ms=0.0 if link is None else link.delay_s * 1e3,
        step_ms=[settings.step_s * factor * 1e3 for factor in settings.slowdown],
        n_values=n_values,
        sync_s=0.0 if link is None else 2 * link.transfer_s(4 * n_values),
        speedup=None if first is None or last is None else first / last,
        outcomes=outcomes,
    )
