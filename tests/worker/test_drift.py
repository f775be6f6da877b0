"""Drift correction: hand-computed traces, and whether training reaches the optimum of all data."""

import asyncio
from contextlib import AsyncExitStack

import numpy as np
import pytest

from aiops.errors import ConfigError
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.wire.message import Policy
from aiops.worker.drift import Drift
from aiops.worker.machine import Overlap, Rule, machine_of
from aiops.worker.overlap import Step, overlapped
from aiops.worker.rounds import blocking
from aiops.worker.ticket import Snapshot

HALF = Rule("partial", beta=0.5)


def vector(*values):
    return np.array(values, np.float32)


def corrected(x, rule=HALF, *, accumulated=None, version=0):
    drift = Drift(x, version, accumulated=x.size if accumulated is None else accumulated)
    return Overlap(x, version, rule, accumulated=accumulated, drift=drift)


def walk(overlap, x, *changes):
    """Take local steps as a loop does: the step's own change, then the correction."""
    for change in changes:
        x += vector(*np.atleast_1d(change))
        if overlap.correction is not None:
            x += overlap.correction
        overlap.stepped()


def arrive(overlap, version, flat, moved_steps, **more):
    overlap.deliver(Snapshot(version, flat, n_merged=2, moved_steps=moved_steps), **more)


def test_a_step_is_corrected_by_the_others_progress_and_what_is_pushed_is_without_it():
    x = vector(0.0)
    overlap = corrected(x)
    walk(overlap, x, 1.0, 3.0)
    assert overlap.correction is None
    # Of the first window p = 4 / 2 = 2.
    assert overlap.push(x).values == vector(4.0)
    walk(overlap, x, 1.0)
    # The model holds the first window and has moved 10 in 4 steps: P = 2.5, and steps are corrected by 0.5 from now on.
    arrive(overlap, 1, vector(10.0), 4.0)
    assert overlap.push(x).values == vector(1.0)
    assert x == vector(10.5)
    assert overlap.correction == vector(0.5)
    walk(overlap, x, 1.0, 1.0, 1.0)
    assert x == vector(15.0)
    # It holds the second window (p = 1) and has moved 3 in 2 steps: P = 1.5, the same correction by chance.
    arrive(overlap, 2, vector(13.0), 2.0)
    # 4.5 of progress, of which 3 * 0.5 was correction; half of all of it is kept.
    assert overlap.push(x).values == vector(3.0)
    assert x == vector(15.25)
    assert overlap.correction == vector(0.5)
    # It holds the third window (p = 1) and has moved -2 in 1 step.
    walk(overlap, x, 1.0)
    arrive(overlap, 3, vector(11.0), 1.0)
    assert overlap.push(x).values == vector(1.0)
    assert overlap.correction == vector(-3.0)


def test_a_blocking_round_is_corrected_by_the_round_just_merged():
    x = vector(0.0)
    overlap = corrected(x, Rule())
    walk(overlap, x, 1.0, 3.0)
    assert overlap.push(x).values == vector(4.0)
    # p = 2, P = 6 / 2: this is c - c_i of SCAFFOLD's option II, in the unit of progress.
    arrive(overlap, 1, vector(6.0), 2.0)
    overlap.adopt(x)
    assert overlap.correction == vector(1.0)
    walk(overlap, x, 1.0, 1.0)
    assert x == vector(10.0)
    assert overlap.push(x).values == vector(2.0)
    # p = 1 without the corrections, P = -1.
    arrive(overlap, 2, vector(4.0), 2.0)
    overlap.adopt(x)
    assert overlap.correction == vector(-2.0)


@pytest.mark.parametrize(
    ("version", "moved_steps"),
    [
        pytest.param(2, 1.0, id="over two versions the steps are not known"),
        pytest.param(1, 0.0, id="a server that does not say how far its model moved"),
    ],
)
def test_without_knowing_the_others_progress_nothing_is_corrected(version, moved_steps):
    x = vector(0.0)
    overlap = corrected(x)
    walk(overlap, x, 1.0)
    overlap.push(x)
    walk(overlap, x, 1.0)
    arrive(overlap, version, vector(5.0), moved_steps)
    assert overlap.push(x).values == vector(1.0)
    assert overlap.correction is None
    # From the next model on it is known again: p = 1, P = 2.
    walk(overlap, x, 7.0)
    arrive(overlap, version + 1, vector(9.0), 2.0)
    assert overlap.push(x).values == vector(7.0)
    assert overlap.correction == vector(1.0)


def test_a_worker_that_begins_anew_is_not_corrected_until_its_next_push_is_merged():
    x = vector(0.0)
    overlap = corrected(x)
    walk(overlap, x, 1.0)
    overlap.push(x)
    walk(overlap, x, 1.0)
    arrive(overlap, 1, vector(3.0), 1.0)
    overlap.push(x)
    walk(overlap, x, 1.0)
    arrive(overlap, 9, vector(20.0), 1.0, merged=False)
    assert overlap.push(x) is None
    assert overlap.correction is None
    walk(overlap, x, 4.0)
    assert overlap.push(x).values == vector(4.0)
    walk(overlap, x, 1.0)
    arrive(overlap, 10, vector(26.0), 2.0)
    overlap.push(x)
    assert overlap.correction == vector(-1.0)


