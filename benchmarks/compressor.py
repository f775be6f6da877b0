"""What a step of AR-Topk computes beside its messages: the compressor against passes over memory, and a decision.

``python -m benchmarks.compressor [--n 25000000] [--rounds 15] [--json]``: contenders take turns, medians count.

- A *pass* reads two float32 vectors of the gradient's size and writes one: what adding a gradient to a residual takes
  alone. A copy reads one and writes one.
- The *compressor* adds the gradient to the residual, sums squares, and moves the largest out
  (:meth:`aiops.collective.memory.Memory.draft`), of values that are as heavy-tailed as a gradient's.
- A *decision* measures the spectrum of the same gradient and weighs every collective and density
  (:class:`aiops.collective.control.Control` with :class:`aiops.policy.density.Adaptive`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import msgspec
import numpy as np

from aiops.collective.control import Control
from aiops.collective.memory import Draft, Memory
from aiops.collective.select import largest
from aiops.config.exchange import COLLECTIVES
from aiops.policy.density import Adaptive
from aiops.policy.exchange import Load, Network, Seen

DENSITIES = (0.1, 0.01, 0.001)
RANKS = 8
GOAL_PASSES, GOAL_MS = 2.0, 10.0


class Row(msgspec.Struct, frozen=True):
    """One thing that was measured.

    Attributes:
        what: Which.
        milliseconds: Median.
        passes: Over an addition of as many values, median of the ratios of each round.
        goal: What it should be.
    """

    what: str
    milliseconds: float
    passes: float
    goal: str


def measure(n: int, rounds: int) -> list[Row]:
    """Return a row for each contender, measured in turns."""
    random = np.random.default_rng(0)
    gradient = (random.standard_normal(n) * random.lognormal(0, 1.5, n)).astype(np.float32)
    other, target = gradient[::-1].copy(), np.empty_like(gradient)
    contenders: dict[str, tuple[Callable[[], object], str]] = {
        "pass": (lambda: np.add(gradient, other, out=target), ""),
        "copy": (lambda: np.copyto(target, gradient), ""),
    }
    for density in DENSITIES:
        contenders[f"compressor at {density:g}"] = (
            _compressor(gradient, density),
            f"<= {GOAL_PASSES:g} passes",
        )
    contenders["decision"] = (_decision(gradient), f"< {GOAL_MS:g} ms at 25 million values")
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, (work, _) in contenders.items():
            start = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - start)
    # The first round touches memory for the first time.
    taken = {name: times[1:] for name, times in seconds.items()}
    return [
        Row(
            name,
            round(1e3 * statistics.median(taken[name]), 3),
            round(
                statistics.median(t / p for t, p in zip(taken[name], taken["pass"], strict=True)), 2
            ),
            goal,
        )
        for name, (_, goal) in contenders.items()
    ]


# Steps of a training: the residual fills up, and each selection begins where the last one ended.
def _compressor(
    gradient: np.ndarray[tuple[int], np.dtype[np.float32]], density: float
) -> Callable[[], Draft]:
    memory = Memory(gradient.size)
    k = max(1, int(density * gradient.size))

    def step() -> Draft:
        draft = memory.draft(gradient, k, largest)
        memory.commit(draft, draft.index)
        return draft

    return step


def _decision(gradient: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Callable[[], object]:
    draft = Memory(gradient.size).draft(gradient, gradient.size // 100, largest)
    load, network = Load(gradient.size, RANKS, 1.1), Network(1e-3, 8e-10)

    def decide() -> object:
        judge = Adaptive().judge(load, COLLECTIVES)
        control = Control(judge, COLLECTIVES)
        control.look(Seen(1, judge.first, network, 0.1, 0.5))
        plan = control.decide(draft)
        assert plan is not None, "nothing was decided"
        return plan

    return decide


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compressor", description=__doc__)
    parser.add_argument("--n", type=int, default=25_000_000, help="values of the gradient")
    parser.add_argument("--rounds", type=int, default=15, help="how often each is measured")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    for name, least in (("n", 1000), ("rounds", 1)):
        if getattr(arguments, name) < least:
            parser.error(f"--{name} is {getattr(arguments, name)}, it must be at least {least}")
    rows = measure(arguments.n, arguments.rounds)
    if arguments.json:
        print(msgspec.json.encode(rows).decode())
        return
    print(f"{arguments.n:,} values, medians of {arguments.rounds} rounds")
    for row in rows:
        print(f"{row.what:<22}{row.milliseconds:>10.2f} ms{row.passes:>8.2f} passes   {row.goal}")


if __name__ == "__main__":
    main()
