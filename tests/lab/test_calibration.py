"""The virtual lab against the real one: the same scenario, the same accuracies, and the same times within some percent.

What the virtual lab leaves out is TCP's slow start, some milliseconds of software per round, and the clock's chance: a
model that comes in a moment later is merged one local step later. So blocking rounds agree version by version, while of
overlapped ones only times are compared.
"""

import asyncio
import itertools
import statistics
from dataclasses import dataclass

import pytest

from aiops.lab.job import Job
from aiops.lab.method import Method
from aiops.lab.record import Record
from aiops.lab.runner import open_lab
from aiops.lab.scenario import Data, Link, Model, Scenario, Workers
from aiops.lab.wan.door import why_not_tun

WHY_NOT = why_not_tun()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),  # the first test waits for all runs, a minute on an idle machine
    pytest.mark.skipif(WHY_NOT is not None, reason=f"the real lab is not possible here: {WHY_NOT}"),
]

# A dense push and pull of 25,510 values take 191 ms, so that rounds last 0.2 to 0.35 s, and the target takes more than
# twenty of them: a round more or less is 5 %. The slow worker is no multiple of the others, so that how many steps are
# asked of them does not hang by a millisecond. Labels are even, batches large, and the target is where accuracy still
# climbs: a merge that lands a step later changes little then.
SCENARIO = Scenario(
    name="calibration",
    target=0.8,
    budget_s=20.0,
    eval_s=0.05,
    data=Data(name="digits", batch=64, alpha="iid"),
    model=Model(hidden=(340,)),
    workers=Workers(count=3, step_s=0.02, slowdown=(1.0, 1.0, 1.5)),
    link=Link(up_mbit=10.0, delay_ms=10.0),
)
# One of 360 test samples is 0.0028: nothing less than the same answers to all of them.
SAME_ACCURACY = 1e-3
LEAST_ROUNDS = 20

FEDAVG = Method(label="fedavg", algorithm="fedavg", lr=0.018, settings={"work": "fixed:5"})
ESYNC = Method(label="esync", algorithm="esync", lr=0.011, settings={"work": "esync:5"})
TOPK = Method(
    label="topk both ways",
    algorithm="fedavg",
    lr=0.016,
    settings={"work": "fixed:5", "codec": "topk:0.05", "down": "topk:0.05"},
)
NBSYNC = Method(label="nbsync", algorithm="nbsync", lr=0.0055)

RUNS = [(FEDAVG, 0), (ESYNC, 0), (TOPK, 0), (NBSYNC, 0), (NBSYNC, 1), (NBSYNC, 2)]


@dataclass(frozen=True)
class Pair:
    """One run in both labs."""

    real: Record
    virtual: Record

    @property
    def ratio(self):
        """Real time to the target over virtual time."""
        return self.real.reached_s / self.virtual.reached_s


@pytest.fixture(scope="module")
def pairs():
    jobs = [Job(scenario=SCENARIO, method=method, seed=seed) for method, seed in RUNS]

    async def run(lab, **options):
        async with open_lab(SCENARIO, lab, **options) as runner:
            return await runner.run_all(jobs)

    async def both():
        # One after the other: the computed runs would take the processor from the measured ones.
        return await run("real", emulator="tun"), await run("virtual")

    return [
        Pair(real=real, virtual=virtual) for real, virtual in zip(*asyncio.run(both()), strict=True)
    ]


# The runs of one method, where the machine let all of them be what they are to be.
def of(method, pairs):
    chosen = [pair for pair in pairs if pair.real.method == method]
    assert [pair.real.failed for pair in chosen] == [""] * len(chosen)
    rejected = [pair.real.rejected for pair in chosen if pair.real.rejected]
    if rejected:
        invalid = sum(bool(pair.real.rejected) for pair in pairs)
        pytest.skip(
            f"{len(rejected)} of {len(chosen)} runs of {method.label} do not count "
            f"({invalid} of {len(pairs)} of all): {'; '.join(rejected[0])}"
        )
    for pair in chosen:
        assert pair.real.reached_s is not None, f"best {pair.real.best_accuracy:.3f}"
        assert min(pair.real.reached_version, pair.virtual.reached_version) >= LEAST_ROUNDS
    return chosen


def accuracies(record):
    return {point.version: point.accuracy for point in record.points}


def steps_by_round(record):
    """How many local steps each worker's first pushes were of, from the beginning that a record shows."""
    counts = []
    for worker in record.workers:
        pushed = [lane.start for lane in worker.lanes if lane.name == "sync"]
        done = [lane.stop for lane in worker.lanes if lane.name == "compute"]
        # The real lab's clock counts in milliseconds.
        totals = [0, *(sum(stop <= start + 2e-3 for stop in done) for start in pushed)]
        counts.append([after - before for before, after in itertools.pairwise(totals)])
    return counts


@pytest.mark.parametrize("method", [FEDAVG, TOPK], ids=lambda method: method.label)
def test_blocking_rounds_have_the_same_accuracy_version_by_version(method, pairs):
    (pair,) = of(method, pairs)
    real, computed = accuracies(pair.real), accuracies(pair.virtual)
    common = real.keys() & computed.keys()
    assert len(common) >= LEAST_ROUNDS
    assert {v: real[v] for v in common} == pytest.approx(
        {v: computed[v] for v in common}, abs=SAME_ACCURACY
    )


def test_asked_rounds_have_the_same_accuracy_for_as_long_as_their_steps_are_the_same(pairs):
    (pair,) = of(ESYNC, pairs)
    real_steps, steps = steps_by_round(pair.real), steps_by_round(pair.virtual)
    equal = 0
    for at in range(min(len(counts) for counts in (*real_steps, *steps))):
        if [counts[at] for counts in real_steps] != [counts[at] for counts in steps]:
            break
        equal += 1
    # A real worker that measures itself some milliseconds slower is given a step less, now and then.
    if not equal:
        pytest.skip(
            f"steps differ from the first round on, {[counts[0] for counts in real_steps]} instead of "
            f"{[counts[0] for counts in steps]}: there is no version to compare"
        )
    real, computed = accuracies(pair.real), accuracies(pair.virtual)
    common = [v for v in real.keys() & computed.keys() if v <= equal]
    assert common
    assert [real[v] for v in common] == pytest.approx(
        [computed[v] for v in common], abs=SAME_ACCURACY
    )


@pytest.mark.parametrize(
    ("method", "within"),
    [
        pytest.param(FEDAVG, 0.1, id="fedavg"),
        pytest.param(ESYNC, 0.1, id="esync"),
        # Rounds are short, so that software and slow start weigh more.
        pytest.param(TOPK, 0.2, id="topk both ways"),
        # Merges land at other local steps, each run at its own: the median is compared.
        pytest.param(NBSYNC, 0.1, id="nbsync"),
    ],
)
def test_the_time_to_the_target_is_as_computed(method, within, pairs):
    ratios = [pair.ratio for pair in of(method, pairs)]
    assert statistics.median(ratios) == pytest.approx(1.0, abs=within), ratios
