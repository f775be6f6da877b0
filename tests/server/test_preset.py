"""What a server makes of pushes under each preset with barriers, or with none: versions worked out by hand.

Workers push what a test says; their own part of an algorithm is tested in tests/worker. FedAsync and DC-ASGD are in
test_compensated.py, FedBuff in test_buffer.py.
"""

import math

import numpy as np
import pytest

from aiops.policy.preset import PRESETS, preset
from tests.server.kit import ONES, cluster, settle, value

pytestmark = pytest.mark.virtual

# Two rounds of two workers, who have 1 and 3 samples: each round's (updates, steps).
ROUNDS = [((2.0, 6.0), (2, 4)), ((-2.0, 2.0), (2, 4))]
SAMPLES = (1, 3)

# By samples a round's update is (2 + 3 * 6) / 4 = 5 and (-2 + 3 * 2) / 4 = 1, each worker alike 4 and 0.
ADAM_V = 0.99e-6 + 0.01 * 25
YOGI_V = 1e-6 + 0.01 * 25
TAU = 0.001

EXPECTED = {
    "ssgd": (5.0, 6.0),
    "fedavg": (5.0, 6.0),
    "fedprox": (5.0, 6.0),
    "esync": (5.0, 6.0),
    "localsgd": (4.0, 4.0),
    # tau = 1/4 * 2 + 3/4 * 4 = 3.5: 3.5 * (2 / 2 / 4 + 3 * 6 / 4 / 4), 3.5 * (-2 / 2 / 4 + 3 * 2 / 4 / 4)
    "fednova": (3.5 * 1.375, 3.5 * 1.375 + 3.5 * 0.125),
    # tau = (2 + 4) / 2 = 3: 3 * (2 / 2 + 6 / 4) / 2, 3 * (-2 / 2 + 2 / 4) / 2
    "scaffold": (3.75, 3.0),
    # v: 5, 5.5
    "fedavgm": (5.0, 10.5),
    # v: 4, 3.6; 0.7 * (4 + 0.9 * 4), 0.7 * (0 + 0.9 * 3.6)
    "diloco": (5.32, 7.588),
    # m: 0.5, 0.55; the second moment takes in 1.
    "fedadam": (
        0.005 / (math.sqrt(ADAM_V) + TAU),
        0.005 / (math.sqrt(ADAM_V) + TAU) + 0.0055 / (math.sqrt(0.99 * ADAM_V + 0.01) + TAU),
    ),
    # The second moment moves by 0.01 * 25 and 0.01 * 1 towards the square, up both times.
    "fedyogi": (
        0.005 / (math.sqrt(YOGI_V) + TAU),
        0.005 / (math.sqrt(YOGI_V) + TAU) + 0.0055 / (math.sqrt(YOGI_V + 0.01) + TAU),
    ),
    # The sum of squares is 25, then 26; without a mean.
    "fedadagrad": (
        0.05 / (math.sqrt(25 + 1e-6) + TAU),
        0.05 / (math.sqrt(25 + 1e-6) + TAU) + 0.01 / (math.sqrt(26 + 1e-6) + TAU),
    ),
}

LATE = {
    # Both rounds' pushes are one version late, but for the first.
    "nbsync": (5.0, 6.0),
    # Autopilot changes how updates travel and what a worker keeps, not what rounds come to.
    "nbsync-auto": (5.0, 6.0),
    # v: 5, 0.8 * 5 + 1 = 5; 0.5 * (5 + 0.8 * 5), 0.5 * (1 + 0.8 * 5)
    "nbsync-nesterov": (4.5, 7.0),
    "eager": (4.0, 4.0),
}

# Pushes of 4, 8 and 2 by workers A, B and A, B having started from version 0: its push is 1 version late.
ON_ARRIVAL = {
    "asp": (4.0, 12.0, 14.0),
    "ssp": (4.0, 12.0, 14.0),
    "dssp": (4.0, 12.0, 14.0),
    # 8 / (1 + 1)
    "nbsync-async": (4.0, 8.0, 10.0),
}

ELSEWHERE = {
    *("fedasync", "fedasync-constant", "fedasync-hinge", "dcasgd", "dcasgd-adaptive"),
    "fedbuff",
    "streaming-diloco",
}


def test_every_preset_is_worked_out_somewhere():
    assert {*EXPECTED, *LATE, *ON_ARRIVAL} | ELSEWHERE == set(PRESETS)


async def run(hand, name, bases):
    async with cluster(**preset(name), min_workers=2) as house:
        workers, versions = [await hand(house) for _ in range(2)], []
        for sequence, ((updates, steps), base) in enumerate(zip(ROUNDS, bases, strict=True), 1):
            for worker, update, n_samples, n_steps in zip(
                workers, updates, SAMPLES, steps, strict=True
            ):
                await worker.send_push(
                    sequence, update * ONES, base=base, n_samples=n_samples, n_steps=n_steps
                )
                if worker is workers[0]:
                    # Half a round changes nothing, however long it is there.
                    await settle()
                    assert house.server.version == sequence - 1
            for worker in workers:
                await worker.events.get()
            assert house.server.version == sequence
            versions.append(value(house))
    return versions


@pytest.mark.parametrize("name", EXPECTED)
async def test_full_rounds(hand, name):
    np.testing.assert_allclose(await run(hand, name, (0, 1)), EXPECTED[name], rtol=1e-6)


@pytest.mark.parametrize("name", LATE)
async def test_full_rounds_one_version_late(hand, name):
    assert await run(hand, name, (0, 0)) == pytest.approx(LATE[name], rel=1e-6)


@pytest.mark.parametrize("name", ON_ARRIVAL)
async def test_every_push_a_version(hand, name):
    async with cluster(**preset(name)) as house:
        a, b = [await hand(house) for _ in range(2)]
        versions = []
        for worker, sequence, update, base in ((a, 1, 4, 0), (b, 1, 8, 0), (a, 2, 2, 2)):
            await worker.push(sequence, update * ONES, base=base)
            versions.append(value(house))
        assert (house.server.version, tuple(versions)) == (3, ON_ARRIVAL[name])
