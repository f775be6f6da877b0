"""What the engine says when pushes are added up as they come, as tables."""

from aiops.policy.sync import bulk
from aiops.policy.weight import by_samples, by_steps, normalized, product, uniform
from aiops.server.event import Decline, Fold, Merge
from tests.server.script import FAILED, MERGED, engine, join, leave, push


def folds(actions):
    return [
        (action.handle.name, action.weight, action.first)
        for action in actions
        if isinstance(action, Fold)
    ]


def test_a_push_is_added_with_its_raw_weight_and_the_sum_is_scaled():
    machine = engine(bulk(), weights=by_steps(by_samples()), fold=True, min_workers=2)
    for worker in (0, 1):
        machine.handle(join(worker), 0.0)
    # tau = (1*2 + 3*4) / 4 = 3.5, over 4 samples: 0.875 times 1/2 and 3/4.
    assert folds(machine.handle(push("1a", n_samples=3, n_steps=4), 0.0)) == [("1a", 0.75, True)]
    actions = machine.handle(push("0a", n_samples=1, n_steps=2), 0.0)
    assert folds(actions) == [("0a", 0.5, False)]
    assert isinstance(actions[1], Merge)
    assert (actions[1].weights, actions[1].scale) == ((0.4375, 0.65625), 0.875)


def test_what_comes_during_a_merge_begins_the_next_sum():
    machine = engine(bulk(), fold=True)
    for worker in (0, 1):
        machine.handle(join(worker), 0.0)
    assert folds(machine.handle(push("0a"), 0.0)) == [("0a", 1.0, True)]
    assert folds(machine.handle(push("1a"), 0.0)) == [("1a", 1.0, True)]
    machine.handle(MERGED, 0.0)
    assert folds(machine.handle(push("0b", base=1), 0.0)) == [("0b", 1.0, False)]
    machine.handle(FAILED, 0.0)
    assert folds(machine.handle(push("0c", base=1), 0.0)) == [("0c", 1.0, True)]


def test_another_lifes_push_is_added_when_it_is_held():
    machine = engine(bulk(), fold=True)
    for event in (join(0), push("0a"), leave(0), join(0)):
        machine.handle(event, 0.0)
    assert machine.handle(push("0b"), 0.0) == []
    assert folds(machine.handle(MERGED, 0.0)) == [("0b", 1.0, True)]


def test_nothing_is_drafted_beforehand():
    machine = engine(bulk(), fold=True)
    machine.handle(join(0), 0.0)
    assert machine.preview([push("0a")], 0.0) is None


def test_a_push_that_would_drown_all_others_is_refused():
    machine = engine(bulk(), weights=normalized(product(by_samples(), by_samples())), fold=True)
    machine.handle(join(0), 0.0)
    (decline,) = machine.handle(push("0a", n_samples=10**16), 0.0)
    assert isinstance(decline, Decline)
    assert "push weighs 1e+32 by itself, the limit is 1e+30" in str(decline.error)
    actions = machine.handle(push("0b", n_samples=10**14), 0.0)
    assert [type(action) for action in actions] == [Fold, Merge]


def test_otherwise_nothing_is_added():
    machine = engine(bulk(), weights=uniform())
    machine.handle(join(0), 0.0)
    (merge,) = machine.handle(push("0a"), 0.0)
    assert merge.scale is None
