"""The advised engine as a table: who asks what on the left, who is told what on the right."""

import pytest

from aiops.errors import NotFinite
from aiops.policy.base import Work
from aiops.policy.esync import esync
from aiops.policy.sync import bulk
from aiops.policy.weight import uniform
from aiops.policy.work import fixed
from aiops.server.advice import LONGEST_RTT_S, AdvisedEngine, make_engine
from aiops.server.engine import Engine
from aiops.server.event import Advise, MergeFailed, Queried
from tests.server.script import MERGED, Name, join, leave, push, said


def ask(name, n_steps=0, *, v=0, c=0.0, rtt=0.0):
    """A question called "0a" is one of worker 0."""
    return Queried(int(name[0]), Name(name), v, n_steps, c, rtt)


def tell(worker, n_steps=0, *, v=0, c=0.0, rtt=0.0):
    """What a worker says as it begins, and as its push does."""
    return Queried(worker, None, v, n_steps, c, rtt)


def spoken(action):
    if isinstance(action, Advise):
        how_far = "go on" if action.n_steps is None else f"until {action.n_steps}"
        held = f" held {action.held_s:g}" if action.held_s else ""
        return f"tell {action.handle.name} v{action.version} {how_far}{held}"
    return said(action)


def play(engine, script):
    for at, event, expected in script:
        handle = engine.queried if isinstance(event, Queried) else engine.handle
        assert [spoken(action) for action in handle(event, at)] == expected, f"{at}: {event}"


def advised(n=2, **options):
    engine = AdvisedEngine(bulk(max_staleness=0), uniform(), esync(), min_workers=n)
    for worker in range(n):
        engine.handle(join(worker), 0.0)
    return engine


# The fast worker 0 takes 1 s a step, the slow worker 1 takes 4; pushes and questions take no time. Ends at 5.
FIRST = [
    (0.0, tell(0), []),
    (0.0, tell(1), []),
    (1.0, ask("0a", 1, c=1.0), []),
    (4.0, ask("1a", 1, c=4.0), ["tell 1a v0 until 1", "tell 0a v0 until 4 held 3"]),
    (4.0, tell(1, 1), []),
    (4.0, push("1p"), []),
    (4.0, tell(0, 4, c=1.0), []),
    (4.0, push("0p", n_steps=4), ["merge 0p*0.5 1p*0.5"]),
    (5.0, MERGED, ["answer 0p v1 late 0 of 2", "answer 1p v1 late 0 of 2"]),
]


def test_the_first_round_is_held_open_until_everybodys_steps_are_timed():
    play(advised(), FIRST)


def test_a_round_in_the_steady_state_is_known_from_its_first_questions():
    engine = advised()
    play(engine, FIRST)
    assert (engine.work_of(0), engine.work_of(1)) == (Work(1, 4), Work(1, 1))
    play(
        engine,
        [
            (5.0, ask("0b", v=1), []),
            (5.0, ask("1b", v=1), ["tell 1b v1 until 1", "tell 0b v1 until 4"]),
            (6.0, ask("0c", 1, v=1, c=1.0), ["tell 0c v1 until 4"]),
            (9.0, tell(1, 1, v=1, c=4.0), []),
            (9.0, push("1p", base=1), []),
            # Its push is there: whoever still computes is late.
            (9.0, ask("0d", 2, v=1, c=1.5), ["tell 0d v1 until 2"]),
            (9.0, tell(0, 2, v=1), []),
            (9.0, push("0p", base=1, n_steps=2), ["merge 0p*0.5 1p*0.5"]),
        ],
    )


def test_an_answer_is_held_until_the_straggler_begins_and_counts_from_the_question():
    engine = advised()
    play(engine, FIRST)
    play(
        engine,
        [
            (6.0, ask("0b", v=1), []),
            (8.0, ask("1b", v=1), ["tell 1b v1 until 1", "tell 0b v1 until 6 held 2"]),
        ],
    )


def test_half_of_a_workers_round_trip_is_taken_off_the_clock():
    engine = advised()
    play(engine, FIRST)
    play(
        engine,
        [
            # It began at 5 and its word took 1 s; until 9, and its push may take as long as its words do.
            (6.0, ask("1b", v=1, rtt=2.0), ["tell 1b v1 until 1"]),
            (5.0, ask("0b", v=1), ["tell 0b v1 until 5"]),
            # A round trip that cannot be is not believed.
            (5.0, ask("0c", v=1, rtt=3 * LONGEST_RTT_S), ["tell 0c v1 until 5"]),
            (5.0, ask("0d", v=1, rtt=float("nan")), ["tell 0d v1 until 5"]),
        ],
    )


def test_the_straggler_leaves_and_who_waited_is_told_by_the_next_one():
    engine = advised(3)
    play(
        engine,
        [
            *[(0.0, tell(worker), []) for worker in range(3)],
            (1.0, ask("0a", 1, c=1.0), []),
            (2.0, ask("1a", 1, c=2.0), []),
            # Nothing is left of worker 1's time: from 2 on it has done its step.
            (3.0, leave(2), ["tell 0a v0 until 2 held 2", "tell 1a v0 until 1 held 1"]),
        ],
    )


