"""What the engine says beforehand of the open round is what it does when the pushes come."""

import copy
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiops.policy.sync import asynchronous, bulk, ssp
from aiops.policy.weight import by_samples, by_staleness, product, uniform
from aiops.server.event import Merge, Merged, MergeFailed
from tests.server.script import FAILED, MERGED, PAIR, engine, join, leave, push

SOLO = [join(0), push("0a"), MERGED]
# Both are waited for, and nothing is held.
BOTH = [*(event for event, _ in PAIR), push("0a"), push("1a"), MERGED, push("0b", base=1), MERGED]


@pytest.mark.parametrize(
    ("options", "before", "coming", "expected"),
    [
        pytest.param({}, [join(0)], ["0"], ([0], (1.0,)), id="one that comes closes the round"),
        pytest.param({}, [], ["0"], None, id="who has not joined is declined"),
        pytest.param({}, [join(0)], [], None, id="nothing held and nothing coming"),
        pytest.param({}, BOTH, ["1"], None, id="another one is waited for"),
        pytest.param({}, BOTH, ["1", "0"], ([0, 1], (0.5, 0.5)), id="all that are waited for come"),
        pytest.param({}, [*BOTH, push("1b", base=2)], ["0"], ([0, 1], (0.5, 0.5)), id="one is held"),
        pytest.param({}, [*BOTH, push("1b", base=2)], ["1"], None, id="one pushes twice"),
        pytest.param({}, [*BOTH, leave(1)], ["0"], ([0], (1.0,)), id="who left is not waited for"),
        pytest.param(
            {}, [*BOTH, push("1b", base=2), leave(1)], ["0"], ([0, 1], (0.5, 0.5)),
            id="what is held of one that left counts",
        ),
        pytest.param({}, [join(0), push("0a")], ["0"], None, id="a merge is under way"),
        pytest.param({}, [*SOLO, join(1)], ["0"], ([0], (1.0,)), id="a newcomer is not waited for"),
        pytest.param({}, [*SOLO, join(1)], ["1"], None, id="a newcomer alone closes no round"),
        pytest.param({}, [*SOLO, join(1)], ["1", "0"], None, id="a newcomer may come too late"),
        pytest.param({"min_workers": 2}, [join(0), join(1)], ["0"], None, id="too few at the start"),
        pytest.param(
            {"min_workers": 2}, [join(0), join(1)], ["1", "0"], ([0, 1], (0.5, 0.5)),
            id="just enough at the start",
        ),
        pytest.param(
            {"min_workers": 2}, [join(0), join(1), push("0a"), leave(0)], ["1"], None,
            id="who left before the start is not there",
        ),
        pytest.param({"min_workers": 2}, [*BOTH[:5], leave(1)], ["0"], ([0], (1.0,)), id="few are enough later"),
        pytest.param({"weights": by_samples()}, [join(0)], ["0!"], None, id="all weigh nothing"),
        pytest.param(
            {"weights": by_samples()}, BOTH, ["0", "1!"], ([0, 1], (1.0, 0.0)), id="one weighs nothing"
        ),
    ],
)  # fmt: skip
def test_preview(options, before, coming, expected):
    machine = engine(bulk(), **options)
    for event in before:
        machine.handle(event, 0.0)
    pushes = [
        push(name[0] + "x", base=machine.version, n_samples=0 if "!" in name else 1)
        for name in coming
    ]
    assert machine.preview(pushes, 0.0) == expected


@pytest.mark.parametrize("base", [0, 1, 2, 3, 4])
def test_a_push_that_would_be_declined_is_not_counted_on(base):
    machine = engine(bulk(max_staleness=1))
    for event in [*SOLO, push("0b", base=1), MERGED, push("0c", base=2), MERGED]:
        machine.handle(event, 0.0)
    coming = push("0x", base=base)
    found = machine.preview([coming], 0.0)
    assert (found is not None) == (base in (2, 3))
    assert (found is not None) == any(isinstance(a, Merge) for a in machine.handle(coming, 0.0))


