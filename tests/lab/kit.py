"""Small scenarios on the digits: runs take fractions of a second."""

import msgspec

from aiops.lab.record import Point, Record, WorkerRecord
from aiops.lab.scenario import Data, Link, Method, Model, Scenario, Workers

SMALL = Scenario(
    name="small",
    target=0.6,
    budget_s=4.0,
    eval_s=0.25,
    data=Data(name="digits", n_train=400, n_test=100, batch=8),
    model=Model(hidden=(8,)),
    workers=Workers(count=2, step_s=0.05, slowdown=(1.0, 2.0)),
    link=Link(up_mbit=1.0, delay_ms=10.0),
    methods=("fedavg", "nbsync"),
)


def small(**changes):
    return msgspec.structs.replace(SMALL, **changes)


def record(label, seed, reached_s, *, points=(), scenario="small", rejected=(), **changes):
    """A made-up run of 100 steps by two workers."""
    worker = WorkerRecord(
        n_steps=50,
        rounds=5,
        step_s=0.02,
        target_step_s=0.02,
        wait_s=1.0,
        overlap_ratio=0.25,
        utilisation=0.5,
    )
    made = Record(
        scenario=scenario,
        lab="virtual",
        method=Method(label=label, algorithm="fedavg"),
        seed=seed,
        n_values=1000,
        points=tuple(Point(*point) for point in points),
        ended_s=10.0,
        reached_s=reached_s,
        reached_version=None if reached_s is None else 4,
        rounds=8,
        up_bytes=1_500_000,
        down_bytes=500_000,
        workers=(worker, worker),
        rejected=rejected,
    )
    return msgspec.structs.replace(made, **changes)
