"""A year of flights as a stream: every carrier learns which of its planes will be late, as they leave.

All 336,776 flights that left New York in 2013 are replayed by their own times, a stream per carrier, and the carriers
train one model over a parameter server. United has 160 flights a day, SkyWest one in eleven days; nobody waits.

    pip install 'aiops-ps[flights]'
    python examples/flights_stream.py            # the year, in about a minute on one core
    python examples/flights_stream.py --quick    # two weeks

Will a flight arrive more than 15 minutes late? When it leaves, its delay so far, its route and its time are known. It
is tested on a model that was made before it left, and trained on after that, as is the custom with streams (prequential
accuracy). That its outcome is known only when it lands is left out. Of cancelled and diverted flights it never is; the
decoder keeps them out and they are counted.

A carrier waits for a flight, pulls the newest model, waits for the rest of its batch but no longer than a second, tests
the batch on that model, and pushes one gradient step. The batch is what its stream brings in a second (`by_rate`), on
the replay's clock two hours of flights (`--speed`). Every four pushes, whosever they are, make a version of the model,
each worth its share of their flights (`by_samples`): there is no round that a carrier without flights could hold up,
and it sends nothing. The clock is virtual. It jumps from event to event, as fast as the core computes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import sys
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aiops.data import flights
from aiops.errors import ConfigError
from aiops.policy.batch import by_rate
from aiops.policy.stream import Device
from aiops.sim.cluster import Cluster
from aiops.sim.virtual import VirtualLoop
from aiops.stream.buffer import Persistence
from aiops.stream.decode import Samples
from aiops.stream.intake import Intake
from aiops.stream.replay import replay_stamped
from aiops.stream.tape import StampedSample
from aiops.worker.client import Client

Array = NDArray[np.float32]
Params = dict[str, Array]

DAY_S = 86400.0
DAYS, QUICK_DAYS = 365, 14
# A month's name, its first day, and the day after its last; what left after the year's last midnight is December's.
FIRST_DAYS = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, math.inf)
NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MONTHS = tuple(zip(NAMES, FIRST_DAYS, FIRST_DAYS[1:], strict=False))

HIDDEN = 16
LEARNING_RATE = 0.3
# What a carrier waits for its batch, and the bytes of flights that it holds at most: ten thousand flights.
WAIT_S = 1.0
BUFFER_BYTES = 1 << 20


def initial(n_inputs: int) -> Params:
    """Return a network with one hidden layer to start from; about nine inputs of a flight are not 0."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(0, math.sqrt(1 / 9), (n_inputs, HIDDEN))
    out = rng.normal(0, math.sqrt(1 / HIDDEN), HIDDEN)
    return {
        "hidden": hidden.astype(np.float32),
        "hidden_bias": np.zeros(HIDDEN, np.float32),
        "out": out.astype(np.float32),
        "out_bias": np.zeros(1, np.float32),
    }


def test_and_train(params: Params, x: Array, late: Array) -> tuple[Array, Params]:
    """Return how likely the model thinks each flight to be late, and the gradient of the mean cross-entropy."""
    hidden = np.maximum(x @ params["hidden"] + params["hidden_bias"], 0)
    chance = 1 / (1 + np.exp(-(hidden @ params["out"] + params["out_bias"])))
    error = (chance - late) / np.float32(len(late))
    back = np.outer(error, params["out"]) * (hidden > 0)
    gradient = {
        "hidden": x.T @ back,
        "hidden_bias": back.sum(0),
        "out": hidden.T @ error,
        "out_bias": error.sum(keepdims=True),
    }
    return chance, gradient


def auc(chance: Array, late: Array) -> float:
    """Return how often a flight that was late was thought likelier to be than one that was not; NaN without either."""
    on_time = np.sort(chance[late == 0])
    rest = chance[late == 1]
    if not len(rest) or not len(on_time):
        return math.nan
    below = np.searchsorted(on_time, rest, "left") + np.searchsorted(on_time, rest, "right")
    return float(below.mean() / 2 / len(on_time))


