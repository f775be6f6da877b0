"""Who chooses a round's positions, as a table: what happens on the left, what is answered on the right."""

import pytest

from aiops.errors import NotFinite
from aiops.policy.sync import Bulk
from aiops.server.choice import Choices
from aiops.server.event import Lead, MergeFailed, Show
from tests.server.script import MERGED, Name, engine, join, leave, push


class Play:
    """An engine and its choices; verbs return what is said to those who ask."""

    def __init__(self, n=3, **options):
        self.engine = engine(Bulk(), **options)
        self.choices = Choices(self.engine)
        self.now = 0.0
        for worker in range(n):
            self.event(join(worker))

    def event(self, event):
        self.now += 1
        self.engine.handle(event, self.now)
        return self.said(self.choices.follow())

    def ask(self, worker):
        return self.said(self.choices.ask(worker, Name(f"{worker}")))

    def choose(self, worker):
        if not self.choices.may_choose(worker):
            return ["no", *self.ask(worker)]
        return self.said(self.choices.choose(worker, Name(f"{worker}")))

    def push(self, *workers, base=0):
        return [word for w in workers for word in self.event(push(f"{w}p", base=base))]

    def said(self, actions):
        words = {Lead: "lead", Show: "show"}
        return [f"{words[type(action)]} {action.handle.name}" for action in actions]

    def leaders(self):
        return [worker for worker in range(9) if self.choices.leads(worker)]

    def close(self, *workers, base=0):
        """A whole round."""
        said = [word for w in workers for word in self.ask(w)]
        (leader,) = self.leaders()
        said += self.choose(leader)
        self.push(*workers, base=base)
        self.event(MERGED)
        return said


def test_the_first_to_ask_leads_the_first_round_and_the_others_wait_for_its_choice():
    play = Play()
    assert play.leaders() == []
    assert play.ask(1) == ["lead 1"]
    assert play.ask(0) == []
    assert play.choose(1) == ["show 0", "show 1"]
    assert play.ask(2) == ["show 2"]
    assert play.leaders() == []


def test_each_leads_in_turn_and_is_told_before_it_asks():
    play = Play()
    play.close(0, 1, 2)
    for version, leader in ((1, 1), (2, 2), (3, 0), (4, 1)):
        assert play.leaders() == [leader]
        others = [worker for worker in range(3) if worker != leader]
        assert [play.ask(worker) for worker in others] == [[], []]
        assert play.choose(leader) == [*(f"show {other}" for other in others), f"show {leader}"]
        play.push(0, 1, 2, base=version)
        play.event(MERGED)


def test_a_round_waits_for_everybody_who_has_asked():
    play = Play(2, min_workers=1)
    play.ask(0)
    play.choose(0)
    assert play.ask(1) == ["show 1"]
    play.push(0)
    assert not play.engine._round.busy
    play.push(1)
    assert play.engine._round.busy


def test_who_has_asked_does_not_count_as_one_that_has_pushed():
    play = Play(2, min_workers=2)
    play.ask(0)
    play.choose(0)
    play.push(0)
    assert play.engine.n_pushed == 1
    play.ask(1)
    assert play.engine.n_pushed == 1
    assert play.event(leave(1)) == []
    assert (play.engine.started, play.engine.active) == (False, {0})


def test_a_leader_that_leaves_is_followed_by_the_next_that_asks_already():
    play = Play(4)
    play.close(0, 1, 2, 3)
    assert play.leaders() == [1]
    assert [play.ask(worker) for worker in (0, 3)] == [[], []]
    assert play.event(leave(1)) == ["lead 3"]
    assert play.choose(3) == ["show 0", "show 3"]


def test_a_leader_whose_line_is_lost_is_followed_and_may_still_choose_first():
    play = Play()
    play.close(0, 1, 2)
    play.ask(0)
    assert play.said(play.choices.lost(1)) == ["lead 0"]
    assert play.choose(1) == ["show 1"]
    # Who was told in its place comes too late: it gets the choice that counts.
    assert play.choose(0) == ["no", "show 0"]