def test_who_leaves_is_told_nothing():
    engine = advised()
    play(engine, [*FIRST, (5.0, ask("0b", v=1), []), (6.0, leave(0), [])])
    play(engine, [(7.0, ask("1b", v=1), ["tell 1b v1 until 1"])])


def test_a_question_that_is_open_when_the_push_comes_is_closed():
    engine = advised()
    play(engine, FIRST)
    play(
        engine,
        [
            (5.0, ask("0b", v=1), []),
            (6.0, tell(0, 4, v=1, c=0.25), ["tell 0b v1 go on held 1"]),
            (6.0, push("0p", base=1, n_steps=4), []),
        ],
    )


def test_a_question_that_is_asked_again_over_another_connection_closes_the_first():
    engine = advised()
    play(engine, FIRST)
    play(engine, [(5.0, ask("0b", v=1), []), (7.0, ask("0c", v=1), ["tell 0b v1 go on held 2"])])


def test_who_was_never_timed_is_told_to_go_on_at_once():
    play(advised(), [(0.0, ask("0a"), ["tell 0a v0 go on"])])


def test_a_newcomer_holds_nobody_up_and_synchronizes_when_its_round_has_closed():
    engine = advised()
    play(engine, FIRST)
    play(
        engine,
        [
            (5.0, join(2), []),
            (5.0, tell(2, v=1), []),
            (5.0, ask("1b", v=1), ["tell 1b v1 until 1"]),
            (5.0, ask("0b", v=1), ["tell 0b v1 until 4"]),
            (9.0, push("1p", base=1), []),
            (9.0, push("0p", base=1, n_steps=4), ["merge 0p*0.5 1p*0.5"]),
            (9.0, MERGED, ["answer 0p v2 late 0 of 2", "answer 1p v2 late 0 of 2"]),
            # It is the slowest of all, and not the straggler: no round has waited for it yet.
            (25.0, ask("2a", 1, v=1, c=20.0), ["tell 2a v1 until 1"]),
            (25.0, ask("0c", v=2), []),
            (25.0, ask("1c", v=2), ["tell 1c v2 until 1", "tell 0c v2 until 4"]),
            (25.0, push("2p", base=1), []),
            (29.0, push("0q", base=2, n_steps=4), []),
            (29.0, push("1q", base=2), ["merge 0q*0.333333 1q*0.333333 2p*0.333333"]),
            (
                29.0,
                MERGED,
                [
                    "answer 0q v3 late 0 of 3",
                    "answer 1q v3 late 0 of 3",
                    "answer 2p v3 late 1 of 3",
                ],
            ),
            # From here on it is waited for, and everybody fills its time.
            (29.0, ask("2b", v=3), ["tell 2b v3 until 1"]),
            (29.0, ask("0d", v=3), ["tell 0d v3 until 20"]),
            (29.0, ask("1d", v=3), ["tell 1d v3 until 5"]),
        ],
    )


def test_a_newcomers_open_question_ends_with_the_round():
    engine = advised()
    play(engine, FIRST)
    play(
        engine,
        [
            (5.0, join(2), []),
            (6.0, ask("2a", 3, v=1, c=0.5), []),
            (9.0, push("1p", base=1), ["tell 2a v1 until 3 held 3"]),
        ],
    )


def test_a_round_that_closes_without_those_who_ask_ends_their_questions():
    play(
        advised(1),
        [
            *[(0.0, join(worker), []) for worker in (1, 2)],
            *[(0.0, tell(worker), []) for worker in (0, 1)],
            # Worker 1 may be the slowest, for all that is known.
            (3.0, ask("0a", 3, c=1.0), []),
            # Who pushes without ever asking closes a round as well.
            (4.0, push("2p"), ["merge 2p*1"]),
            (5.0, MERGED, ["answer 2p v1 late 0 of 1", "tell 0a v0 until 3 held 2"]),
            (6.0, ask("1a", 1, c=6.0), ["tell 1a v0 until 1"]),
        ],
    )


def test_a_push_that_is_declined_is_none():
    engine = advised()
    play(engine, FIRST)
    play(
        engine,
        [
            (5.0, ask("1b", v=1), ["tell 1b v1 until 1"]),
            (9.0, push("1p", base=9), ["decline 1p Refused"]),
            (6.0, ask("0b", 1, v=1), ["tell 0b v1 until 4"]),
        ],
    )


def test_a_round_that_fails_is_begun_again():
    engine = advised()
    play(engine, FIRST[:-1])
    play(
        engine,
        [
            (
                5.0,
                MergeFailed(NotFinite("too large")),
                ["decline 0p NotFinite", "decline 1p NotFinite"],
            ),
            (6.0, ask("1b"), ["tell 1b v0 until 1"]),
            (6.0, ask("0b"), ["tell 0b v0 until 4"]),
        ],
    )


def test_a_stranger_is_foreseen_nothing():
    engine = advised()
    play(engine, FIRST)
    assert engine.work_of(7) == Work(1, None)


@pytest.mark.parametrize(("work", "kind"), [(esync(2), AdvisedEngine), (fixed(2), Engine)])
def test_the_engine_follows_from_the_work(work, kind):
    engine = make_engine(bulk(), uniform(), work, min_workers=3)
    assert type(engine) is kind
    assert (engine.work, engine.min_workers) == (work, 3)
