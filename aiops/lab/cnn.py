"""A small convolutional network in PyTorch, on the labs' flat vector."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aiops.errors import ConfigError
from aiops.lab.model import Gradient, Images, Labels, Vector
from aiops.types import TensorSpec


class Convolutional:
    """Two strided convolutions and two linear layers, after LeNet (LeCun et al., 1998); square grey images.

    Args:
        n_inputs: Pixels of an image, a square number.
        n_classes: Classes.
    """

    def __init__(self, n_inputs: int, n_classes: int) -> None:
        side = math.isqrt(n_inputs)
        if side * side != n_inputs or side < 16:
            raise ConfigError(
                f"images have {n_inputs} pixels, the cnn takes squares of at least 16 x 16"
            )
        torch.set_num_threads(1)
        self._side = side
        # Each 5 x 5 convolution with stride 2 leaves (n - 3) // 2 of n.
        left = ((side - 3) // 2 - 3) // 2
        self._n_classes, self._n_features = n_classes, 16 * left * left

    def _make(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(self._n_features, 64),
            nn.ReLU(),
            nn.Linear(64, self._n_classes),
        )

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The module's parameters in its order."""
        return tuple(
            TensorSpec(name, tuple(parameter.shape), "float32")
            for name, parameter in self._make().named_parameters()
        )

    def initial(self, seed: int) -> Vector:
        """Return PyTorch's start values."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self._make()
        return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])

    def bind(self, x: Vector, out: Vector) -> Gradient:
        """Return the gradient at whatever ``x`` holds when it is called, written into ``out``."""
        module = self._seen(x)
        slopes, at = torch.from_numpy(out), 0
        # Gradients accumulate into views of the caller's vector, so that nothing is gathered.
        for parameter in module.parameters():
            end = at + parameter.numel()
            parameter.grad = slopes[at:end].view(parameter.shape)
            at = end

        def gradient(images: Images, labels: Labels) -> float:
            out.fill(0.0)
            scores = module(self._shaped(images))
            loss = nn.functional.cross_entropy(scores, torch.from_numpy(labels))
            loss.backward()  # type: ignore[no-untyped-call]
            return float(loss.detach())

        return gradient

    @torch.no_grad()
    def scores(self, x: Vector, images: Images) -> NDArray[np.float32]:
        """Return the class scores, float32, shape (samples, classes)."""
        scores: torch.Tensor = self._seen(x)(self._shaped(images))
        return scores.numpy()

    def _shaped(self, images: Images) -> torch.Tensor:
        return torch.from_numpy(images).view(-1, 1, self._side, self._side)

    # A module whose parameters are views of the vector.
    def _seen(self, x: Vector) -> nn.Module:
        module, values, at = self._make(), torch.from_numpy(x), 0
        for parameter in module.parameters():
            end = at + parameter.numel()
            parameter.data = values[at:end].view(parameter.shape)
            at = end
        return module
