"""Every preset trains the digits in the virtual lab, within a stated time, and keeps to the structure it is known by.

Four workers, one of them 2.5 times slower, on links of 2 Mbit/s: a dense sync takes 80 ms, a local step 50 ms. A preset
without a row here fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from aiops.lab import virtual
from aiops.lab.method import Method, Setting
from aiops.lab.problem import Problem
from aiops.lab.record import Record
from aiops.lab.scenario import Data, Link, Model, Scenario, Workers
from aiops.policy.preset import PRESETS
from aiops.worker.client import Client

SCENARIO = Scenario(
    name="every method",
    target=0.85,
    budget_s=45.0,
    eval_s=0.5,
    data=Data(name="digits", n_train=800, n_test=200, batch=16, alpha=1.0),
    model=Model(hidden=(16,)),
    workers=Workers(count=4, step_s=0.05, slowdown=(1.0, 1.0, 1.0, 2.5)),
    link=Link(up_mbit=2.0, delay_ms=20.0),
)
N_WORKERS = SCENARIO.workers.count

# Compute time inside syncs over sync time.
BLOCKED, PARTLY, HIDDEN = (0.0, 0.0), (0.2, 0.9), (0.95, 1.0)
NO_LEAD = 1_000_000


@dataclass(frozen=True)
class Case:
    """What a preset is to do here.

    Attributes:
        within_s: Virtual seconds to the target; half as much again as it takes.
        staleness: The oldest push that is merged, in versions, for a method that fixes it; None where it varies.
        per_version: Pushes that a version is made of.
        overlap: Least and largest overlap ratio.
        lead: Largest difference between two workers' pushes.
        lr: Learning rate of local steps.
        settings: In place of the preset's start values.
    """

    within_s: float
    staleness: int | None = 0
    per_version: int = N_WORKERS
    overlap: tuple[float, float] = BLOCKED
    lead: int = 1
    lr: float = 0.1
    settings: Mapping[str, Setting] = field(default_factory=dict)


def on_arrival(within_s: float, **more) -> Case:
    """No barrier: every push a version, as old as it happens to be."""
    return Case(
        **{"within_s": within_s, "staleness": None, "per_version": 1, "lead": NO_LEAD, **more}
    )


CASES = {
    "nbsync": Case(14, staleness=1, overlap=HIDDEN),
    "nbsync-auto": Case(14, staleness=1, overlap=HIDDEN),
    "nbsync-nesterov": Case(14, staleness=1, overlap=HIDDEN, lr=0.05),
    "nbsync-async": on_arrival(24, overlap=HIDDEN),
    "eager": Case(14, staleness=1, overlap=HIDDEN),
    "ssgd": Case(42),
    "fedavg": Case(29),
    "localsgd": Case(29),
    "fedprox": Case(29),
    "scaffold": Case(29),
    "fednova": Case(29),
    "esync": Case(24),
    "fedavgm": Case(17),
    "fedadam": Case(41),
    "fedyogi": Case(41),
    # The start value of 0.01 shrinks with every round, which is for hundreds of them.
    "fedadagrad": Case(25, settings={"optimizer": "adagrad:0.1,0,0.001"}),
    # Not 500 and 100 local steps: the whole training here is some hundred.
    "diloco": Case(17, settings={"work": "fixed:10"}),
    "streaming-diloco": Case(24, overlap=PARTLY, settings={"work": "fragments:2,10,2"}),
    # All four workers' updates in full: a learning rate that is divided, if not by all of four.
    "asp": on_arrival(14, lr=0.05),
    "ssp": on_arrival(22, lr=0.05, lead=3 + 1),
    "dssp": on_arrival(22, lr=0.05, lead=15 + 1),
    "fedbuff": on_arrival(18, per_version=3),
    "fedasync": on_arrival(21),
    "fedasync-constant": on_arrival(24),
    "fedasync-hinge": on_arrival(18),
    # The compensation holds the workers' learning rate, too.
    "dcasgd": on_arrival(14, lr=0.05, settings={"compensation": "dcasgd:0.04,0.05"}),
    "dcasgd-adaptive": on_arrival(
        14, lr=0.05, settings={"compensation": "dcasgd_adaptive:2,0.95,0.05"}
    ),
}


@dataclass(frozen=True)
class Run:
    """A run and how late each answered push was, in versions."""

    record: Record
    staleness: list[int]


@pytest.fixture(scope="module")
def problem():
    return Problem(SCENARIO)


@pytest.fixture
def run(problem, monkeypatch):
    def run(name: str) -> Run:
        tickets, push = [], Client.push_flat

        def remember(client, *args, **options):
            tickets.append(push(client, *args, **options))
            return tickets[-1]

        monkeypatch.setattr(Client, "push_flat", remember)
        case = CASES[name]
        method = Method(label=name, algorithm=name, lr=case.lr, settings=dict(case.settings))
        record = virtual.run(SCENARIO, method, 0, problem=problem)
        return Run(record, [t.staleness for t in tickets if t.staleness is not None])

    return run


def test_every_preset_has_a_row():
    assert set(CASES) == set(PRESETS)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_trains_in_time_and_keeps_its_structure(run, name):
    case, ran = CASES[name], run(name)
    record, rounds = ran.record, [worker.rounds for worker in ran.record.workers]
    assert record.failed == ""
    assert record.reached_s is not None, f"best {record.best_accuracy:.3f}"
    assert record.reached_s <= case.within_s

    # Versions are made of pushes; the answers of some are still on their way, and some wait in a buffer.
    assert -case.per_version < record.rounds * case.per_version - sum(rounds) <= N_WORKERS
    assert max(rounds) - min(rounds) <= case.lead
    if case.lead == 1:
        # A full barrier: everybody is in every version.
        assert {*rounds} <= {record.rounds - 1, record.rounds}
    else:
        # None, or a bounded lead: the slow worker is not waited for in every round.
        assert min(rounds) < max(rounds)

    if case.staleness is not None:
        assert max(ran.staleness) == case.staleness
    else:
        assert max(ran.staleness) > 1

    least, most = case.overlap
    assert least <= record.overlap_ratio <= most + 1e-9
    # Who overlaps never stands still; under Streaming DiLoCo those do that a slow one keeps waiting for its fragment.
    blocked = [worker.wait_s > 0 for worker in record.workers]
    assert (any(blocked), all(blocked)) == (case.overlap != HIDDEN, case.overlap == BLOCKED)
