"""A model that all ranks of a lockstep training hold, as one vector, and the exchange of their gradients.

What a rank sends is what it would send over a network. All ranks hold the same parameters after each step, which is
checked, so that one copy of them serves all.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from aiops import data
from aiops.collective.reducer import Outcome
from aiops.collective.request import Dialogue
from aiops.data.base import Dataset
from aiops.policy.exchange import Network
from aiops.sim.ranks import converse

Floats = NDArray[np.float32]
Buffers = Mapping[str, torch.Tensor]

# Fashion-MNIST's.
PIXELS, CLASSES = 784, 10


@functools.cache
def samples() -> Dataset:
    """Return what is trained on."""
    return data.load("fashion-mnist")


class Flat:
    """A module's parameters as one vector, and SGD with momentum on it.

    Args:
        model: Whose start values they are; it takes images of Fashion-MNIST.
        source: The samples.
        momentum: Of the optimizer.
        n_test: Test samples that are looked at.

    Attributes:
        parameters: float32, shape (n,).
        sizes: Values of each of the module's parameters.
    """

    def __init__(
        self, model: torch.nn.Module, source: Dataset, *, momentum: float, n_test: int
    ) -> None:
        self._shapes = {name: each.shape for name, each in model.named_parameters()}
        self.sizes = [shape.numel() for shape in self._shapes.values()]
        self.parameters = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
        self._velocity = torch.zeros_like(self.parameters)
        self._momentum = momentum
        self._model = model
        self._train = torch.from_numpy(source.x_train), torch.from_numpy(source.y_train)
        self._test = (
            torch.from_numpy(source.x_test[:n_test]),
            torch.from_numpy(source.y_test[:n_test]),
        )

    def descend(self, gradient: Floats, lr: float) -> None:
        """Take a step along a gradient of shape (n,)."""
        self._velocity.mul_(self._momentum).add_(torch.from_numpy(gradient))
        self.parameters.sub_(self._velocity, alpha=lr)

    def accuracy(self, buffers: Buffers | None = None) -> float:
        """Return the share of test samples that are classified right.

        Args:
            buffers: What the module knows beside its parameters, by name; its own unless given.
        """
        x, y = self._test
        self._model.eval()
        with torch.no_grad():
            found = self._apply(self.parameters, x, buffers).argmax(1)
        self._model.train()
        return float((found == y).float().mean())

    def _apply(
        self, flat: torch.Tensor, x: torch.Tensor, buffers: Buffers | None = None
    ) -> torch.Tensor:
        parts = zip(self._shapes.items(), flat.split(self.sizes), strict=True)
        named = {name: part.view(shape) for (name, shape), part in parts} | dict(buffers or {})
        found: torch.Tensor = torch.func.functional_call(self._model, named, (x,))
        return found

    def _loss(
        self,
        flat: torch.Tensor,
        x: torch.Tensor,
        y: torch.Tensor,
        buffers: Buffers | None = None,
    ) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self._apply(flat, x, buffers), y)


def exchange(
    dialogues: Sequence[Dialogue[Outcome]], rows: Sequence[Floats], network: Network
) -> tuple[Outcome, float]:
    """Let every rank's reducer replace its gradient.

    Args:
        dialogues: Of the ranks, in their order.
        rows: Their gradients, float32, shape (n,), each the one that is replaced.
        network: What the links are like.

    Returns:
        What the exchange was like on rank 0, and its virtual seconds.

    Raises:
        RuntimeError: The ranks' gradients differ afterwards.
    """
    outcomes, seconds = converse(dialogues, network=network)
    if any(row.tobytes() != rows[0].tobytes() for row in rows):
        raise RuntimeError(f"the ranks' gradients differ after step {outcomes[0].step}")
    return outcomes[0], seconds
