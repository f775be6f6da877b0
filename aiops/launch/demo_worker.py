"""One worker process of ``aiops demo``: an ordinary PyTorch loop, three lines of it ours.

It reads one job per line on stdin and answers with one line on stdout when ready and one when done. Step times are
padded to a schedule, so that machines of any speed can be played on two cores; gradients are real.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec
import numpy as np
import torch
from torch import nn

import aiops.torch
from aiops.data import load, partition
from aiops.launch.demo_job import Job, Result, Span
from aiops.launch.pace import Pace
from aiops.launch.process import say
from aiops.sync import Link

# The server is on this machine: when it is gone, the demo is.
GIVE_UP_S = 5.0


def make_model(n_inputs: int, hidden: int, n_classes: int, seed: int) -> nn.Module:
    """Return the demo's perceptron, the same for the same seed."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(n_inputs, hidden), nn.ReLU(), nn.Linear(hidden, n_classes)
    )


def batches(job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this worker's share of the training data: images flat, labels."""
    data = load(job.data, root=job.data_root, cache=job.cache)
    share = partition(data.y_train, job.n_workers, alpha=job.alpha, seed=job.split_seed)[job.index]
    x = np.asarray(data.x_train[share], np.float32).reshape(len(share), -1)
    return torch.from_numpy(x), torch.from_numpy(data.y_train[share])


def train(
    job: Job,
    data: tuple[torch.Tensor, torch.Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    link: Link,
    until: float,
) -> None:
    """Take local steps until the clock says ``until``, or the server says that training is over."""
    x, y = data
    draw = torch.Generator().manual_seed(job.seed * 1000 + job.index)
    loss_fn, pace = nn.CrossEntropyLoss(), Pace(job.step_s)
    parent = os.getppid()
    # A parent that was killed can send no signal; nobody waits for the result any more.
    while time.perf_counter() < until and not link.done and os.getppid() == parent:
        pick = torch.randint(len(x), (job.batch,), generator=draw)
        loss_fn(model(x[pick]), y[pick]).backward()
        optimizer.step()
        optimizer.zero_grad()
        pace.wait()
        adopted = link.step(n_samples=job.batch)
        if adopted and not link.overlap:
            pace.restart()


def run(job: Job) -> Result:
    """Do one job: attach, say "ready", train from "go" on, and return what was measured."""
    model = make_model(job.n_inputs, job.hidden, job.n_classes, job.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=job.lr)
    data = batches(job)
    name = f"worker-{job.index}"
    with aiops.torch.attach(model, optimizer, job.url, name=name, give_up_s=GIVE_UP_S) as link:
        say({"ready": job.index})
        sys.stdin.readline()
        start = time.perf_counter()
        link.restart_meter()
        train(job, data, model, optimizer, link, start + job.budget_s)
        meter, end = link.meter, time.perf_counter()
        link.close(flush=False)
    step_s = meter.compute_s / meter.n_steps if meter.n_steps else 0.0
    return Result(
        index=job.index,
        n_steps=meter.n_steps,
        rounds=meter.rounds,
        waits=meter.waits,
        wait_s=meter.wait_s,
        overlap_ratio=meter.overlap_ratio,
        utilisation=meter.utilisation(end),
        step_s=step_s,
        steps_per_round=list(meter.steps_per_round)[-50:],
        spans=[
            Span(span.lane, span.start - start, span.stop - start)
            for span in meter.spans
            if span.start - start < job.picture_s
        ],
    )


def main() -> None:
    """Do the jobs on stdin until it ends."""
    torch.set_num_threads(1)
    say({"up": True})
    for line in sys.stdin:
        say(run(msgspec.json.decode(line, type=Job)))


if __name__ == "__main__":
    main()
