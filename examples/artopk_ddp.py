"""DistributedDataParallel with AR-Topk in place of its all-reduce, checkpoints, and a rank that dies and comes back.

    torchrun --standalone --nproc-per-node 2 examples/artopk_ddp.py
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --nproc-per-node 2 --max-restarts 1 \
        examples/artopk_ddp.py --checkpoints run --kill-at 70

The variable is for restarts: without it torch 2.13 finds the addresses of the ranks before the restart in its store.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aiops.collective.hook import artopk_hook
from aiops.collective.state import ArTopkState
from aiops.config.exchange import DEFAULT
from aiops.data import load


def say(line: str) -> None:
    """Print a line in one write, since ranks share an output."""
    print(f"{line}\n", end="", flush=True)


def latest(folder: pathlib.Path | None) -> int:
    """Return the last step that every rank has a checkpoint of; 0 where there is none."""
    step = 0
    if folder is not None:
        own = folder.glob(f"*-{dist.get_rank()}.pt")
        step = max((int(path.stem.partition("-")[0]) for path in own), default=0)
    # A rank that was ahead when another one died still has the checkpoint before.
    least = torch.tensor([step])
    dist.all_reduce(least, dist.ReduceOp.MIN)
    return int(least)


def save(folder: pathlib.Path, step: int, **parts: object) -> None:
    """Write this rank's checkpoint of a step whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{step}-{dist.get_rank()}.pt"
    torch.save({name: part.state_dict() for name, part in parts.items()}, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def main() -> None:
    """Train on the digits that come with aiops, and print the test accuracy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--density", default="0.05", help="k/n, or a policy such as adaptive")
    parser.add_argument("--collective", help="artopk_ring, ...; the cheapest one otherwise")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--checkpoints", type=pathlib.Path, help="a folder, for restarts")
    parser.add_argument("--every", type=int, default=25, help="steps between two checkpoints")
    parser.add_argument("--kill-at", type=int, default=0, help="rank 1 kills itself once, here")
    told = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    data = load("digits")
    x, y = torch.from_numpy(data.x_train)[rank::ranks], torch.from_numpy(data.y_train)[rank::ranks]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    density = told.density if told.density[0].isalpha() else float(told.density)
    collectives = told.collective or DEFAULT
    state = ArTopkState(net.parameters(), density, collectives=collectives, deadline_s=20)

    start = latest(told.checkpoints)
    if start:
        saved = torch.load(told.checkpoints / f"{start}-{rank}.pt")
        for name, part in (("net", net), ("optimizer", optimizer), ("state", state)):
            part.load_state_dict(saved[name])
        say(f"rank {rank} goes on from step {start}")
    model = DistributedDataParallel(net)
    model.register_comm_hook(state, artopk_hook)

    for step in range(start, told.steps):
        if told.kill_at and step == told.kill_at and rank == 1 and not start:
            os.kill(os.getpid(), signal.SIGKILL)
        # From the step, so that a restart sees the batches that it would have seen.
        batch = torch.randperm(len(x), generator=torch.Generator().manual_seed(step))[:32]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
        if told.checkpoints and (step + 1) % told.every == 0:
            save(told.checkpoints, step + 1, net=net, optimizer=optimizer, state=state)

    with torch.no_grad():
        right = net(torch.from_numpy(data.x_test)).argmax(1) == torch.from_numpy(data.y_test)
    # In bits, so that it can be seen that no rank differs.
    total = sum(each.double().sum() for each in net.parameters()).item()
    exchange = "none" if state.last is None else state.last.exchange
    accuracy = right.double().mean()
    say(f"rank {rank}: accuracy {accuracy:.3f}, {exchange}, sum {total.hex()}")
    state.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
