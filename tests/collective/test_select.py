"""Which sums are moved out."""

import numpy as np
import pytest

from aiops.collective.select import Layerwise, MsTopk, largest, selection
from tests.collective.kit import gradients

LAYERS = (10, 300, 7, 1683)


@pytest.mark.parametrize("name", ["largest", "layerwise", "mstopk"])
@pytest.mark.parametrize("k", [0, 1, 20, 200, 1999, 2000])
def test_k_are_moved_and_the_rest_stays(name, k):
    residual, update = gradients(2, 2000)
    out = np.empty(2000, np.float32)
    found = selection(name, LAYERS, 0)(residual, update, k, out)
    whole = residual + update
    assert found.index.dtype == np.uint32
    assert found.index.size == k
    assert (np.diff(found.index.astype(np.int64)) > 0).all()
    np.testing.assert_array_equal(found.value, whole[found.index])
    assert (out[found.index] == 0).all()
    out[found.index] = found.value
    np.testing.assert_array_equal(out, whole)
    assert found.energy == pytest.approx(np.square(whole, dtype=np.float64).sum(), rel=1e-5)
    assert found.moved_energy == pytest.approx(
        np.square(found.value, dtype=np.float64).sum(), rel=1e-5
    )


@pytest.mark.parametrize("name", ["largest", "layerwise", "mstopk"])
def test_what_is_not_finite_is_refused_with_the_whole_sum(name):
    residual, update = gradients(2, 2000)
    update[1500] = np.nan
    out = np.empty(2000, np.float32)
    with pytest.raises(ValueError, match="not finite"):
        selection(name, LAYERS, 0)(residual, update, 20, out)
    np.testing.assert_array_equal(out, residual + update)


def test_every_layer_sends_its_share():
    residual, update = np.zeros(2000, np.float32), gradients(1, 2000)[0]
    found = Layerwise(LAYERS)(residual, update, 200, np.empty(2000, np.float32))
    counts = np.histogram(found.index, np.cumsum((0, *LAYERS)))[0]
    np.testing.assert_allclose(counts, np.array(LAYERS) / 10, atol=1)


def test_a_threshold_finds_nearly_the_largest():
    residual, update = np.zeros(20000, np.float32), gradients(1, 20000)[0]
    exact = largest(residual, update, 200, np.empty(20000, np.float32))
    found = MsTopk()(residual, update, 200, np.empty(20000, np.float32))
    assert found.moved_energy > 0.999 * exact.moved_energy