def test_a_running_statistic_is_not_corrected():
    x = vector(0.0, 5.0)
    overlap = corrected(x, accumulated=1)
    walk(overlap, x, (1.0, 1.0))
    overlap.push(x)
    walk(overlap, x, (1.0, 1.0))
    arrive(overlap, 1, vector(3.0, 6.0), 1.0)
    # Of a statistic its distance to the model is pushed, here the worker's 7 to 6.
    np.testing.assert_array_equal(overlap.push(x).values, vector(1.0, 1.0))
    np.testing.assert_array_equal(overlap.correction, vector(2.0, 0.0))


def policy(**more):
    told = {"overlap": True, "min_steps": 1, "max_steps": None, "codec": "dense", "alpha": 0.5}
    told |= {"merge": "partial", "beta": 0.5, "bootstrap": "fixed", "drift": "infer"}
    return Policy(**told | more)


def test_a_workers_own_merge_rule_must_go_with_the_correction():
    x = vector(0.0)
    machine_of(policy(), x, 0, accumulated=1)
    machine_of(policy(overlap=False, merge="reset"), x, 0, accumulated=1)
    with pytest.raises(ConfigError, match="needs merge partial with 0 < beta < 1, not 'carry'"):
        machine_of(policy(), x, 0, accumulated=1, rule=Rule("carry"))
    with pytest.raises(ConfigError, match="drift is 'guess', known are off, infer"):
        machine_of(policy(drift="guess"), x, 0, accumulated=1)


# Two scalar workers as in the golden trace, f_i = (x - a_i)^2 / 2.
TARGETS, STEP_S, ETA, ONE_WAY_S = (1.0, -0.5), (1.0, 2.3), 0.1, 0.75


