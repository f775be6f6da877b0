import numpy as np
import pytest
from hypothesis import given

from aiops import kernels
from aiops.kernels import _backend, reference
from tests.kernels.kit import LEVELS, assert_same_bits, noise, on_level, vectors, weights

# The last one is written past the caches.
SIZES = [0, 1, 15, 16, 17, 63, 64, 65, 1000, 8 * 2**20 // 12 + 7]

each_level = pytest.mark.parametrize("level", LEVELS)


def run(name, *arguments, level):
    return on_level(getattr(_backend.optimizer, name), *arguments, level=level)


@given(vectors(3), weights)
def test_sgd_is_the_numpy_expression(arrays, rate):
    params, update, out = arrays
    with np.errstate(all="ignore"):
        want = params + np.float32(rate) * update
    bad = kernels.first_nonfinite(want)
    for level in LEVELS:
        assert run("sgd", params, update, rate, out, False, level=level) == bad
        assert_same_bits(out, want)
    assert reference.sgd(params, update, rate, out, False) == bad
    assert_same_bits(out, want)


@pytest.mark.parametrize("nesterov", [False, True])
@given(vectors(3), weights, weights)
def test_momentum_is_the_numpy_expression(nesterov, arrays, rate, beta):
    params, velocity, update = arrays
    share, factor = np.float32(beta), np.float32(rate)
    with np.errstate(all="ignore"):
        moved = share * velocity + update
        want = params + factor * (update + share * moved if nesterov else moved)
    for level in LEVELS:
        mine, out = velocity.copy(), np.empty_like(params)
        bad = run("momentum", params, mine, update, rate, beta, nesterov, out, False, level=level)
        assert bad == kernels.first_nonfinite(want)
        assert_same_bits(mine, moved)
        assert_same_bits(out, want)


@each_level
@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_every_size_is_stepped_in_place_and_into_a_fresh_snapshot(n, in_place, bypass, level):
    params, velocity, update = (noise(n + 3, seed)[3:] for seed in range(3))
    want, moved = np.empty_like(params), velocity.copy()
    reference.momentum(params, moved, update, 0.1, 0.9, True, want, bypass)
    out = params if in_place else np.empty_like(params)
    assert run("momentum", params, velocity, update, 0.1, 0.9, True, out, bypass, level=level) == -1
    assert_same_bits(out, want)
    assert_same_bits(velocity, moved)
    want = out + np.float32(0.1) * update
    assert run("sgd", out, update, 0.1, out, bypass, level=level) == -1
    assert_same_bits(out, want)


@each_level
@pytest.mark.parametrize("at", [0, 20, 99])
def test_the_first_parameter_that_is_not_finite_is_named(at, level):
    params, velocity, update = (noise(100, seed) for seed in range(3))
    update[at:] = np.inf
    out = np.empty_like(params)
    assert run("sgd", params, update, 0.5, out, False, level=level) == at
    assert run("momentum", params, velocity, update, 0.5, 0.9, False, out, False, level=level) == at


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_agrees_with_torch(nesterov):
    torch = pytest.importorskip("torch")
    params, velocity = noise(1000, 1), np.zeros(1000, np.float32)
    theirs = torch.nn.Parameter(torch.from_numpy(params.copy()))
    optimizer = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, nesterov=nesterov)
    for step in range(5):
        update = noise(1000, 10 + step)
        theirs.grad = torch.from_numpy(-update)
        optimizer.step()
        kernels.momentum(
            params, velocity, update, rate=0.1, beta=0.9, nesterov=nesterov, out=params
        )
    # torch may fuse a product and a sum, which rounds once instead of twice.
    np.testing.assert_allclose(params, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