class Carrier:
    """A worker with a stream of its own.

    Args:
        name: Its code.
        stream: Its flights.
        encoder: Makes inputs of them.
        days: How many days they are of.

    Attributes:
        name: The same.
        n_flights: How many there are in its stream.
        a_day: How many a day.
        n_tested: How many have been tested, and trained on.
        unknown: Flights without an arrival.
        pushes: Gradients sent.
        n_bytes: Payload sent and received.
    """

    def __init__(
        self, name: str, stream: Sequence[StampedSample], encoder: flights.Encoder, days: float
    ) -> None:
        self.name = name
        self.n_flights = len(stream)
        self.a_day = len(stream) / days
        self.n_tested = 0
        self.unknown = 0
        self.pushes = 0
        self.n_bytes = 0
        self._stream = stream
        self._tested = np.empty((len(stream), 3))
        self._encoder = encoder

    async def run(self, cluster: Cluster, speed: float) -> None:
        """Join with the first flight, and train until the stream ends."""
        await asyncio.sleep(self._stream[0].time_s / speed)
        source = replay_stamped(self._stream, speed=speed)
        samples = Samples(source, self._encoder.decode)
        intake = Intake(samples, Persistence(BUFFER_BYTES))
        async with cluster.worker(self.name) as ps, asyncio.TaskGroup() as group:
            await ps.init()
            group.create_task(intake.run())
            await self._train(ps, intake)
        self.unknown = samples.bad

    async def _train(self, ps: Client, intake: Intake[flights.Flight]) -> None:
        rule, size = by_rate(low=1), 0
        while batch := await intake.take(1):
            pulled = ps.pull()
            params = await pulled
            (size,) = rule([Device(size, intake.samples.source.rate())])
            if size > 1:
                batch += await intake.take(size - 1, within_s=WAIT_S)
            x, late = self._encoder.arrays([sample.value for sample in batch])
            chance, gradient = test_and_train(params, x, late)
            step = {name: np.float32(-LEARNING_RATE) * value for name, value in gradient.items()}
            pushed = ps.push(step, n_samples=len(batch))
            await pushed
            self._note([sample.record.time_s for sample in batch], chance, late)
            self.unknown = intake.samples.bad
            self.pushes += 1
            self.n_bytes += pulled.bytes + pushed.bytes
            await intake.ack(batch[-1].record.cursor)

    def _note(self, times: list[float], chance: Array, late: Array) -> None:
        end = self.n_tested + len(times)
        self._tested[self.n_tested : end] = np.column_stack([times, chance, late])
        self.n_tested = end

    @property
    def tested(self) -> NDArray[np.float64]:
        """What was tested so far: a flight's time in seconds of the year, its chance to be late, and if it was."""
        return self._tested[: self.n_tested]


def accuracy(tested: NDArray[np.float64]) -> float:
    """Return the share of flights that were called what they were; NaN of none."""
    return float(((tested[:, 1] > 0.5) == tested[:, 2]).mean()) if len(tested) else math.nan


def between(carriers: Sequence[Carrier], day: float, end_day: float) -> NDArray[np.float64]:
    """Return what was tested of the flights that left from one day of the year to before another, day 0 the first."""
    tested = np.concatenate([carrier.tested for carrier in carriers])
    return tested[(tested[:, 0] >= day * DAY_S) & (tested[:, 0] < end_day * DAY_S)]


def say(what: str, tested: NDArray[np.float64]) -> None:
    """Print a line about flights that were tested, if there are any."""
    if not len(tested):
        return
    late = tested[:, 2]
    print(
        f"{what:<4} {len(tested):7,} flights, {late.mean():6.1%} late: "
        f"accuracy {accuracy(tested):.4f}, AUC {auc(tested[:, 1], late):.3f}",
        flush=True,
    )


