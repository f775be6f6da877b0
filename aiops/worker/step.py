"""What all training loops do: take a local step, and exchange an update for a model."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiops.errors import ConfigError, StalePush
from aiops.wire.message import Policy
from aiops.worker.client import Client
from aiops.worker.machine import Overlap, Update, Vector
from aiops.worker.meter import Meter
from aiops.worker.ticket import Snapshot


async def exchange(ps: Client, update: Update, out: Vector, meter: Meter) -> tuple[Snapshot, bool]:
    """Push an update and return the model that answers it, and whether the update was merged.

    One that the server finds too old is lost; the newest model comes instead, to begin anew from.

    Args:
        ps: The client.
        update: What to push; on loan until this returns.
        out: Where the model goes, float32, shape (n,); of a fragment's answer that part of it is used.
        meter: Tells the server how fast this worker is.
    """
    fragment = update.fragment
    try:
        return await ps.push_flat(
            update.values,
            base=update.base,
            n_samples=update.n_samples,
            n_steps=update.n_steps,
            loss=update.loss,
            out=out if fragment is None else out[fragment.place],
            step_s=meter.phase_step_s,
            sync_s=meter.last_sync_s,
            fragment=fragment,
        ), True
    except StalePush:
        return await ps.pull_flat(out), False


@dataclass(frozen=True, slots=True)
class Step:
    """What a local step tells: samples it used, and its loss if known."""

    n_samples: int = 1
    loss: float | None = None


LocalStep = Callable[[Vector], Awaitable[Step | None]]
"""Takes one local step: changes the parameters (float32, shape (n,)) in place."""


def check_lr(policy: Policy, lr: float | None) -> float:
    """Return the learning rate of local steps, 0 where nobody needs it.

    Raises:
        ConfigError: The server's proximal term needs it and it is not given.
    """
    if policy.proximal > 0 and not (lr is not None and 0 < lr < math.inf):
        raise ConfigError(
            f"lr is {lr!r}, the server's proximal term of {policy.proximal:g} needs the learning rate of the "
            "local steps: give it, finite and > 0"
        )
    return lr or 0.0


async def take_step(step: LocalStep, x: Vector, machine: Overlap, lr: float) -> Step:
    """Take a local step of this learning rate, with what the server adds to it."""
    proximal = machine.proximal
    if proximal is not None:
        proximal.note(x)
    told = await step(x) or Step()
    if proximal is not None:
        proximal.pull(x, lr)
    correction = machine.correction
    if correction is not None:
        x += correction
    return told
