"""A communication hook for DistributedDataParallel, and a plain function for loops without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from aiops.collective.reducer import Outcome
from aiops.collective.state import ArTopkState
from aiops.errors import NotFinite

if TYPE_CHECKING:
    # Where torch's stubs have it; at run time it is torch.distributed's.
    from torch._C._distributed_c10d import GradBucket


def artopk_hook(state: ArTopkState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Exchange the gradients of a DistributedDataParallel model by what ``state`` says.

    ``model.register_comm_hook(ArTopkState(model.parameters(), 0.01), artopk_hook)``. The gradients of all buckets are
    one vector, so that the largest of all layers together are sent (Tyagi and Swany, 2023): it is exchanged when the
    last bucket is there. So nothing of it overlaps with the backward pass, and how DDP cuts its buckets, which changes
    after the first step, makes no difference. With weights by samples, ``state.samples = len(x)`` goes before each
    ``backward()``.

    Args:
        state: Made with the model's parameters.
        bucket: What DDP hands over; its buffer receives the mean over all ranks.

    Returns:
        A future of the bucket's buffer.

    Raises:
        NotFinite: A rank's gradient is not finite. ``backward()`` raises it, on every rank alike and when it is done
            otherwise, so that the next step may follow; all gradients are zero then.
        RankLost: A rank is gone.
        ConfigError: A parameter is not the state's.
    """
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    if bucket.index() == 0:
        # A backward pass that failed may have left some behind.
        state.pending.clear()
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        state.view(parameter).copy_(gradient)
    state.pending.append((bucket, future))
    if bucket.is_last():
        _finish(state)
    return future


# DistributedDataParallel compares a hook's annotations with its types, and takes no strings.
artopk_hook.__annotations__ = {
    "bucket": getattr(dist, "GradBucket", None),
    "return": torch.futures.Future[torch.Tensor],
}


# Gives every bucket that waits its part of the mean.
def _finish(state: ArTopkState) -> None:
    refused = None
    try:
        state.exchange()
    except NotFinite as error:
        refused = error
        state.flat.zero_()
    pending, state.pending = state.pending, []
    for bucket, future in pending:
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            gradient.copy_(state.view(parameter))
        future.set_result(bucket.buffer())
    if refused is not None:
        _raise_behind(refused)


# DistributedDataParallel cannot be used again after a backward pass that broke off in a hook, so the error has to wait
# until it has cleaned up, which it does in a callback of the engine that it queues after this one.
def _raise_behind(error: NotFinite) -> None:
    engine = torch.autograd.Variable._execution_engine

    def say() -> None:
        raise error

    engine.queue_callback(lambda: engine.queue_callback(say))


@torch.no_grad()
def reduce_gradients(state: ArTopkState, *, samples: int | None = None) -> Outcome:
    """Replace the ``.grad`` of every parameter by the mean of what all ranks send; a collective call.

    For loops without DistributedDataParallel: after ``backward()``, before ``optimizer.step()``. A parameter without a
    gradient counts as zeros, and has one afterwards.

    Args:
        state: Made with the parameters.
        samples: What these gradients are the mean of, where the state weighs by samples; instead of ``state.samples``.

    Raises:
        NotFinite: A rank's gradient is not finite; on every rank alike, and no gradient has changed.
        RankLost: A rank is gone.
        ConfigError: In the first step: the ranks were not told the same. In any: a rank's ``samples`` is
            missing, makes no sense, or is given in vain.
    """
    if samples is not None:
        state.samples = samples
    for parameter in state.parameters:
        part = state.view(parameter)
        if parameter.grad is None:
            part.zero_()
        else:
            part.copy_(parameter.grad)
    outcome = state.exchange()
    for parameter in state.parameters:
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.copy_(state.view(parameter))
    return outcome