def test_where_nobody_asks_the_next_to_ask_leads_in_a_lost_leaders_place():
    play = Play()
    play.close(0, 1, 2)
    assert play.said(play.choices.lost(1)) == []
    assert play.leaders() == []
    assert play.ask(0) == ["lead 0"]


def test_nobody_is_told_to_lead_whose_line_is_lost():
    play = Play()
    play.close(0, 1, 2)
    play.ask(0)
    play.ask(2)
    play.choose(1)
    play.push(0, 1, 2, base=1)
    play.choices.lost(2)
    play.event(MERGED)
    assert play.leaders() == [0]


def test_a_lost_question_is_not_answered_and_a_new_one_is():
    play = Play()
    play.ask(0)
    play.ask(1)
    play.choices.lost(1)
    assert play.choose(0) == ["show 0"]
    assert play.ask(1) == ["show 1"]


def test_a_choice_that_is_none_hands_the_lead_on():
    play = Play()
    play.ask(2)
    play.ask(0)
    assert play.said(play.choices.declined(2)) == ["lead 0"]
    assert play.choose(2) == ["no"]
    assert play.choose(0) == ["show 2", "show 0"]


def test_a_leader_that_leaves_after_its_choice_leaves_that_behind():
    play = Play()
    play.ask(0)
    play.choose(0)
    assert play.event(leave(0)) == []
    assert play.ask(1) == ["show 1"]


def test_nobody_chooses_unasked_or_twice():
    play = Play()
    assert play.choose(1) == ["no", "lead 1"]
    assert play.choose(1) == ["show 1"]
    assert play.choose(1) == ["no", "show 1"]


def test_who_asks_while_a_round_is_closing_is_of_the_next_one():
    play = Play(2)
    play.close(0)
    play.ask(0)
    play.push(0, base=1)
    assert play.ask(1) == []
    assert play.engine.active == {0}
    assert play.event(MERGED) == []
    # It had not entered when the lead was given.
    assert play.leaders() == [0]
    assert play.choose(0) == ["show 1", "show 0"]
    assert play.engine.active == {0, 1}


def test_another_life_asks_for_the_round_after_the_one_that_has_its_push():
    play = Play(2)
    play.close(0, 1)
    assert play.leaders() == [1]
    play.ask(0)
    play.choose(1)
    play.push(0, base=1)
    play.event(leave(0))
    play.event(join(0))
    assert play.ask(0) == []
    play.push(1, base=1)
    play.event(MERGED)
    assert play.leaders() == [1]
    assert play.choose(1) == ["show 0", "show 1"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_round_that_is_given_up_is_chosen_for_anew(gone):
    play = Play(2)
    play.ask(0)
    play.choose(0)
    play.push(0)
    if gone:
        play.event(leave(1))
    play.event(MergeFailed(NotFinite("too large")))
    assert play.leaders() == [0]
    assert play.choose(0) == ["show 0"]
    assert play.engine.version == 0


def test_a_round_whose_pushes_weigh_nothing_is_chosen_for_anew():
    play = Play(1, weights=lambda pushes: [0.0 for _ in pushes])
    play.ask(0)
    play.choose(0)
    play.push(0)
    assert (play.leaders(), play.engine.turn, play.engine.version) == ([0], 1, 0)


def test_a_slow_newcomer_that_has_asked_gets_in_however_late_it_is():
    play = Play(2)
    for version in range(4):
        play.close(0, base=version)
    assert play.leaders() == [0]
    play.ask(1)
    play.choose(0)
    play.push(0, 1, base=0)
    # Worker 0 is four rounds late and refused, worker 1 has not pushed before.
    assert sorted(play.engine._round.held) == [1]


def test_questions_of_workers_that_left_are_not_answered():
    play = Play()
    play.ask(0)
    play.ask(1)
    assert play.event(leave(1)) == []
    assert play.choose(0) == ["show 0"]
