"""Asynchronous and stale synchronous rounds as tables."""

from aiops.policy.sync import asynchronous, ssp
from aiops.policy.weight import by_samples
from tests.server.script import MERGED, PAIR, engine, join, leave, play, push, rounds, table


@table(
    (
        "every push is a version of its own",
        {},
        [
            *PAIR,
            (push("0a"), ["merge 0a*1"]),
            (MERGED, ["answer 0a v1 late 0 of 1"]),
            (push("1a"), ["merge 1a*1"]),
            (MERGED, ["answer 1a v2 late 1 of 1"]),
        ],
    ),
    (
        "what comes during a merge is merged after it, one by one",
        {},
        [
            *PAIR,
            (join(2), []),
            (push("1a"), ["merge 1a*1"]),
            (push("2a"), []),
            (push("0a"), []),
            (MERGED, ["answer 1a v1 late 0 of 1", "merge 2a*1"]),
            (MERGED, ["answer 2a v2 late 0 of 1", "merge 0a*1"]),
            (MERGED, ["answer 0a v3 late 0 of 1"]),
        ],
    ),
    (
        "any base is merged",
        {},
        [*PAIR, *rounds(5), (push("1a"), ["merge 1a*1"]), (MERGED, ["answer 1a v6 late 5 of 1"])],
    ),
    (
        "min_workers holds the first push until enough have pushed",
        {"min_workers": 2},
        [
            *PAIR,
            (push("1a"), []),
            (push("0a"), ["merge 1a*1"]),
            (MERGED, ["answer 1a v1 late 0 of 1", "merge 0a*1"]),
        ],
    ),
    (
        "a zero weight is refused and the next push goes on",
        {"weights": by_samples()},
        [
            *PAIR,
            (push("0a", n_samples=0), ["decline 0a ZeroWeight"]),
            (push("1a"), ["merge 1a*1"]),
        ],
    ),
    (
        "a worker that leaves during the merge of its push is answered all the same",
        {},
        [
            (join(0), []),
            (push("0a"), ["merge 0a*1"]),
            (leave(0), []),
            (MERGED, ["answer 0a v1 late 0 of 1"]),
        ],
    ),
    (
        "another life's push does not overtake the earlier one that waits for a merge",
        {},
        [
            *PAIR,
            (push("1a"), ["merge 1a*1"]),
            (push("0a"), []),
            (leave(0), []),
            (join(0), []),
            (push("0b"), []),
            (MERGED, ["answer 1a v1 late 0 of 1", "merge 0a*1"]),
            (MERGED, ["answer 0a v2 late 0 of 1", "merge 0b*1"]),
            (MERGED, ["answer 0b v3 late 2 of 1"]),
        ],
    ),
)
def test_asynchronous(start, script):
    play(engine(asynchronous(), **start), script)


def ahead(parked):
    """Both push once, then worker 0 until its lead is 2, one more than the bound."""
    return [
        *PAIR,
        (push("1a"), ["merge 1a*1"]),
        (MERGED, ["answer 1a v1 late 0 of 1"]),
        (push("0a", base=1), ["merge 0a*1"]),
        (MERGED, ["answer 0a v2 late 0 of 1"]),
        (push("0b", base=2), ["merge 0b*1"]),
        (MERGED, ["answer 0b v3 late 0 of 1"]),
        (push(parked, base=3), [f"merge {parked}*1"]),
        (MERGED, []),
    ]


@table(
    (
        "who is too far ahead is answered when the slowest catches up",
        {},
        [
            *ahead("0c"),
            (push("1b", base=1), ["answer 0c v4 late 0 of 1", "merge 1b*1"]),
            (MERGED, ["answer 1b v5 late 3 of 1"]),
        ],
    ),
    (
        "who is too far ahead is answered when the slowest leaves",
        {},
        [*ahead("0c"), (leave(1), ["answer 0c v4 late 0 of 1"])],
    ),
    (
        "a parked worker that leaves is answered, so that its push is not forgotten",
        {},
        [*ahead("0c"), (leave(0), ["answer 0c v4 late 0 of 1"])],
    ),
    (
        "a newcomer is level with the slowest and holds nobody up by its past",
        {},
        [
            *PAIR,
            *rounds(9),
            (push("1a"), ["merge 1a*1"]),
            (MERGED, ["answer 1a v10 late 9 of 1"]),
            (push("0c", base=9), ["merge 0c*1"]),
            (MERGED, ["answer 0c v11 late 1 of 1"]),
            (push("0d", base=11), ["merge 0d*1"]),
            (MERGED, []),
        ],
    ),
    (
        "those that start together are level whoever pushes first",
        {},
        [
            *PAIR,
            (push("0a"), ["merge 0a*1"]),
            (MERGED, ["answer 0a v1 late 0 of 1"]),
            (push("1a"), ["merge 1a*1"]),
            (MERGED, ["answer 1a v2 late 1 of 1"]),
            (push("1b", base=2), ["merge 1b*1"]),
            (MERGED, ["answer 1b v3 late 0 of 1"]),
            (push("1c", base=3), ["merge 1c*1"]),
            (MERGED, []),
        ],
    ),
)
def test_ssp(start, script):
    play(engine(ssp(1), **start), script)
