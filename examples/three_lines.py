"""An ordinary PyTorch loop, kept in sync with a parameter server by three lines.

Start a server first, then this script as often as you like, on any machine that reaches it:

    aiops serve --port 4711
    python examples/three_lines.py aiops://localhost:4711
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import aiops.torch
from aiops.data import load


def main(url: str, epochs: int = 3) -> float:
    """Train on the digits that come with aiops; return the test accuracy of the final global model."""
    data = load("digits")
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_fn = nn.CrossEntropyLoss()

    link = aiops.torch.attach(model, optimizer, url)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(32):
            loss_fn(model(x[batch]), y[batch]).backward()
            optimizer.step()
            optimizer.zero_grad()
            link.step(n_samples=len(batch))
        if link.done:
            break
    link.close()

    with torch.no_grad():
        right = model(torch.from_numpy(data.x_test)).argmax(1) == torch.from_numpy(data.y_test)
    print(f"{link.meter.n_steps} local steps, {link.meter.rounds} global models received,")
    print(f"test accuracy of the global model {right.float().mean():.1%}")
    return float(right.float().mean())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "aiops://localhost:4711")
