"""A small convolutional network in PyTorch, on the labs' flat vector."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aiops.errors import ConfigError
from aiops.lab.model import Images, Labels, Vector
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
        self._module = self._make()
        # The vectors that the module's parameters and gradients are views of.
        self._bound: tuple[Vector, Vector] | None = None

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
            for name, parameter in self._module.named_parameters()
        )

    def initial(self, seed: int) -> Vector:
        """Return PyTorch's start values."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self._make()
        return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])

    def gradient(self, x: Vector, images: Images, labels: Labels, *, out: Vector) -> float:
        """Write the gradient of the mean loss at ``x`` into ``out`` and return the loss."""
        self._bind(x, out)
        out.fill(0.0)
        loss = nn.functional.cross_entropy(self._forward(images), torch.from_numpy(labels))
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss)

    @torch.no_grad()
    def scores(self, x: Vector, images: Images) -> NDArray[np.float32]:
        """Return the class scores, float32, shape (samples, classes)."""
        self._bind(x, np.empty_like(x))
        return self._forward(images).numpy()

    def _forward(self, images: Images) -> torch.Tensor:
        shaped = torch.from_numpy(images).view(-1, 1, self._side, self._side)
        result: torch.Tensor = self._module(shaped)
        return result

    # Gradients accumulate into views of the caller's vector, so that nothing is gathered.
    def _bind(self, x: Vector, out: Vector) -> None:
        if self._bound is not None and self._bound[0] is x and self._bound[1] is out:
            return
        values, slopes, at = torch.from_numpy(x), torch.from_numpy(out), 0
        for parameter in self._module.parameters():
            end = at + parameter.numel()
            parameter.data = values[at:end].view(parameter.shape)
            parameter.grad = slopes[at:end].view(parameter.shape)
            at = end
        self._bound = (x, out)
