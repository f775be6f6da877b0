"""Buffered rounds as tables: who is answered when, and what becomes of each push."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiops.policy.sync import asynchronous, buffered
from aiops.policy.weight import by_samples, by_staleness, product, uniform
from aiops.server.event import Answer, Decline, Drop, Merge, Merged, MergeFailed
from tests.server.script import (
    FAILED,
    MERGED,
    PAIR,
    engine,
    join,
    leave,
    play,
    push,
    said,
    table,
)

FEDBUFF = product(uniform(), by_staleness(0.5))


@table(
    (
        "who waits is answered at once and who fills the buffer with the version that it makes",
        {},
        [
            *PAIR,
            (join(2), []),
            (push("0a"), ["answer 0a v0 late 0 of 0"]),
            (push("1a"), ["answer 1a v0 late 0 of 0"]),
            (push("2a"), ["merge 0a*0.333333 1a*0.333333 2a*0.333333"]),
            (MERGED, ["answer 2a v1 late 0 of 3"]),
        ],
    ),
    (
        "a worker may have several pushes in a buffer, which are summed in worker order",
        {},
        [
            *PAIR,
            (push("1a"), ["answer 1a v0 late 0 of 0"]),
            (push("0a"), ["answer 0a v0 late 0 of 0"]),
            (push("1b"), ["merge 0a*0.333333 1a*0.333333 1b*0.333333"]),
            (MERGED, ["answer 1b v1 late 0 of 3"]),
            (push("0b", base=0), ["answer 0b v1 late 1 of 0"]),
            (push("0c", base=1), ["answer 0c v1 late 0 of 0"]),
            (push("0d", base=1), ["merge 0b*0.333333 0c*0.333333 0d*0.333333"]),
        ],
    ),
    (
        "weights are divided by the number of pushes and not by their sum",
        {"weights": FEDBUFF},
        [
            *PAIR,
            *[
                step
                for version in range(3)
                for step in (
                    (push("0a", base=version), [f"answer 0a v{version} late 0 of 0"]),
                    (push("0b", base=version), [f"answer 0b v{version} late 0 of 0"]),
                    (
                        push("0c", base=version),
                        ["merge 0a*0.333333 0b*0.333333 0c*0.333333"],
                    ),
                    (MERGED, [f"answer 0c v{version + 1} late 0 of 3"]),
                )
            ],
            # 1 / sqrt(1 + 3) = 1/2 and 1 / sqrt(1 + 0) = 1, over 3: 1/6, 1/3, 1/3.
            (push("1a", base=0), ["answer 1a v3 late 3 of 0"]),
            (push("0a", base=3), ["answer 0a v3 late 0 of 0"]),
            (push("0b", base=3), ["merge 0a*0.333333 0b*0.333333 1a*0.166667"]),
        ],
    ),
    (
        "what comes during a merge is answered at once, and counts its rounds to the version it is added to",
        {"weights": product(uniform(), by_staleness(1))},
        [
            *PAIR,
            (push("0a"), ["answer 0a v0 late 0 of 0"]),
            (push("0b"), ["answer 0b v0 late 0 of 0"]),
            (push("0c"), ["merge 0a*0.333333 0b*0.333333 0c*0.333333"]),
            (push("1a"), ["answer 1a v0 late 0 of 0"]),
            (push("1b"), ["answer 1b v0 late 0 of 0"]),
            (MERGED, ["answer 0c v1 late 0 of 3"]),
            # 1a and 1b are one round old by now: 1/2 of a third.
            (push("0d", base=1), ["merge 0d*0.333333 1a*0.166667 1b*0.166667"]),
            (MERGED, ["answer 0d v2 late 0 of 3"]),
        ],
    ),
    (
        "who fills another buffer during a merge is answered after the next one",
        {},
        [
            *PAIR,
            (join(2), []),
            (push("0a"), ["answer 0a v0 late 0 of 0"]),
            (push("0b"), ["answer 0b v0 late 0 of 0"]),
            (push("0c"), ["merge 0a*0.333333 0b*0.333333 0c*0.333333"]),
            (push("1a"), ["answer 1a v0 late 0 of 0"]),
            (push("1b"), ["answer 1b v0 late 0 of 0"]),
            (push("1c"), []),
            (push("1d"), ["decline 1d Busy"]),
            (push("2a"), []),
            (
                MERGED,
                [
                    "answer 0c v1 late 0 of 3",
                    "merge 1a*0.333333 1b*0.333333 1c*0.333333",
                    "answer 2a v1 late 0 of 0",
                ],
            ),
            (MERGED, ["answer 1c v2 late 1 of 3"]),
        ],
    ),
    (
        "min_workers holds everything, one push of each",
        {"min_workers": 2},
        [
            *PAIR,
            (push("0a"), []),
            (push("0b"), ["decline 0b Busy"]),
            (push("1a"), ["answer 0a v0 late 0 of 0", "answer 1a v0 late 0 of 0"]),
            (push("0b"), ["merge 0a*0.333333 0b*0.333333 1a*0.333333"]),
        ],
    ),
    (
        "what waits of a worker that left or came back still counts",
        {},
        [
            *PAIR,
            (push("0a"), ["answer 0a v0 late 0 of 0"]),
            (leave(0), []),
            (join(0), []),
            (push("0b"), ["answer 0b v0 late 0 of 0"]),
            (leave(0), []),
            (push("1a"), ["merge 0a*0.333333 0b*0.333333 1a*0.333333"]),
            (leave(1), []),
            (join(1), []),
            (push("1b"), []),
            (
                MERGED,
                ["answer 1a v1 late 0 of 3", "answer 1b v1 late 1 of 0"],
            ),
        ],
    ),
    (
        "a merge that fails loses what was answered and is told to who was not",
        {},
        [
            *PAIR,
            (push("0a"), ["answer 0a v0 late 0 of 0"]),
            (push("1a"), ["answer 1a v0 late 0 of 0"]),
            (push("0b"), ["merge 0a*0.333333 0b*0.333333 1a*0.333333"]),
            (push("1b"), ["answer 1b v0 late 0 of 0"]),
            (FAILED, ["drop 0a NotFinite", "drop 1a NotFinite", "decline 0b NotFinite"]),
            (push("0c"), ["answer 0c v0 late 0 of 0"]),
            (push("0d"), ["merge 0c*0.333333 0d*0.333333 1b*0.333333"]),
        ],
    ),
    (
        "so does one that weighs nothing",
        {"weights": by_samples()},
        [
            *PAIR,
            (push("0a", n_samples=0), ["answer 0a v0 late 0 of 0"]),
            (push("1a", n_samples=0), ["answer 1a v0 late 0 of 0"]),
            (
                push("1b", n_samples=0),
                ["drop 0a ZeroWeight", "drop 1a ZeroWeight", "decline 1b ZeroWeight"],
            ),
            (push("1c"), ["answer 1c v0 late 0 of 0"]),
        ],
    ),
)
def test_buffered(start, script):
    play(engine(buffered(3), **start), script)


def test_an_old_base_is_refused_before_it_is_answered():
    machine = engine(buffered(1, 1))
    play(
        machine,
        [
            *PAIR,
            (push("1a"), ["merge 1a*1"]),
            (MERGED, ["answer 1a v1 late 0 of 1"]),
            *[
                step
                for version in (1, 2)
                for step in (
                    (push("0a", base=version), ["merge 0a*1"]),
                    (MERGED, [f"answer 0a v{version + 1} late 0 of 1"]),
                )
            ],
            (push("1b", base=1), ["decline 1b StalePush"]),
            (push("1b", base=2), ["merge 1b*1"]),
        ],
    )


def test_nobody_is_waited_for_and_nothing_is_foreseen():
    machine = engine(buffered(3))
    play(machine, [*PAIR, (push("0a"), ["answer 0a v0 late 0 of 0"])])
    assert machine.waiting_for() == []
    assert machine.n_pushed == 1
    assert machine.preview([push("1a")], 0.0) is None


WORKERS = st.integers(0, 3)
EVENTS = st.one_of(
    st.builds(join, WORKERS),
    st.builds(leave, WORKERS),
    st.tuples(WORKERS, st.integers(0, 2)),
    st.tuples(WORKERS, st.integers(0, 2)),
    st.tuples(WORKERS, st.integers(0, 2)),
    st.sampled_from([MERGED, MERGED, FAILED]),
)


class House:
    """Does what an engine says, as the service would, and keeps the books."""

    def __init__(self, machine):
        self.machine = machine
        self.n = 0
        self.merging = None
        self.answered, self.merged, self.lost, self.declined = [], [], [], []
        self.open = set()

    def tell(self, event):
        match event:
            case (worker, back):
                base = max(0, self.machine.version - back)
                event = push(f"{worker}:{self.n}", base=base)
                self.n += 1
                self.open.add(event.handle.name)
            case Merged() | MergeFailed():
                if self.merging is None:
                    return
                self.merged += self.merging if isinstance(event, Merged) else []
                self.merging = None
            case _ if self.machine.is_member(event.worker) != (event == leave(event.worker)):
                return
        for action in self.machine.handle(event, 0.0):
            self.do(action)

    def do(self, action):
        match action:
            case Merge(handles, _):
                assert self.merging is None, "one merge at a time"
                self.merging = [handle.name for handle in handles]
                assert len(self.merging) == self.machine.sync.size
            case Answer(handle, _, version, _, n_merged):
                assert handle.name in self.open, "one answer each"
                self.open.discard(handle.name)
                self.answered.append(handle.name)
                assert version == self.machine.version
                assert (n_merged > 0) == (handle.name in self.merged)
            case Decline(handle):
                self.open.discard(handle.name)
                self.declined.append(handle.name)
            case Drop(handle):
                assert handle.name in self.answered
                self.lost.append(handle.name)


@settings(max_examples=300)
@given(
    size=st.integers(1, 4),
    min_workers=st.integers(1, 3),
    script=st.lists(EVENTS, max_size=60),
)
def test_every_push_has_one_fate_and_one_answer(size, min_workers, script):
    house = House(engine(buffered(size), min_workers=min_workers))
    for event in script:
        house.tell(event)
    fates = house.merged + house.lost + house.declined
    assert len(fates) == len(set(fates)), "nothing is merged twice, or lost after it was merged"
    assert len(house.answered) == len(set(house.answered))
    waiting = {f"{w}:{n}" for w in range(4) for n in range(house.n)} - set(fates)
    assert set(house.answered) - set(fates) <= waiting
    # A buffer never holds more than it is filled with, but for one push of each worker that waits for its answer.
    answered = set(house.answered) - set(fates) - set(house.merging or ())
    assert len(answered) < size
    if house.merging is None and house.machine.started:
        assert not house.open or house.machine._early


@pytest.mark.parametrize("weights", [uniform(), by_staleness(0.5)], ids=repr)
def test_a_buffer_of_one_is_asynchronous_where_merges_take_no_time(weights):
    @settings(max_examples=100)
    @given(script=st.lists(EVENTS, max_size=40))
    def same(script):
        machines = [engine(sync, weights=weights) for sync in (buffered(1), asynchronous())]
        for number, event in enumerate(script):
            match event:
                case (worker, back):
                    base = max(0, machines[0].version - back)
                    event = push(f"{worker}:{number}", base=base)
                case Merged() | MergeFailed():
                    continue
                case _ if machines[0].is_member(event.worker) != (event == leave(event.worker)):
                    continue
            while event is not None:
                told = [[said(a) for a in machine.handle(event, 0.0)] for machine in machines]
                assert told[0] == told[1]
                event = MERGED if machines[0]._round.busy else None

    same()
