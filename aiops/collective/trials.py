"""The candidate evaluation of AR-Topk: every candidate trains a few steps from the same checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from aiops.collective.checkpoint import Checkpoint, Stateful
from aiops.collective.rewind import Rewind
from aiops.collective.state import ArTopkState
from aiops.errors import ConfigError
from aiops.policy.exchange import Exchange

# The paper's.
ITERATIONS = 10


@dataclass(frozen=True, slots=True)
class Trial:
    """What a candidate came to.

    Attributes:
        exchange: How gradients were exchanged.
        gain: Mean over its steps of the energy sent over the energy there, of all ranks together, in [0, 1].
        seconds: Mean of a whole step, on this rank.
    """

    exchange: Exchange
    gain: float
    seconds: float


class Trials:
    """Measures the gains of a training whose density is ``"adaptive_trials"``.

    AR-Topk's candidate evaluation (Tyagi and Swany, 2023, section 3-E): from a checkpoint in memory each candidate
    trains some steps on the batches that come next, and everything is as before afterwards: model, gradients,
    optimizer, residual, random numbers and loader. The authors' code restores the model alone, takes batches of the
    test set and begins with an empty residual, so that its gains are too large.

    Args:
        state: Of the exchange.
        model: What is trained; DistributedDataParallel's or what is in it.
        optimizer: Its optimizer.
        batches: Where a step takes its batches from.
        also: Whatever else changes in a step: a schedule of learning rates, a scaler of gradients.
        iterations: Steps of a candidate, >= 1.

    Raises:
        ConfigError: ``batches`` cannot be rewound, or ``iterations`` is out of range.
    """

    __slots__ = ("_batches", "_iterations", "_model", "_others", "_state")

    def __init__(
        self,
        state: ArTopkState,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Rewind[Any],
        *,
        also: Sequence[Stateful] = (),
        iterations: int = ITERATIONS,
    ) -> None:
        if not isinstance(batches, Rewind):
            raise ConfigError(
                f"batches are a {type(batches).__name__}, which cannot be drawn twice: use Rewind(batches)"
            )
        if iterations < 1:
            raise ConfigError(f"iterations is {iterations}, it must be a whole number >= 1")
        self._state = state
        self._model = model
        self._others = (optimizer, *also)
        self._batches = batches
        self._iterations = iterations

    def measure(self, step: Callable[[], object]) -> tuple[Trial, ...]:
        """Try what the last exchange said is to be tried; nothing where that is nothing. A collective call.

        The next step decides on it.

        Args:
            step: One step of the training: the next batch, forward, backward, exchange, optimizer.

        Raises:
            ConfigError: A step exchanged no gradients, or drew no batch.
            Exception: Whatever a step raises. Everything is as before then too, and it is still to be tried.
        """
        last = self._state.last
        if last is None or not last.trials:
            return ()
        found = []
        checkpoint = Checkpoint(self._model, self._others)
        self._batches.mark()
        try:
            for exchange in last.trials:
                try:
                    found.append(self._try(exchange, step))
                finally:
                    self._batches.rewind()
                    checkpoint.restore()
        finally:
            self._batches.release()
        self._state.tried({trial.exchange.density: trial.gain for trial in found})
        return tuple(found)

    def _try(self, exchange: Exchange, step: Callable[[], object]) -> Trial:
        begun = time.monotonic()
        with self._state.trial(exchange) as outcomes:
            for _ in range(self._iterations):
                step()
        seconds = time.monotonic() - begun
        if not outcomes:
            raise ConfigError("a step exchanged no gradients, so that nothing can be tried by it")
        if not self._batches.n_drawn:
            raise ConfigError("a step drew no batch of batches, so that its data cannot come again")
        gain = math.fsum(outcome.gain for outcome in outcomes) / len(outcomes)
        return Trial(exchange, gain, seconds / self._iterations)
