"""Who comes late, comes back or is too old: staleness and lives in bulk rounds, as tables."""

from aiops.policy.sync import bulk
from tests.server.script import FAILED, MERGED, PAIR, engine, join, leave, play, push, rounds, table


@table(
    (
        "an old base is refused and the bound is in the refusal",
        {},
        [
            *PAIR,
            (push("1a"), ["merge 1a*1"]),
            (MERGED, ["answer 1a v1 late 0 of 1"]),
            (push("0a", base=1), []),
            (leave(1), ["merge 0a*1"]),
            (MERGED, ["answer 0a v2 late 0 of 1"]),
            *rounds(2, base=2),
            (push("0b", base=2), ["decline 0b StalePush"]),
            (push("0b", base=3), ["merge 0b*1"]),
            (MERGED, ["answer 0b v5 late 1 of 1"]),
        ],
    ),
    (
        "a newcomer's first push is taken however late it is",
        {},
        [
            *PAIR,
            *rounds(7),
            (push("1a", base=0), []),
            (push("0b", base=7), ["merge 0b*0.5 1a*0.5"]),
            (MERGED, ["answer 0b v8 late 0 of 2", "answer 1a v8 late 7 of 2"]),
            (push("1b", base=6), ["decline 1b StalePush"]),
        ],
    ),
    (
        "an evicted worker's old push is refused, what it computes after coming back is taken",
        {},
        [
            *PAIR,
            (push("0a"), ["merge 0a*1"]),
            (MERGED, ["answer 0a v1 late 0 of 1"]),
            (push("1a", base=0), []),
            (push("0b", base=1), ["merge 0b*0.5 1a*0.5"]),
            (MERGED, ["answer 0b v2 late 0 of 2", "answer 1a v2 late 1 of 2"]),
            (leave(1), []),
            *rounds(3, base=2),
            (join(1), []),
            (push("1b", base=2), ["decline 1b StalePush"]),
            *rounds(3, base=5),
            (push("1c", base=5), []),
            (push("0c", base=8), ["merge 0c*0.5 1c*0.5"]),
        ],
    ),
)
def test_staleness(start, script):
    play(engine(bulk(max_staleness=1), **start), script)


def test_a_stale_push_is_told_how_stale_it_is():
    machine = engine(bulk(max_staleness=0))
    play(machine, [(join(0), []), *rounds(3)])
    (decline,) = machine.handle(push("0b", base=1), 9.0)
    assert (decline.error.staleness, decline.error.bound) == (2, 0)


@table(
    (
        "another life's push waits until the round with the earlier one is merged, and counts for the start",
        {"min_workers": 2},
        [
            *PAIR,
            (push("0a"), []),
            (leave(0), []),
            (join(0), []),
            (push("0b"), []),
            (push("0c"), ["decline 0c Busy"]),
            (push("1a"), ["merge 0a*0.5 1a*0.5"]),
            (MERGED, ["answer 0a v1 late 0 of 2", "answer 1a v1 late 0 of 2"]),
            (push("1b", base=1), ["merge 0b*0.5 1b*0.5"]),
            (MERGED, ["answer 0b v2 late 1 of 2", "answer 1b v2 late 0 of 2"]),
        ],
    ),
    (
        "it does not hold the round up and is held for the next one",
        {},
        [
            *PAIR,
            (push("1x"), ["merge 1x*1"]),
            (MERGED, ["answer 1x v1 late 0 of 1"]),
            (push("0a", base=1), []),
            (leave(0), []),
            (join(0), []),
            (push("0b", base=1), []),
            (push("1a", base=1), ["merge 0a*0.5 1a*0.5"]),
            (MERGED, ["answer 0a v2 late 0 of 2", "answer 1a v2 late 0 of 2"]),
            (push("1b", base=2), ["merge 0b*0.5 1b*0.5"]),
            (MERGED, ["answer 0b v3 late 1 of 2", "answer 1b v3 late 0 of 2"]),
        ],
    ),
    (
        "it waits for a merge under way too, and for one that fails",
        {},
        [
            (join(0), []),
            (push("0a"), ["merge 0a*1"]),
            (leave(0), []),
            (join(0), []),
            (push("0b"), []),
            (FAILED, ["decline 0a NotFinite", "merge 0b*1"]),
            (MERGED, ["answer 0b v1 late 0 of 1"]),
        ],
    ),
    (
        "whoever leaves before its push is held is told so",
        {"min_workers": 2},
        [
            *PAIR,
            (push("0a"), []),
            (leave(0), []),
            (join(0), []),
            (push("0b"), []),
            (leave(0), ["decline 0b NotMember"]),
        ],
    ),
)
def test_a_worker_that_came_back(start, script):
    play(engine(bulk(), **start), script)
