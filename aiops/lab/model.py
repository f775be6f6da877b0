"""A perceptron in plain numpy on one flat vector: what the labs train where a framework would only cost time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aiops.types import TensorSpec

Vector = NDArray[np.float32]
Images = NDArray[np.float32]
Labels = NDArray[np.int64]


class Model(Protocol):
    """What the labs train: parameters are one flat float32 vector, shape (n,), owned by the caller."""

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The tensors in the order of the vector."""

    def initial(self, seed: int) -> Vector:
        """Return start values; the same for the same seed."""

    def gradient(self, x: Vector, images: Images, labels: Labels, *, out: Vector) -> float:
        """Write the gradient of the mean loss at ``x`` into ``out`` and return the loss."""

    def scores(self, x: Vector, images: Images) -> NDArray[np.float32]:
        """Return the class scores, float32, shape (samples, classes)."""


class Perceptron:
    """Fully connected layers with ReLU between them, and softmax cross-entropy.

    Args:
        sizes: Inputs, widths of the hidden layers, classes.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._shapes = list(itertools.pairwise(sizes))
        self.size = sum(rows * columns + columns for rows, columns in self._shapes)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Weights (inputs, outputs) and biases, layer by layer."""
        return tuple(
            TensorSpec(f"{name}{number}", shape, "float32")
            for number, (rows, columns) in enumerate(self._shapes)
            for name, shape in (("weight", (rows, columns)), ("bias", (columns,)))
        )

    def initial(self, seed: int) -> Vector:
        """Return uniform start values of +-1/sqrt(inputs), which is PyTorch's choice for linear layers."""
        rng = np.random.default_rng([seed, 7])
        flat = np.empty(self.size, np.float32)
        for weight, bias in self._layers(flat):
            bound = 1.0 / np.sqrt(weight.shape[0])
            weight[...] = rng.uniform(-bound, bound, weight.shape)
            bias[...] = rng.uniform(-bound, bound, bias.shape)
        return flat

    def gradient(self, x: Vector, images: Images, labels: Labels, *, out: Vector) -> float:
        """Write the gradient of the mean loss at ``x`` into ``out`` and return the loss."""
        layers, slots = self._layers(x), self._layers(out)
        inputs = [images]
        for weight, bias in layers[:-1]:
            hidden = inputs[-1] @ weight
            hidden += bias
            np.maximum(hidden, 0.0, out=hidden)
            inputs.append(hidden)
        weight, bias = layers[-1]
        scores = inputs[-1] @ weight
        scores += bias
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -float(np.log(np.maximum(scores[rows, labels], 1e-30)).sum()) / len(labels)
        scores[rows, labels] -= 1.0
        scores /= np.float32(len(labels))
        error = scores
        for number in range(len(layers) - 1, -1, -1):
            np.matmul(inputs[number].T, error, out=slots[number][0])
            np.sum(error, axis=0, out=slots[number][1])
            if number:
                error = error @ layers[number][0].T
                error *= inputs[number] > 0
        return loss

    def scores(self, x: Vector, images: Images) -> NDArray[np.float32]:
        """Return the class scores, float32, shape (samples, classes)."""
        values = images
        layers = self._layers(x)
        for number, (weight, bias) in enumerate(layers):
            values = values @ weight
            values += bias
            if number < len(layers) - 1:
                np.maximum(values, 0.0, out=values)
        return values

    # Weight and bias of each layer, as views.
    def _layers(self, flat: Vector) -> list[tuple[Vector, Vector]]:
        layers, at = [], 0
        for rows, columns in self._shapes:
            end = at + rows * columns
            layers.append((flat[at:end].reshape(rows, columns), flat[end : end + columns]))
            at = end + columns
        return layers