@pytest.mark.virtual
async def test_the_golden_trace_with_drift_correction():
    pushes, versions = ([], []), []
    async with (
        Cluster(
            min_workers=2,
            weights="by_steps",
            work="until_model",
            merge="partial:0.5",
            drift="infer",
        ) as cluster,
        AsyncExitStack() as stack,
    ):
        tasks = [asyncio.ensure_future(watch(cluster, versions))]
        clients = [
            cluster.worker(f"w{i}", up=Link(ONE_WAY_S), down=Link(ONE_WAY_S)) for i in (0, 1)
        ]
        for ps in clients:
            await stack.enter_async_context(ps)
            await ps.init({"w": np.zeros(1, np.float32)})
        tasks += [
            asyncio.ensure_future(scalar_worker(ps, i, pushes[i])) for i, ps in enumerate(clients)
        ]
        await asyncio.sleep(12.3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    # The steps between two pushes are those of the trace without correction, since timing knows no values. By hand:
    #
    # v1: steps 1 and 1, so that both pushes weigh a half; P = 0.025 / 1, p = 0.1 and -0.05, d = -0.075 and 0.075.
    # v2: steps 3 and 1, tau = 2, weights 1/3 and 1: 0.025 + 0.0813 - 0.045; P = 0.0363 / 2, p = 0.0813 and -0.045.
    # Third push of W0: from 0.025 + 0.2439 / 2 it goes to 0.9 x + 0.1 - 0.075 three times, 0.027927 in all, of which
    # the corrections were 3 * -0.075: 0.252927 is pushed. That of W1: 0.9 x - 0.05 + 0.075 from 0.0025, less 0.075.
    assert rounded(pushes[0]) == [
        (0.1, 1),
        (0.2439, 3),
        (0.252927, 3),
        (0.182015, 2),
        (0.173317, 2),
    ]
    assert rounded(pushes[1]) == [
        *[(-0.05, 1), (-0.045, 1), (-0.05025, 1), (-0.057368, 1), (-0.059825, 1)]
    ]
    assert [round(v, 6) for v in versions] == [0.025, 0.0613, 0.095359, 0.120589, 0.140714]


def rounded(pushes):
    return [(round(value, 6), steps) for value, steps in pushes]


async def watch(cluster, versions):
    version = 0
    while True:
        version = await cluster.server.version_after(version)
        versions.append(float(cluster.server.params()["w"][0]))


async def scalar_worker(ps, i, pushes):
    async def step(x):
        await asyncio.sleep(STEP_S[i])
        x -= np.float32(ETA) * (x - np.float32(TARGETS[i]))

    push = ps.push_flat

    def note(update, **options):
        pushes.append((float(update[0]), options["n_steps"]))
        return push(update, **options)

    ps.push_flat = note
    await overlapped(ps, np.zeros(1, np.float32), step)


# Label skew in its purest form: every worker has its own optimum and its own curvature, and one is four times slower.
SPEEDS = (1.0, 1.0, 1.3, 4.0)
_RNG = np.random.default_rng(0)
CURVES = _RNG.uniform(0.2, 2.0, (4, 24)).astype(np.float32)
OPTIMA = (3 * _RNG.normal(size=(4, 24))).astype(np.float32)
OPTIMUM = (CURVES * OPTIMA).sum(0) / CURVES.sum(0)


async def skewed(loop_fn, *, rounds=150, leave_at=None, **spec):
    """Train on the quadratics; return how far the model of the last version is from the optimum of them all."""
    async with Cluster(min_workers=4, rounds=rounds, **spec) as cluster, AsyncExitStack() as stack:
        clients = [cluster.worker(f"w{i}", up=Link(2.0), down=Link(2.0)) for i in range(4)]
        for ps in clients:
            await stack.enter_async_context(ps)
            await ps.init({"w": np.zeros(24, np.float32)})

        async def worker(i, ps):
            async def step(x):
                await asyncio.sleep(SPEEDS[i])
                x -= np.float32(0.05) * CURVES[i] * (x - OPTIMA[i])
                return Step(n_samples=8)

            def stop():
                return i == 1 and leave_at is not None and ps.version >= leave_at

            await loop_fn(ps, np.zeros(24, np.float32), step, stop=stop)
            await ps.leave()

        await asyncio.gather(*(worker(i, ps) for i, ps in enumerate(clients)))
        return cluster.server.params()["w"]


def off_by(model, optimum=OPTIMUM):
    return float(np.abs(model - optimum).max())


OVERLAPPED = {"work": "until_model", "merge": "partial:0.5", "weights": "by_steps"}


@pytest.mark.virtual
async def test_with_skewed_data_plain_nbsync_is_biased_and_the_corrected_one_reaches_the_optimum():
    # Without weights by steps the model is pulled to the fast workers' data, with them it still drifts.
    assert off_by(await skewed(overlapped, work="until_model", weights="by_samples")) > 1.0
    assert off_by(await skewed(overlapped, **OVERLAPPED)) > 0.3
    assert off_by(await skewed(overlapped, drift="infer", **OVERLAPPED)) < 1e-4


@pytest.mark.virtual
async def test_blocking_rounds_are_corrected_too_as_scaffold():
    fedavg = {"sync": "bulk:0", "work": "fixed:10", "weights": "by_steps"}
    assert off_by(await skewed(blocking, rounds=60, **fedavg)) > 0.2
    assert off_by(await skewed(blocking, rounds=60, drift="infer", **fedavg)) < 1e-4


@pytest.mark.virtual
@pytest.mark.parametrize(("codec", "limit"), [("fp16", 0.01), ("bf16", 0.05), ("int8", 0.05)])
async def test_a_codec_that_rounds_costs_no_more_than_what_it_rounds(codec, limit):
    assert off_by(await skewed(overlapped, drift="infer", codec=codec, **OVERLAPPED)) < limit


@pytest.mark.virtual
async def test_the_server_learning_rate_is_no_part_of_the_progress():
    spec = OVERLAPPED | {"server_lr": 0.5}
    assert off_by(await skewed(overlapped, drift="infer", rounds=300, **spec)) < 1e-4


@pytest.mark.virtual
async def test_who_leaves_takes_its_corrections_along():
    rest = [0, 2, 3]
    optimum = (CURVES * OPTIMA)[rest].sum(0) / CURVES[rest].sum(0)
    model = await skewed(overlapped, drift="infer", leave_at=40, rounds=250, **OVERLAPPED)
    assert off_by(model, OPTIMUM) > 0.3
    assert off_by(model, optimum) < 1e-4


@pytest.mark.virtual
async def test_what_the_model_tells_is_what_an_exchange_of_the_mean_progress_would():
    """A plain simulation of equal workers that send their progress beside the model makes the same versions."""
    rounds, n_steps, lr = 12, 3, np.float64(0.05)
    model, mean, own = np.zeros(24), None, None
    for _ in range(rounds):
        ends = []
        for i in range(4):
            x = model.copy()
            for _ in range(n_steps):
                x -= lr * CURVES[i] * (x - OPTIMA[i]) - (0 if own is None else mean - own[i])
            ends.append((x - model) / n_steps)
        # Both the whole progress, corrections and all, and the progress without them.
        raw = [end - (0 if own is None else mean - own[i]) for i, end in enumerate(ends)]
        model = model + n_steps * np.mean(ends, axis=0)
        mean, own = np.mean(raw, axis=0), raw
    spec = {"sync": "bulk:0", "work": f"fixed:{n_steps}", "weights": "by_steps", "drift": "infer"}
    np.testing.assert_allclose(await skewed(blocking, rounds=rounds, **spec), model, atol=1e-5)