@pytest.mark.parametrize("sync", [asynchronous(), ssp(0), ssp(3)], ids=repr)
def test_where_nobody_waits_nothing_is_said(sync):
    machine = engine(sync)
    for event in (join(0), join(1)):
        machine.handle(event, 0.0)
    assert machine.preview([push("0a")], 0.0) is None
    assert machine.preview([push("0a"), push("1a")], 0.0) is None


def test_a_life_that_waits_for_its_earlier_one_makes_the_round_unknown():
    machine = engine(bulk())
    for event in [*BOTH, push("0c", base=2), leave(0), join(0), push("0d", base=2)]:
        machine.handle(event, 0.0)
    assert machine.preview([push("1x", base=2)], 0.0) is None


WORKERS = st.integers(0, 3)
EVENTS = st.one_of(
    st.builds(join, WORKERS),
    st.builds(leave, WORKERS),
    st.tuples(WORKERS, st.integers(0, 2), st.integers(0, 2)),
    st.tuples(WORKERS, st.integers(0, 2), st.integers(0, 2)),
    st.sampled_from([MERGED, MERGED, FAILED]),
)
RULES = st.sampled_from([uniform(), by_samples(), product(by_samples(), by_staleness(0.5))])


def made(machine, worker, back, n_samples):
    """A push from ``back`` rounds ago."""
    return push(f"{worker}", base=max(0, machine.version - back), n_samples=n_samples)


def told(machine, event):
    """Tell the engine something, if the service could."""
    match event:
        case (worker, back, n_samples):
            machine.handle(made(machine, worker, back, n_samples), 0.0)
        case Merged() | MergeFailed():
            if machine._round.busy:
                machine.handle(event, 0.0)
        case _:
            if machine.is_member(event.worker) == (event == leave(event.worker)):
                machine.handle(event, 0.0)


def merged(actions):
    return [
        (list(action.handles), action.weights) for action in actions if isinstance(action, Merge)
    ]


@settings(max_examples=200)
@given(
    rule=RULES,
    bound=st.sampled_from([None, 0, 1]),
    min_workers=st.integers(1, 3),
    script=st.lists(EVENTS, max_size=30),
    coming=st.lists(
        st.tuples(WORKERS, st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=3
    ),
)
def test_what_is_said_is_what_comes(rule, bound, min_workers, script, coming):
    machine = engine(bulk(max_staleness=bound), weights=rule, min_workers=min_workers)
    for event in script:
        told(machine, event)
    pushes = [made(machine, *each) for each in coming]
    state = copy.deepcopy(machine)
    found = machine.preview(pushes, 0.0)
    assert machine == state or found == state.preview(pushes, 0.0)  # asking changes nothing
    open_round = {worker: held.handle for worker, held in machine._round.held.items()}
    if len(pushes) == 1 and not machine._round.busy and not machine._early:
        # One that is missing: said exactly when it closes the round, with all that is held.
        (only,) = pushes
        closes = merged(machine_of(machine).handle(only, 0.0))
        if found is None:
            assert not closes or len(closes[0][0]) <= len(open_round)
        else:
            handles = {**open_round, only.worker: only.handle}
            assert closes == [([handles[worker] for worker in found[0]], found[1])]
    if found is None:
        return
    for order in itertools.permutations(pushes):
        # Several: with the last of them, unless those before it were enough by themselves.
        trial = machine_of(machine)
        handles = open_round | {each.worker: each.handle for each in order}
        if not any(trial.handle(each, 0.0) for each in order[:-1]):
            closes = merged(trial.handle(order[-1], 0.0))
            assert closes == [([handles[worker] for worker in found[0]], found[1])]


def machine_of(machine):
    """A copy that holds the same handles."""
    memo = {id(held.handle): held.handle for held in machine._round.held.values()}
    return copy.deepcopy(machine, memo)
