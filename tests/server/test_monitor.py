"""What the server measures of its workers: no clock, no loop."""

import dataclasses
import math

import pytest

from aiops.policy.sync import asynchronous, bulk, ssp
from aiops.policy.weight import uniform
from aiops.server.engine import Engine
from aiops.server.monitor import tracked
from tests.server.script import FAILED, MERGED, join, leave, push


@dataclasses.dataclass
class Watching:
    """A work policy that keeps what it is shown."""

    overlap = False
    seen: list = dataclasses.field(default_factory=list)

    def plan(self, monitor):
        self.seen.append(dict(monitor))
        return {}

    def last(self, worker):
        view = self.seen[-1][worker]
        return view.step_s, view.sync_s, view.link_s


def play(sync, *script):
    """Tell an engine each (time, event), and return what the work policy saw."""
    work = Watching()
    machine = Engine(sync, uniform(), work)
    for now, event in script:
        machine.handle(event, now)
    return work


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(0.0, 2.0, 2.0, id="the first one is taken as it is"),
        pytest.param(2.0, 3.0, 2.5, id="noise is halved"),
        pytest.param(3.0, 2.0, 2.5, id="noise is halved downwards"),
        pytest.param(2.0, 3.01, 3.01, id="a jump up is taken at once"),
        pytest.param(3.0, 1.99, 1.99, id="a jump down is taken at once"),
    ],
)
def test_measurements_are_smoothed_unless_they_jump(old, new, expected):
    assert tracked(old, new) == pytest.approx(expected, rel=1e-15)


NONSENSE = [math.nan, math.inf, -1.0, 0.0, -math.inf, 1e308, 201.0]


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_times_that_are_none_leave_the_smoothed_ones_alone(nonsense):
    work = play(
        bulk(),
        (0.0, join(0)),
        (100.0, push("0a", step_s=2.0, sync_s=2.0)),
        (100.0, MERGED),
        (200.0, push("0b", base=1, step_s=nonsense, sync_s=nonsense)),
        (200.0, MERGED),
        (300.0, push("0c", base=2, step_s=3.0, sync_s=3.0)),
        (300.0, MERGED),
    )
    # The second sync has its link time lost, the third one is the time since the second push.
    assert [seen[0].step_s for seen in work.seen[1:]] == [2.0, 2.0, 2.5]
    assert [seen[0].sync_s for seen in work.seen[1:]] == [2.0, 2.0, 2.5]
    assert work.last(0)[2] == 3.0


def test_a_step_time_is_believed_only_if_its_steps_fit_between_two_pushes():
    def pushed(n_steps):
        return play(
            bulk(),
            (0.0, join(0)),
            (10.0, push("0a", n_steps=n_steps, step_s=2.0)),
            (10.0, MERGED),
        ).last(0)[0]

    assert pushed(5) == pushed(10) == 2.0
    assert pushed(11) == pushed(0) == 0.0


def test_link_time_is_sync_time_without_the_wait_for_the_others():
    # Worker 0 pushes at 5, worker 1 at 9, which closes the round; the merge is done at 9.5. Each measures from its
    # push to its model: 0 says 6 (1 up, 4 waiting, 0.5 merging, 0.5 down), 1 says 3 (2 up, 0.5 merging, 0.5 down).
    work = play(
        bulk(),
        (0.0, join(0)),
        (0.0, join(1)),
        (5.0, push("0a")),
        (5.0, MERGED),
        (6.0, push("1a", base=1)),
        (6.5, push("0b", base=1)),
        (6.5, MERGED),
        (8.0, push("0c", base=2)),
        (12.0, push("1c", base=2)),
        (12.5, MERGED),
        (14.0, push("0d", base=3, sync_s=6.0)),
        (16.0, push("1d", base=3, sync_s=3.0)),
        (16.5, MERGED),
    )
    assert work.last(0)[2] == 2.0
    assert work.last(1)[2] == 3.0


def test_what_is_parked_behind_slower_workers_is_no_link_time():
    # Worker 0 is answered at 20, when worker 1 catches up: 14 of the 15 s that it measured were the others'.
    work = play(
        ssp(0),
        (0.0, join(0)),
        (0.0, join(1)),
        (1.0, push("1a")),
        (1.0, MERGED),
        (2.0, push("0a", base=1)),
        (2.0, MERGED),
        (5.0, push("0b", base=2)),
        (6.0, MERGED),
        (20.0, push("1b", base=1)),
        (20.0, MERGED),
        (21.0, push("0c", base=3, sync_s=16.0)),
        (21.0, MERGED),
    )
    assert work.last(0)[2] == pytest.approx(2.0)


def test_the_turn_of_another_push_is_no_link_time():
    work = play(
        asynchronous(),
        (0.0, join(0)),
        (0.0, join(1)),
        (10.0, push("0a")),
        (11.0, push("1a")),
        (14.0, MERGED),
        (15.0, MERGED),
        (20.0, push("1b", base=2, sync_s=5.0)),
        (20.0, MERGED),
    )
    assert work.last(1)[2] == 2.0


@pytest.mark.parametrize(
    "between",
    [
        pytest.param([(11.0, push("0b", base=9))], id="declined"),
        pytest.param([(11.0, push("0b", base=1)), (12.0, FAILED)], id="of a failed merge"),
        pytest.param([(11.0, leave(0)), (11.0, join(0))], id="of an earlier life"),
    ],
)
def test_a_sync_that_was_another_one_is_no_link_time(between):
    work = play(
        bulk(),
        (0.0, join(0)),
        (10.0, push("0a")),
        (10.0, MERGED),
        *between,
        (30.0, push("0c", base=1, sync_s=9.0)),
        (30.0, MERGED),
    )
    assert work.last(0)[1:] == (9.0, 0.0)


def test_a_sync_that_was_shorter_than_its_wait_is_no_link_time():
    work = play(
        asynchronous(),
        (0.0, join(0)),
        (0.0, join(1)),
        (10.0, push("0a")),
        (11.0, push("1a")),
        (14.0, MERGED),
        (15.0, MERGED),
        (20.0, push("1b", base=2, sync_s=3.0)),
        (20.0, MERGED),
    )
    assert work.last(1)[1:] == (3.0, 0.0)
