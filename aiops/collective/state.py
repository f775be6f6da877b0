"""What a training keeps for its exchange of gradients: the layout of its parameters, one flat gradient, the reducer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch

from aiops.collective.group import Group
from aiops.collective.reducer import Outcome, Reducer
from aiops.collective.request import ROUTES, Broadcast, Bytes, Dialogue
from aiops.config.exchange import DEFAULT, ExchangeConfig
from aiops.errors import ConfigError
from aiops.policy.exchange import Density, Exchange

T = TypeVar("T")


class ArTopkState:
    """The state of :func:`artopk_hook` and of :func:`reduce_gradients`; one for a training, made on every rank alike.

    All gradients are one flat vector in the order of ``parameters``, float32 in the CPU's memory, whatever their own
    dtype and device. Making it is a collective call: every rank of the job has to.

    Args:
        parameters: What is trained, in the same order on every rank; those that need no gradient are left out.
        density: k/n, or a policy such as ``"adaptive"``; see :class:`aiops.config.exchange.ExchangeConfig` for this and
            the next six.
        collectives: See there.
        values: See there.
        positions: See there.
        select: See there.
        momentum: See there.
        weights: See there.
        deadline_s: Within how many seconds a lost rank is reported by all others, > 0.
        on_step: Called after each exchange with its :class:`aiops.collective.reducer.Outcome`.

    Attributes:
        last: What the last exchange was like; None before the first.
        samples: With weights by samples, to be set before each exchange: what this rank's gradient is the mean of. An
            exchange takes it, so that the next one has to be told anew.

    Raises:
        ConfigError: An argument makes no sense, or torch.distributed is not initialized.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        density: str | float | Density = "fixed:0.01",
        *,
        collectives: str | Sequence[str] = DEFAULT,
        values: str = "fp32",
        positions: str = "elias",
        select: str = "largest",
        momentum: float = 0.0,
        weights: str = "uniform",
        deadline_s: float = 60.0,
        on_step: Callable[[Outcome], None] | None = None,
    ) -> None:
        config = ExchangeConfig.parse(
            density=density,
            collectives=collectives,
            values=values,
            positions=positions,
            select=select,
            momentum=momentum,
            weights=weights,
        )
        self._parameters = [each for each in parameters if each.requires_grad]
        sizes = [each.numel() for each in self._parameters]
        if not sum(sizes):
            raise ConfigError("there are no parameters that need a gradient")
        ends = np.cumsum(sizes).tolist()
        self._places = {
            parameter: slice(end - size, end)
            for parameter, end, size in zip(self._parameters, ends, sizes, strict=True)
        }
        self.flat = torch.zeros(ends[-1], dtype=torch.float32)
        self.pending: list[tuple[Any, torch.futures.Future[torch.Tensor]]] = []
        self._group = Group(deadline_s=deadline_s)
        self._config = config
        self._reducer = self._make(config)
        self._on_step = on_step
        self._ended: float | None = None
        self.last: Outcome | None = None
        self.samples: int | None = None

    @property
    def rank(self) -> int:
        """This rank."""
        return self._group.rank

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self._group.ranks

    def run(self, dialogue: Dialogue[T]) -> T:
        """Return what a dialogue over the job's group comes to; a collective call, between two exchanges.

        Raises:
            RankLost: A rank is gone.
        """
        return self._group.run(dialogue, step=self._reducer.step + 1)

    @property
    def parameters(self) -> Sequence[torch.nn.Parameter]:
        """What is trained, in the order of the flat gradient."""
        return self._parameters

    def view(self, parameter: torch.Tensor) -> torch.Tensor:
        """Return the part of the flat gradient that belongs to ``parameter``, in its shape.

        Raises:
            ConfigError: It is not among the parameters that this was made with.
        """
        place = self._places.get(parameter)  # type: ignore[call-overload]  # a tensor is looked up by identity
        if place is None:
            raise ConfigError(
                f"a parameter of shape {tuple(parameter.shape)} is trained that the state was not made with"
            )
        return self.flat[place].view(parameter.shape)

    def exchange(self) -> Outcome:
        """Replace the flat gradient by the mean of what all ranks send; a collective call.

        Raises:
            NotFinite: A rank's gradient is not finite; on every rank alike, and nothing has changed.
            RankLost: A rank is gone.
            ConfigError: In the first step: the ranks were not told the same. In any: a rank's ``samples`` is missing,
                makes no sense, or is given in vain.
        """
        samples, self.samples = self.samples, None
        now = time.monotonic()
        compute_s = 0.0 if self._ended is None else now - self._ended
        dialogue = self._reducer.reduce(self.flat.numpy(), compute_s=compute_s, samples=samples)
        try:
            self.last = self._group.run(dialogue, step=self._reducer.step + 1)
        finally:
            self._ended = time.monotonic()
        if self._on_step is not None:
            self._on_step(self.last)
        return self.last

    @contextmanager
    def trial(self, exchange: Exchange) -> Iterator[Sequence[Outcome]]:
        """Exchange by ``exchange`` inside; afterwards the exchange's state is as before.

        It goes on from the residual of now, in memory of its own. Nothing is measured or decided inside, and
        ``on_step`` is not called. See :class:`aiops.collective.trials.Trials` for the rest of the training.

        Args:
            exchange: The same on every rank, one of the configuration's collectives.

        Yields:
            What the exchanges inside were like, as they are done.
        """
        held = self._reducer, self.last, self._on_step
        told = {"collective": exchange.collective, "density": exchange.density}
        reducer = self._make(self._config.only(exchange))
        reducer.load_state_dict(self._reducer.state_dict() | told)
        outcomes: list[Outcome] = []
        self._reducer, self._on_step = reducer, outcomes.append
        try:
            yield outcomes
        finally:
            self._reducer, self.last, self._on_step = held
            # The time of trials is not that of the next step.
            self._ended = None

    def tried(self, gains: Mapping[float, float]) -> None:
        """Take what trials came to; rank 0 decides on it in the next exchange.

        Args:
            gains: Mean gain by density, the same on every rank.
        """
        self._reducer.tried(gains)

    @torch.no_grad()
    def broadcast(self, tensors: Iterable[torch.Tensor], *, source: int = 0) -> None:
        """Give every rank the values of ``source``; a collective call, for parameters before the first step.

        DistributedDataParallel does it by itself.

        Args:
            tensors: The same shapes on every rank, overwritten but on ``source``.
            source: Whose values.
        """
        for tensor in tensors:
            # As bytes, so that integers stay what they are.
            whole = tensor.detach().cpu().clone().reshape(-1)
            self._group.run(_cast(whole.view(torch.uint8).numpy(), source), step=self._reducer.step)
            tensor.copy_(whole.view(tensor.shape))

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs beside the model's and the optimizer's; it is this rank's own.

        Tensors are copies.
        """
        reducer = self._reducer.state_dict()
        return {
            name: torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
            for name, value in reducer.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict` of the same rank.

        Raises:
            ConfigError: It is of another model, rank or number of ranks, or something is missing.
        """
        self._reducer.load_state_dict(
            {
                name: value.numpy() if isinstance(value, torch.Tensor) else value
                for name, value in state.items()
            }
        )

    def _make(self, config: ExchangeConfig) -> Reducer:
        return Reducer(
            config,
            self.flat.numel(),
            rank=self._group.rank,
            ranks=self._group.ranks,
            layers=[each.numel() for each in self._parameters],
        )

    def close(self) -> None:
        """Leave the group; a collective call."""
        self._group.close()


def _cast(data: Bytes, source: int) -> Dialogue[None]:
    yield Broadcast(data, source, ROUTES["ring"])
