"""The proximal term: hand-computed steps, and where it holds the workers."""

import asyncio

import numpy as np
import pytest

from aiops.errors import ConfigError
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.worker.machine import Rule
from aiops.worker.overlap import overlapped
from aiops.worker.proximal import Proximal
from aiops.worker.rounds import blocking
from aiops.worker.ticket import Snapshot

pytestmark = pytest.mark.virtual

LR = 0.125


def vector(*values):
    return np.array(values, np.float32)


def test_a_step_is_pulled_towards_the_anchor_from_where_it_began():
    x = vector(1.0, 8.0)
    term = Proximal(x, 0.5, accumulated=1)
    x += vector(2.0, 1.0)
    term.note(x)
    x += vector(5.0, 1.0)
    # 3 lies 2 above the anchor of 1: the term's gradient is 0.5 * 2. The statistic behind it is left alone.
    term.pull(x, 0.25)
    np.testing.assert_array_equal(x, vector(8.0 - 0.25 * 0.5 * 2, 10.0))
    term.adopt(Snapshot(1, vector(4.0, 0.0)))
    term.note(x)
    term.pull(x, 1.0)
    np.testing.assert_array_equal(x, vector(7.75 - 0.5 * 3.75, 10.0))


async def trained(loop_fn, *, lr=LR, rounds=2, spec, **options):
    """Train f(x) = (x - 1)^2 / 2 alone, from 0; return every value that a step left behind, and the last model."""
    seen = []
    async with (
        Cluster(rounds=rounds, proximal=2.0, **spec) as cluster,
        cluster.worker("w", up=Link(0.75), down=Link(0.5)) as ps,
    ):
        await ps.init({"w": np.zeros(1, np.float32)})
        x = np.zeros(1, np.float32)

        async def step(x):
            seen.append(float(x[0]))
            await asyncio.sleep(1.0)
            x -= np.float32(LR) * (x - 1)

        await loop_fn(ps, x, step, lr=lr, **options)
        return [*seen, float(x[0])], float(cluster.server.params()["w"][0])


async def test_blocking_steps_are_gradient_steps_on_both_terms():
    # x <- x - (x - 1) / 8 - 2 (x - w) / 8 = (5 x + 1 + 2 w) / 8, w = 0 first and the merged model then.
    seen, model = await trained(blocking, spec={"work": "fixed:2", "sync": "bulk:0"})
    second = 0.125 * (5 * 0.203125 + 1 + 2 * 0.203125)
    third = 0.125 * (5 * second + 1 + 2 * 0.203125)
    assert seen == pytest.approx([0, 0.125, 0.203125, second, third])
    assert model == pytest.approx(third)


async def test_overlapped_steps_are_held_to_the_newest_model_and_not_to_where_a_phase_began():
    # The model of the first step, 0.125, comes 1.25 s after it: two further steps are held to 0, the fourth to it.
    seen, _ = await trained(overlapped, spec={"work": "until_model"}, rule=Rule("carry"))
    third = 0.125 * (5 * 0.203125 + 1)
    # Carry: the model plus what was done since the push.
    merged = 0.125 + (third - 0.125)
    assert seen[:4] == pytest.approx([0, 0.125, 0.203125, merged])
    assert seen[4] == pytest.approx(0.125 * (5 * merged + 1 + 2 * 0.125))


@pytest.mark.parametrize("lr", [None, 0.0, -0.1, float("inf"), float("nan")])
@pytest.mark.parametrize(("loop_fn", "work"), [(blocking, "fixed:2"), (overlapped, "until_model")])
async def test_the_learning_rate_must_be_given(loop_fn, work, lr):
    with pytest.raises(ConfigError, match=f"lr is {lr!r}, the server's proximal term of 2 needs"):
        await trained(loop_fn, lr=lr, spec={"work": work})
