"""What every policy promises: frozen view in, plain values out, the same answer twice, equal by value."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from dataclasses import FrozenInstanceError, fields
from types import MappingProxyType

import pytest

from aiops.policy.base import (
    BufferPolicy,
    EvenWork,
    FoldableRule,
    PushView,
    RoundView,
    Work,
    WorkerView,
)
from aiops.policy.dssp import dssp
from aiops.policy.esync import esync, esync_prototype
from aiops.policy.learning_rate import linear_scaling
from aiops.policy.place import by_bytes
from aiops.policy.sync import asynchronous, buffered, bulk, ssp
from aiops.policy.table import SYNC, WEIGHTS, WORK
from aiops.policy.weight import (
    by_data,
    by_samples,
    by_staleness,
    by_steps,
    constant,
    hinge,
    normalized,
    product,
    uniform,
)
from aiops.policy.work import fill_the_sync, fixed, fragments, until_model

SYNC_POLICIES = [
    bulk,
    lambda: bulk(max_staleness=0),
    asynchronous,
    lambda: ssp(0),
    lambda: ssp(3),
    lambda: dssp(0, 2),
    lambda: dssp(3, 15),
    lambda: buffered(1),
    lambda: buffered(3, 9),
]
WORK_POLICIES = [
    lambda: fixed(1),
    lambda: fixed(10),
    until_model,
    lambda: until_model(2, 50),
    fill_the_sync,
    lambda: fill_the_sync(4, 20),
    esync,
    lambda: esync(4),
    esync_prototype,
    lambda: fragments(4, 100, 5),
]
# Sum over one update of fresh pushes with equal steps; None where it is the number of pushes.
WEIGHT_RULES = [
    (uniform, 1.0),
    (by_samples, 1.0),
    (by_data, 1.0),
    (by_steps, 1.0),
    (lambda: by_steps(by_samples()), 1.0),
    (constant, None),
    (by_staleness, None),
    (lambda: by_staleness(1), None),
    (hinge, None),
    (lambda: hinge(0.03, 25), None),
    (lambda: product(by_samples(), by_staleness()), 1.0),
    (lambda: product(uniform(), hinge(), by_staleness(2)), 1.0),
    (lambda: normalized(by_staleness()), 1.0),
    (lambda: normalized(product(by_samples(), by_staleness())), 1.0),
    (lambda: product(by_steps(by_samples()), by_staleness()), 1.0),
    (lambda: linear_scaling(640), lambda n: n * 32 * n / 640),
    (lambda: product(by_samples(), linear_scaling(96, 4, 0)), lambda n: 32 * n / 96),
]
MAKERS = [*SYNC_POLICIES, *WORK_POLICIES, *(make for make, _ in WEIGHT_RULES), by_bytes]


def names(makers):
    return [repr(make()) for make in makers]


def push(worker, *, n_samples=32, n_steps=4, staleness=0, loss=math.nan):
    return PushView(
        worker=worker,
        base=9 - staleness,
        staleness=staleness,
        n_samples=n_samples,
        n_steps=n_steps,
        loss=loss,
        arrived=0.5 * worker,
        n_data=640,
    )


@pytest.mark.parametrize("make", MAKERS, ids=names(MAKERS))
def test_a_policy_is_a_frozen_value(make):
    policy = make()
    assert policy == make()
    assert hash(policy) == hash(make())
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert copy.deepcopy(policy) == policy
    assert not hasattr(policy, "__dict__")
    for part in fields(policy):
        with pytest.raises(FrozenInstanceError):
            setattr(policy, part.name, 0)


def test_different_policies_differ():
    policies = [make() for make in MAKERS]
    for one, other in itertools.combinations(policies, 2):
        assert one != other


def test_every_name_on_the_command_line_is_swept_here():
    swept = {type(make()) for make in MAKERS}
    assert {type(bulk()), type(asynchronous()), type(ssp(1))} <= swept
    for table in (SYNC, WEIGHTS, WORK):
        for factory in table.values():
            numbers = {ssp: [3], fixed: [3], buffered: [3], dssp: [3, 9], fragments: [4, 100]}
            numbers[linear_scaling] = [640]
            made = factory(*numbers.get(factory, []))
            assert type(made) in swept


def round_views():
    workers = range(3)
    for n_held in range(4):
        for held in itertools.combinations(workers, n_held):
            for n_live in range(4):
                for live in itertools.combinations(workers, n_live):
                    yield RoundView(
                        version=9,
                        held=MappingProxyType({w: push(w) for w in held}),
                        clocks=MappingProxyType({w: 3 * w + 1 for w in live}),
                        now=7.0,
                    )


@pytest.mark.parametrize("make", SYNC_POLICIES, ids=names(SYNC_POLICIES))
def test_sync_policies_answer_every_round(make):
    policy = make()
    for view in round_views():
        ready = policy.ready(view)
        assert ready <= view.held.keys(), "only held pushes are merged"
        assert policy.ready(view) == ready
        if view.held.keys() >= view.clocks.keys() and not isinstance(policy, BufferPolicy):
            assert bool(ready) == bool(view.held), "nobody is missing, so something is merged"
        # The set is the caller's to keep: it must not follow the view.
        assert isinstance(ready, frozenset)
        for worker in range(3):
            may = policy.may_proceed(worker, view)
            assert isinstance(may, bool)
            assert policy.may_proceed(worker, view) is may
        if view.clocks:
            slowest = min(view.clocks, key=view.clocks.__getitem__)
            assert policy.may_proceed(slowest, view), "the slowest is never parked: no deadlock"


@pytest.mark.parametrize("make", SYNC_POLICIES, ids=names(SYNC_POLICIES))
def test_sync_policies_state_a_staleness_limit(make):
    limit = make().max_staleness
    assert limit is None or limit >= 0


UPDATES = [
    pytest.param([], id="no push"),
    pytest.param([push(0)], id="one push"),
    pytest.param([push(0, n_samples=0, n_steps=0)], id="one empty push"),
    pytest.param([push(w) for w in range(7)], id="seven equal pushes"),
    pytest.param([push(w, n_samples=w, n_steps=w) for w in range(5)], id="unequal work"),
    pytest.param([push(w, staleness=3 * w) for w in range(5)], id="unequal ages"),
    pytest.param([push(w, n_samples=0) for w in range(3)], id="no samples"),
    pytest.param([push(0, n_samples=2**62, n_steps=2**62), push(1, staleness=2**31)], id="huge"),
]


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("make", [make for make, _ in WEIGHT_RULES], ids=lambda m: repr(m()))
def test_weights_are_one_number_per_push_and_never_negative(make, update):
    before = copy.deepcopy(update)
    weights = list(make()(tuple(update)))
    assert len(weights) == len(update)
    assert all(isinstance(weight, float) for weight in weights)
    assert all(math.isfinite(weight) and weight >= 0 for weight in weights)
    assert list(make()(update)) == weights
    assert update == before


@pytest.mark.parametrize(("make", "total"), WEIGHT_RULES, ids=lambda part: repr(part)[:12])
def test_weights_of_fresh_equal_pushes_sum_as_documented(make, total):
    for n in (1, 2, 3, 10):
        weights = make()([push(w) for w in range(n)])
        wanted = total(n) if callable(total) else n if total is None else total
        assert math.fsum(weights) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("make", [make for make, _ in WEIGHT_RULES], ids=lambda m: repr(m()))
def test_weights_follow_their_push_not_its_place(make):
    update = [push(w, n_samples=10 + w, n_steps=1 + w, staleness=w) for w in range(4)]
    forward = dict(zip(range(4), make()(update), strict=True))
    backward = dict(zip(reversed(range(4)), make()(update[::-1]), strict=True))
    assert backward == pytest.approx(forward, rel=1e-12)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("make", [make for make, _ in WEIGHT_RULES], ids=lambda m: repr(m()))
def test_weights_are_a_number_of_each_push_times_one_of_the_update(make, update):
    rule = make()
    assert isinstance(rule, FoldableRule)
    raw, scale = [rule.raw(push) for push in update], rule.scale(update)
    assert all(isinstance(number, float) and number >= 0 for number in [*raw, scale])
    assert [number * scale for number in raw] == pytest.approx(list(rule(update)), rel=1e-12)


@pytest.mark.parametrize("make", WORK_POLICIES, ids=names(WORK_POLICIES))
def test_work_policies_plan_for_exactly_the_workers_they_see(make):
    policy = make()
    monitor = MappingProxyType(
        {w: WorkerView(clock=w, step_s=0.1 * w, sync_s=1.0, link_s=0.5) for w in range(3)}
    )
    for seen in ({}, {1: monitor[1]}, monitor):
        plan = policy.plan(seen)
        assert plan.keys() == seen.keys()
        assert policy.plan(seen) == plan
        if isinstance(policy, EvenWork):
            assert plan == dict.fromkeys(seen, policy.each)
        for work in plan.values():
            assert isinstance(work, Work)
            assert work.min_steps >= 1
            assert work.max_steps is None or work.max_steps >= work.min_steps
    assert isinstance(policy.overlap, bool)


def test_even_work_is_that_of_all_policies_but_the_planned_one():
    made = [make() for make in WORK_POLICIES]
    planned = {type(policy) for policy in made if not isinstance(policy, EvenWork)}
    assert planned == {type(fill_the_sync())}


@pytest.mark.parametrize("slowest", [None, 4])
def test_the_least_clock_is_looked_for_only_where_nobody_has(slowest):
    assert RoundView(0, {}, {1: 7, 2: 5}, 0.0, slowest=slowest).least() == (slowest or 5)


@pytest.mark.parametrize("shards", [1, 2, 3, 8])
def test_placement_puts_every_key_on_one_shard(shards):
    sizes = MappingProxyType({key: (key * 37) % 11 for key in range(20)})
    placed = by_bytes()(sizes, shards)
    assert placed.keys() == sizes.keys()
    assert set(placed.values()) <= set(range(shards))
    assert by_bytes()(sizes, shards) == placed
