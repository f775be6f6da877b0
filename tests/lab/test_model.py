"""The perceptron's gradient against differences, and against PyTorch."""

import itertools

import numpy as np
import pytest

from aiops.lab.model import Perceptron


def batch(n, n_inputs, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, n_inputs), np.float32), rng.integers(n_classes, size=n)


def loss_at(model, x, images, labels):
    scores = model.scores(x, images).astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return -logs[np.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("sizes", [(5, 3), (5, 7, 3), (4, 6, 5, 3)])
def test_the_gradient_is_that_of_the_loss(sizes):
    model = Perceptron(sizes)
    x, (images, labels) = model.initial(3), batch(9, sizes[0], sizes[-1])
    slope = np.full_like(x, np.nan)
    loss = model.bind(x, slope)(images, labels)
    assert loss == pytest.approx(loss_at(model, x, images, labels), rel=1e-5)
    # The loss in doubles, so that steps are small enough to stay on one side of every kink.
    exact, wide, step = x.astype(np.float64), images.astype(np.float64), 1e-6
    for at in range(len(x)):
        up, down = exact.copy(), exact.copy()
        up[at] += step
        down[at] -= step
        rise = loss_at(model, up, wide, labels) - loss_at(model, down, wide, labels)
        assert slope[at] == pytest.approx(rise / (2 * step), abs=1e-6)


@pytest.mark.parametrize("sizes", [(6, 4), (6, 8, 4), (6, 8, 5, 4)])
def test_the_gradient_is_pytorchs(sizes):
    torch = pytest.importorskip("torch")
    model = Perceptron(sizes)
    x, (images, labels) = model.initial(1), batch(16, sizes[0], sizes[-1])
    slope = np.empty_like(x)
    loss = model.bind(x, slope)(images, labels)
    flat = torch.from_numpy(x.copy()).requires_grad_()
    values, at = torch.from_numpy(images), 0
    shapes = list(itertools.pairwise(sizes))
    for number, (rows, columns) in enumerate(shapes):
        weight = flat[at : at + rows * columns].view(rows, columns)
        bias = flat[at + rows * columns : at + rows * columns + columns]
        at += rows * columns + columns
        values = values @ weight + bias
        if number < len(shapes) - 1:
            values = values.relu()
    expected = torch.nn.functional.cross_entropy(values, torch.from_numpy(labels))
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(slope, flat.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_what_is_bound_follows_the_parameters_and_the_batch():
    model = Perceptron((5, 4, 3))
    x, slope = model.initial(0), np.empty(model.size, np.float32)
    gradient = model.bind(x, slope)
    gradient(*batch(4, 5, 3))
    x[:] = model.initial(1)
    gradient(*batch(6, 5, 3, seed=2))
    fresh = np.empty_like(slope)
    model.bind(model.initial(1), fresh)(*batch(6, 5, 3, seed=2))
    np.testing.assert_array_equal(slope, fresh)


def test_start_values_repeat_and_lie_within_pytorchs_bounds():
    model = Perceptron((100, 10))
    assert model.size == sum(int(np.prod(spec.shape)) for spec in model.specs) == 1010
    np.testing.assert_array_equal(model.initial(5), model.initial(5))
    assert np.abs(model.initial(5)).max() <= 0.1
    assert (model.initial(5) != model.initial(6)).all()
