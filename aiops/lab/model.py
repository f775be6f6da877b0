"""A perceptron in plain numpy on one flat vector: what the labs train where a framework would only cost time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aiops.types import TensorSpec

Vector = NDArray[np.float32]
Images = NDArray[np.float32]
Labels = NDArray[np.int64]


Gradient = Callable[[Images, Labels], float]
"""Writes the gradient of the mean loss over a batch into its vector and returns the loss."""


class Model(Protocol):
    """What the labs train: parameters are one flat float32 vector, shape (n,), owned by the caller."""

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The tensors in the order of the vector."""

    def initial(self, seed: int) -> Vector:
        """Return start values; the same for the same seed."""

    def bind(self, x: Vector, out: Vector) -> Gradient:
        """Return the gradient at whatever ``x`` holds when it is called, written into ``out``."""

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

    def bind(self, x: Vector, out: Vector) -> Gradient:
        """Return the gradient at whatever ``x`` holds when it is called, written into ``out``."""
        return _Slope(self._layers(x), self._layers(out))

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


# Calls into numpy are most of what a batch of 32 costs beside its matrix products, so they are few, views are made
# once, and what a batch leaves behind is written over by the next one.
class _Slope:
    def __init__(
        self, layers: list[tuple[Vector, Vector]], slots: list[tuple[Vector, Vector]]
    ) -> None:
        self._layers, self._slots = layers, slots
        self._outputs: list[Vector] = []
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)

    def __call__(self, images: Images, labels: Labels) -> float:
        if len(self._rows) != len(labels):
            self._make_room(len(labels))
        layers, slots, outputs = self._layers, self._slots, self._outputs
        values, last = images, len(layers) - 1
        for number, (weight, bias) in enumerate(layers):
            values = np.matmul(values, weight, out=outputs[number])
            values += bias
            if number < last:
                np.maximum(values, 0.0, out=values)
        values -= np.maximum.reduce(values, axis=1, keepdims=True)
        np.exp(values, out=values)
        values /= np.add.reduce(values, axis=1, keepdims=True)
        likely = values[self._rows, labels]
        values[self._rows, labels] = likely - 1.0
        values *= np.float32(1.0 / len(labels))
        for number in range(last, -1, -1):
            below = outputs[number - 1] if number else images
            np.matmul(below.T, values, out=slots[number][0])
            np.add.reduce(values, axis=0, out=slots[number][1])
            if number:
                values = values @ layers[number][0].T
                values *= below > 0
        return -float(np.add.reduce(np.log(np.maximum(likely, 1e-30)))) / len(labels)

    def _make_room(self, n: int) -> None:
        self._rows = np.arange(n)
        self._outputs = [np.empty((n, weight.shape[1]), np.float32) for weight, _ in self._layers]
