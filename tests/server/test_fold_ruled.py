"""Pushes that are added up as they come are stepped along and coded like those that are kept."""

import numpy as np
import pytest

from aiops.sim.cluster import Cluster
from aiops.types import TensorSpec
from tests.server.kit import cluster

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize(
    "spec", [{"optimizer": "momentum:1,0.5"}, {"optimizer": "adam"}, {"down": "topk:0.5"}], ids=str
)
@pytest.mark.parametrize("codec", ["dense", "topk:0.5"])
async def test_a_folded_round_comes_to_what_an_ordered_one_does(spec, codec):
    models = []
    for fold in ("ordered", "arrival"):
        rng = np.random.default_rng(4)
        async with (
            cluster(8, fold=fold, codec=codec, weights="uniform", min_workers=2, **spec) as house,
            house.worker("a") as a,
            house.worker("b") as b,
        ):
            await a.init()
            await b.init()
            for _ in range(4):
                updates = rng.standard_normal((2, 8)).astype(np.float32)
                tickets = [ps.sync({"w": u}) for ps, u in zip((a, b), updates, strict=True)]
                for ticket in tickets:
                    model = await ticket
            models.append(model["w"])
            np.testing.assert_array_equal(model["w"], house.server.params()["w"])
    np.testing.assert_allclose(models[0], models[1], rtol=1e-5, atol=1e-6)


async def test_running_statistics_of_a_folded_round_stay_plain_means():
    specs = [TensorSpec("w", (4,), "float32"), TensorSpec("m", (4,), "float32", averaged=True)]
    spec = {"fold": "arrival", "weights": "uniform", "min_workers": 2}
    async with (
        Cluster(optimizer="momentum:1,0.5", **spec) as house,
        house.worker("a") as a,
        house.worker("b") as b,
    ):
        for ps in (a, b):
            await ps.init_flat(specs, lambda _, flat: flat.fill(0))
        for expected_w, expected_m in ((2, 2), (5, 4)):
            tickets = [
                ps.push_flat(np.full(8, change, np.float32)) for ps, change in ((a, 1), (b, 3))
            ]
            for ticket in tickets:
                flat = (await ticket).flat
            assert flat.tolist() == [expected_w] * 4 + [expected_m] * 4