async def tell_months(carriers: Sequence[Carrier], speed: float, done: asyncio.Event) -> None:
    """Print a line whenever a month of flights is over, and for what there is of the last one when all is done."""
    for name, begin, end in MONTHS:
        with contextlib.suppress(TimeoutError):
            # The last flights of a month are still waiting for their batch at its end.
            over = None if end == math.inf else end * DAY_S / speed + 2 * WAIT_S
            async with asyncio.timeout_at(over):
                await done.wait()
        say(name, between(carriers, begin, end))


async def run(carriers: Sequence[Carrier], params: Params, speed: float) -> int:
    """Train until all streams have ended; return the version of the model."""
    done = asyncio.Event()
    async with (
        Cluster(params=params, sync="buffered:4", weights="by_samples", work="fixed:1") as cluster,
        asyncio.TaskGroup() as telling,
    ):
        telling.create_task(tell_months(carriers, speed, done))
        async with asyncio.TaskGroup() as flying:
            for carrier in carriers:
                flying.create_task(carrier.run(cluster, speed))
        done.set()
        return cluster.server.version


def report(carriers: Sequence[Carrier]) -> None:
    """Print what became of each carrier's flights, of each quarter's, and of the year's."""
    print("\ncarrier  flights   a day   tested  unknown  accuracy  pushes  a batch      MB")
    for one in sorted(carriers, key=lambda one: -one.n_flights):
        print(
            f"{one.name:<7} {one.n_flights:8,} {one.a_day:7.1f} {one.n_tested:8,} {one.unknown:8,} "
            f"{accuracy(one.tested):9.3f} {one.pushes:7,} {one.n_tested / max(one.pushes, 1):8.1f} "
            f"{one.n_bytes / 1e6:7.1f}"
        )
    print()
    for quarter in range(4):
        say(
            f"Q{quarter + 1}", between(carriers, MONTHS[3 * quarter][1], MONTHS[3 * quarter + 2][2])
        )
    say("all", between(carriers, 0, math.inf))


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Replay a year of flights, a stream per carrier, and learn from them as they leave."
    )
    parser.add_argument("--quick", action="store_true", help="the first two weeks only")
    parser.add_argument(
        "--speed",
        type=float,
        default=7200.0,
        help="seconds of flights in a second of the virtual clock, which make a batch (7200: two hours)",
    )
    told = parser.parse_args(given)
    # Slower, heartbeats cost more than the flights do; faster, a batch is more than a week.
    if not 600 <= told.speed <= 604800:
        parser.error(f"--speed is {told.speed:g}, it must be from 600 to 604800")
    return told


def main(given: Sequence[str] | None = None) -> list[Carrier]:
    """Read the flights, train on them, and print what became of it."""
    told = arguments(given)
    begun = time.monotonic()
    encoder, streams = flights.load()
    days, end_s = (QUICK_DAYS, QUICK_DAYS * DAY_S) if told.quick else (DAYS, math.inf)
    cut = {name: [one for one in whole if one.time_s < end_s] for name, whole in streams.items()}
    carriers = [Carrier(name, stream, encoder, days) for name, stream in cut.items() if stream]
    n_flights = sum(carrier.n_flights for carrier in carriers)
    print(f"{n_flights:,} flights, {len(carriers)} carriers, {encoder.n_inputs} inputs", flush=True)
    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            version = runner.run(run(carriers, initial(encoder.n_inputs), told.speed))
    except KeyboardInterrupt:
        report(carriers)
        raise
    report(carriers)
    print(f"version {version:,} of the model, {time.monotonic() - begun:.0f} s")
    return carriers


if __name__ == "__main__":
    # Flights without an arrival are kept out as bad records, of which the log speaks.
    logging.getLogger("aiops.stream").setLevel(logging.ERROR)
    try:
        main()
    except ConfigError as error:
        print(f"flights_stream: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
