"""Bulk rounds as tables: no loop, no clock."""

from aiops.policy.sync import bulk
from aiops.policy.weight import by_samples
from tests.server.script import FAILED, MERGED, PAIR, engine, join, leave, play, push, table


@table(
    (
        "one worker closes every round alone",
        {},
        [
            (join(0), []),
            (push("0a"), ["merge 0a*1"]),
            (MERGED, ["answer 0a v1 late 0 of 1"]),
            (push("0b", base=1), ["merge 0b*1"]),
            (MERGED, ["answer 0b v2 late 0 of 1"]),
        ],
    ),
    (
        "a round waits for everybody and sums in worker order",
        {"min_workers": 3},
        [
            *[(join(i), []) for i in range(3)],
            (push("2a"), []),
            (push("0a"), []),
            (push("1a"), ["merge 0a*0.333333 1a*0.333333 2a*0.333333"]),
            (MERGED, [f"answer {i}a v1 late 0 of 3" for i in range(3)]),
            (push("1b", base=1), []),
            (push("2b", base=1), []),
            (push("0b", base=1), ["merge 0b*0.333333 1b*0.333333 2b*0.333333"]),
        ],
    ),
    (
        "a member that never pushed is not waited for",
        {},
        [*PAIR, (push("1a"), ["merge 1a*1"]), (MERGED, ["answer 1a v1 late 0 of 1"])],
    ),
    (
        "the last one missing leaves and the round closes at once",
        {"min_workers": 2},
        [
            *PAIR,
            (push("0a"), []),
            (push("1a"), ["merge 0a*0.5 1a*0.5"]),
            (MERGED, ["answer 0a v1 late 0 of 2", "answer 1a v1 late 0 of 2"]),
            (push("0b", base=1), []),
            (leave(1), ["merge 0b*1"]),
            (MERGED, ["answer 0b v2 late 0 of 1"]),
        ],
    ),
    (
        "what a worker pushed before it left still counts",
        {"min_workers": 2},
        [
            *PAIR,
            (push("0a"), []),
            (push("1a"), ["merge 0a*0.5 1a*0.5"]),
            (MERGED, ["answer 0a v1 late 0 of 2", "answer 1a v1 late 0 of 2"]),
            (push("0b", base=1), []),
            (leave(0), []),
            (push("1b", base=1), ["merge 0b*0.5 1b*0.5"]),
            (MERGED, ["answer 0b v2 late 0 of 2", "answer 1b v2 late 0 of 2"]),
        ],
    ),
    (
        "the last worker leaves and its push closes the round",
        {"min_workers": 2},
        [
            *PAIR,
            (push("0a"), []),
            (push("1a"), ["merge 0a*0.5 1a*0.5"]),
            (leave(0), []),
            (leave(1), []),
            (MERGED, ["answer 0a v1 late 0 of 2", "answer 1a v1 late 0 of 2"]),
        ],
    ),
    (
        "a push during a merge waits for the next round",
        {},
        [
            *PAIR,
            (push("0a"), ["merge 0a*1"]),
            (push("1a"), []),
            (MERGED, ["answer 0a v1 late 0 of 1"]),
            (push("0b", base=1), ["merge 0b*0.5 1a*0.5"]),
            (MERGED, ["answer 0b v2 late 0 of 2", "answer 1a v2 late 0 of 2"]),
        ],
    ),
    (
        "min_workers holds the first round and no later one",
        {"min_workers": 2},
        [
            *PAIR,
            (push("0a"), []),
            (push("1a"), ["merge 0a*0.5 1a*0.5"]),
            (MERGED, ["answer 0a v1 late 0 of 2", "answer 1a v1 late 0 of 2"]),
            (leave(1), []),
            (push("0b", base=1), ["merge 0b*1"]),
        ],
    ),
    (
        "a worker that left before the start is not counted",
        {"min_workers": 2},
        [*PAIR, (push("0a"), []), (leave(0), []), (push("1a"), []), (join(0), [])],
    ),
    (
        "all-zero weights are refused and the next round is open",
        {"min_workers": 2, "weights": by_samples()},
        [
            *PAIR,
            (push("0a", n_samples=0), []),
            (push("1a", n_samples=0), ["decline 0a ZeroWeight", "decline 1a ZeroWeight"]),
            (push("0b", n_samples=3), []),
            (push("1b", n_samples=1), ["merge 0b*0.75 1b*0.25"]),
            (MERGED, ["answer 0b v1 late 0 of 2", "answer 1b v1 late 0 of 2"]),
        ],
    ),
    (
        "a single zero weight is merged along",
        {"min_workers": 2, "weights": by_samples()},
        [*PAIR, (push("0a", n_samples=0), []), (push("1a"), ["merge 0a*0 1a*1"])],
    ),
    (
        "a merge that fails is declined to all, at the same version, and the workers try again",
        {"min_workers": 2},
        [
            *PAIR,
            (push("0a"), []),
            (push("1a"), ["merge 0a*0.5 1a*0.5"]),
            (FAILED, ["decline 0a NotFinite", "decline 1a NotFinite"]),
            (push("0b"), []),
            (push("1b"), ["merge 0b*0.5 1b*0.5"]),
            (MERGED, ["answer 0b v1 late 0 of 2", "answer 1b v1 late 0 of 2"]),
        ],
    ),
    (
        "a second push of a worker is busy while its first is held or merged",
        {"min_workers": 2},
        [
            *PAIR,
            (push("0a"), []),
            (push("0b"), ["decline 0b Busy"]),
            (push("1a"), ["merge 0a*0.5 1a*0.5"]),
            (push("0c"), ["decline 0c Busy"]),
            (MERGED, ["answer 0a v1 late 0 of 2", "answer 1a v1 late 0 of 2"]),
            (push("0d", base=1), []),
        ],
    ),
    (
        "who is no member is told so",
        {},
        [(push("0a"), ["decline 0a NotMember"]), (join(0), []), (push("0a"), ["merge 0a*1"])],
    ),
    (
        "a base from the future is refused",
        {},
        [(join(0), []), (push("0a", base=1), ["decline 0a Refused"])],
    ),
)
def test_bulk(start, script):
    play(engine(bulk(), **start), script)


def test_waiting_names_who_the_open_round_lacks():
    machine = engine(bulk(), min_workers=3)
    play(machine, [*PAIR, (join(2), []), (push("1a"), []), (push("2a"), [])])
    assert machine.waiting_for() == []  # nobody who pushed before is missing
    assert machine.clocks() == {1: 1, 2: 1}
    play(
        machine,
        [
            (push("0a"), ["merge 0a*0.333333 1a*0.333333 2a*0.333333"]),
            (MERGED, [f"answer {i}a v1 late 0 of 3" for i in range(3)]),
            (push("1b", base=1), []),
        ],
    )
    assert machine.waiting_for() == [0, 2]
