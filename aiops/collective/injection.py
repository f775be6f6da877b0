"""Data injection in a training loop over torch.distributed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from aiops.collective.share import Shared, share
from aiops.collective.state import ArTopkState
from aiops.errors import ConfigError
from aiops.policy.stream import InjectionRule
from aiops.wire.record import Records

Batch = TypeVar("Batch", torch.Tensor, NDArray[Any])


class Injector:
    """Randomised data injection (Tyagi and Swany, 2022) among the ranks of a job; one for a training, on every rank.

    ``x, y = injector.share(x, y)`` before the forward pass, and ``samples=len(y)`` where gradients are weighed by them.

    Args:
        state: Over whose group samples travel.
        injection: Who gives what; the same on every rank, which every step checks.

    Attributes:
        step: Steps shared. It is in :meth:`state_dict`, so that a training which goes on draws as it would have.
        last: What the last step came to; None before the first. The batch's samples from ``last.draw.own[rank]`` on
            were not used: they may be part of the next one.
    """

    def __init__(self, state: ArTopkState, injection: InjectionRule) -> None:
        self.step = 0
        self.last: Shared | None = None
        self._state = state
        self._injection = injection

    def share(self, x: Batch, y: Batch) -> tuple[Batch, Batch]:
        """Return the first samples of a batch, and what other ranks gave of theirs; a collective call.

        Args:
            x: Samples, shape (n, ...), integers or floats that numpy has; a tensor on any device. n may be 0; then
                the rest of the shape and the dtype may be others than on other ranks.
            y: Labels, shape (n,), whole numbers.

        Returns:
            Samples as ``x``, and labels in int64, in memory of their own; tensors where ``x`` is one, on its device.

        Raises:
            ConfigError: A rank's batch cannot be shared or looks different, or the ranks were told different things; on
                every rank alike, and the step does not count.
            RankLost: A rank is gone.
        """
        own: Records | ConfigError
        try:
            own = Records.of(_plain(x), _plain(y))
        except (ConfigError, TypeError) as error:
            # Every rank has to hear of it.
            own = ConfigError(str(error))
        state = self._state
        dialogue = share(own, self._injection, self.step, rank=state.rank, ranks=state.ranks)
        self.last = state.run(dialogue)
        self.step += 1
        records = self.last.records
        return _like(records.samples, x), _like(records.labels, x)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {"step": self.step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`.

        Raises:
            ConfigError: It holds no step.
        """
        step = state.get("step")
        if type(step) is not int or step < 0:
            raise ConfigError(f"the injector's step is {step!r}, it must be a whole number >= 0")
        self.step = step


# What numpy has no dtype for is a TypeError.
def _plain(batch: torch.Tensor | NDArray[Any]) -> NDArray[Any]:
    return batch.detach().cpu().numpy() if isinstance(batch, torch.Tensor) else np.asarray(batch)


def _like(values: NDArray[Any], batch: torch.Tensor | NDArray[Any]) -> Any:  # noqa: ANN401 -- as the batch is
    return torch.from_numpy(values).to(batch.device) if isinstance(batch, torch.Tensor) else values
