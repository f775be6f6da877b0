"""What a training goes on from, in memory: its model, its optimizer and its random numbers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import nn

from aiops.collective.randomness import RandomState


class Stateful(Protocol):
    """Something with a state: an optimizer, a schedule of learning rates, a scaler of gradients."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:  # noqa: ANN401 -- theirs to say
        """Go on from a state."""


class Checkpoint:
    """A copy of the present, which can be restored any number of times.

    It takes as much memory as the parameters, their gradients and the other states together.

    Args:
        model: Its parameters, gradients and buffers, those too that no state dict has.
        others: Whatever else changes in a step.
    """

    __slots__ = ("_gradients", "_random", "_states", "_tensors")

    def __init__(self, model: nn.Module, others: Sequence[Stateful]) -> None:
        stated = model.state_dict()
        self._states = [(each, copy.deepcopy(each.state_dict())) for each in (model, *others)]
        self._tensors = [
            (buffer, buffer.detach().clone())
            for name, buffer in model.named_buffers()
            if name not in stated
        ]
        self._gradients = [(each, each.grad) for each in model.parameters()]
        self._tensors += [
            (gradient, gradient.detach().clone())
            for _, gradient in self._gradients
            if gradient is not None
        ]
        self._random = RandomState.now()

    @torch.no_grad()
    def restore(self) -> None:
        """Make the present what it was."""
        for each, state in self._states:
            # An optimizer keeps the tensors that it is given.
            each.load_state_dict(copy.deepcopy(state))
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        for tensor, value in self._tensors:
            tensor.copy_(value)
        self._random.restore()
