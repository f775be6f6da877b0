"""The convolutional network's gradient against autograd on parameters of its own."""

import numpy as np
import pytest

from aiops.errors import ConfigError

torch = pytest.importorskip("torch")

from aiops.lab.cnn import Convolutional  # noqa: E402 -- needs torch


def batch(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, 16 * 16), np.float32), rng.integers(10, size=n)


def twin(model, x):
    """The same network as a module with parameters of its own."""
    module = model._make()
    at = 0
    with torch.no_grad():
        for parameter in module.parameters():
            end = at + parameter.numel()
            parameter.copy_(torch.from_numpy(x[at:end]).view(parameter.shape))
            at = end
    assert at == len(x)
    return module


def test_the_gradient_is_that_of_autograd():
    model = Convolutional(256, 10)
    x, (images, labels) = model.initial(0), batch(8)
    slope = np.full_like(x, np.nan)
    loss = model.bind(x, slope)(images, labels)
    module = twin(model, x)
    scores = module(torch.from_numpy(images).view(-1, 1, 16, 16))
    expected = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels))
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    wanted = np.concatenate([p.grad.numpy().ravel() for p in module.parameters()])
    np.testing.assert_allclose(slope, wanted, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        model.scores(x, images), scores.detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_two_workers_of_one_model_do_not_mix():
    model = Convolutional(256, 10)
    first, second = model.initial(0), model.initial(1)
    slopes = np.zeros_like(first), np.zeros_like(first)
    gradients = model.bind(first, slopes[0]), model.bind(second, slopes[1])
    for gradient in (*gradients, gradients[0]):
        gradient(*batch(4))
    for x, slope in zip((first, second), slopes, strict=True):
        alone = np.empty_like(slope)
        model.bind(x, alone)(*batch(4))
        np.testing.assert_array_equal(slope, alone)


def test_start_values_repeat_and_leave_pytorchs_generator_alone():
    model = Convolutional(256, 10)
    torch.manual_seed(7)
    expected = torch.rand(1).item()
    torch.manual_seed(7)
    np.testing.assert_array_equal(model.initial(3), model.initial(3))
    assert torch.rand(1).item() == expected


@pytest.mark.parametrize("pixels", [64, 300])
def test_images_that_do_not_fit_are_refused(pixels):
    with pytest.raises(ConfigError, match=f"{pixels} pixels, the cnn takes squares of at least"):
        Convolutional(pixels, 10)
