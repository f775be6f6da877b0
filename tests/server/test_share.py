"""Rounds of sharing as a table: who gives, who waits for whom, and what nobody waits for."""

import pytest

from aiops.buffers import BufferPool
from aiops.server.share import Shares
from tests.server.script import Name

PATIENCE_S = 10.0


class Play:
    """Shares whose donors a test names, round by round; verbs return what is said to those who ask."""

    def __init__(self, donors=None):
        self.pool = BufferPool()
        self.donors = donors or {}
        # Who waits for its model.
        self.blocked = set()
        self.shares = Shares(self._draw, self.blocked.__contains__, patience_s=PATIENCE_S)
        self.asked = []

    def _draw(self, number, n):
        self.asked.append((number, n))
        return self.donors.get(number, ())

    def ask(self, worker, number, gift=None, now=0.0):
        block = None
        if gift is not None:
            assert self.shares.due(worker, number)
            block = self.pool.take(len(gift))
            block.view[:] = gift.encode()
        return self.said(self.shares.ask(worker, number, Name(str(worker)), block, now))

    def left(self, worker):
        return self.said(self.shares.left(worker))

    def settle(self):
        return self.said(self.shares.settle())

    def said(self, tells):
        return [
            f"{tell.handle.name}: "
            + "".join(f"{donor}{bytes(block.view).decode()} " for donor, block in tell.gifts.items())
            + f"then {tell.round} of {tell.donors}" + " gives" * tell.gives + " again" * tell.again
            for tell in tells
        ]  # fmt: skip


@pytest.fixture
def play():
    """Return a way to make a play; all of its memory is given back at the end."""
    made = []

    def make(*args):
        made.append(Play(*args))
        return made[-1]

    yield make
    for each in made:
        each.shares.close()


def test_a_round_by_hand(play):
    house = play({2: (0, 2)})
    # Who was told of no round is told of the open one, at once, and is drawn from then on.
    assert [house.ask(worker, 0) for worker in range(3)] == [
        [f"{w}: then 1 of 0 again"] for w in range(3)
    ]
    # Nobody gives in the first one, so it is over when somebody asks.
    assert house.ask(1, 1) == ["1: then 2 of 2"]
    assert house.ask(0, 1) == ["0: then 2 of 2 gives"]
    assert house.ask(2, 1) == ["2: then 2 of 2 gives"]
    assert house.ask(1, 2) == []
    assert house.ask(2, 2, "z") == []
    # The last donor's is what all were waiting for; nobody is sent its own.
    assert house.ask(0, 2, "a") == [
        "1: 2z 0a then 3 of 0", "2: 0a then 3 of 0", "0: 2z then 3 of 0"
    ]  # fmt: skip
    assert house.asked == [(2, 3), (3, 3)]


def test_who_waits_for_its_model_is_waited_for_by_nobody_and_shares_with_the_others_afterwards(
    play,
):
    house = play({2: (0, 1), 3: (0, 1), 4: (0, 1)})
    for worker in range(3):
        house.ask(worker, 0)
    house.ask(1, 1)
    assert house.ask(0, 1) == ["0: then 2 of 2 gives"]
    assert house.ask(0, 2, "a") == []
    house.blocked.add(2)
    assert house.settle() == []
    # Who gives has pushed, and what it waits for may be the push of who asks.
    house.blocked.add(1)
    assert house.settle() == ["0: then 3 of 2 gives"]
    assert not house.shares.due(1, 2)
    assert house.ask(0, 3, "b") == ["0: then 4 of 2 gives"]
    # They have missed rounds 2 and 3, and share in the one that is open: one behind, they would be so for good.
    house.blocked.clear()
    assert house.ask(1, 2) == ["1: then 4 of 2 gives again"]
    assert house.ask(2, 3) == ["2: then 4 of 2 again"]
    assert house.ask(2, 4) == house.ask(0, 4, "c") == []
    assert house.ask(1, 4, "d") == [
        "2: 0c 1d then 5 of 0", "0: 1d then 5 of 0", "1: 0c then 5 of 0"
    ]  # fmt: skip


def test_a_donor_whose_model_comes_while_others_are_waited_for_gives_all_the_same(play):
    house = play({2: (0, 1, 2)})
    for number in range(2):
        for worker in range(3):
            house.ask(worker, number)
    house.blocked.add(1)
    assert house.ask(2, 2, "c") == []
    assert house.shares.late(PATIENCE_S + 1) == {0}
    house.blocked.clear()
    assert house.ask(0, 2, "a") == []
    assert house.shares.late(PATIENCE_S + 1) == {1}
    assert house.ask(1, 2, "b") == [
        "2: 0a 1b then 3 of 0", "0: 2c 1b then 3 of 0", "1: 2c 0a then 3 of 0"
    ]  # fmt: skip


def test_who_asks_while_it_waits_for_its_model_has_missed_nothing(play):
    house = play({2: (0, 1), 3: (0, 1), 4: (0, 1)})
    for number in range(2):
        for worker in range(2):
            house.ask(worker, number)
    house.blocked.update({0, 1})
    # The other waits, and nobody says whether it overlaps.
    assert house.ask(0, 2, "a") == ["0: then 3 of 2 gives"]
    assert house.ask(1, 2) == ["1: then 3 of 2 gives again"]
    house.blocked.remove(1)
    assert house.ask(0, 3, "b") == []
    house.blocked.add(1)
    assert house.ask(1, 3, "c") == ["0: 1c then 4 of 2 gives", "1: 0b then 4 of 2 gives"]
    # Of an answer that was lost with a line there is another.
    assert house.ask(1, 3) == ["1: 0b then 4 of 2 gives"]
    house.blocked.clear()
    assert house.ask(0, 4, "d") == []
    assert house.ask(1, 4, "e") == ["0: 1e then 5 of 0", "1: 0d then 5 of 0"]


def test_looking_for_a_donor_to_wait_for_takes_no_longer_the_more_have_pushed(play):
    looked, n = [], 300
    house = play({2: range(n)})
    house.shares._waits = lambda worker: looked.append(worker) or worker in house.blocked
    for number in range(2):
        for worker in range(n):
            house.ask(worker, number)
    house.ask(7, 2, "a")
    looked.clear()
    for worker in range(n):
        house.blocked.add(worker)
        if worker != 7:
            house.settle()
    assert house.shares.round == 3
    assert len(looked) < 5 * n


def test_who_comes_late_gets_the_newest_round_that_is_over_and_no_other(play):
    house = play({2: (0,), 3: (0,)})
    for worker in range(3):
        house.ask(worker, 0)
    house.ask(0, 1)
    assert house.ask(0, 2, "a") == ["0: then 3 of 1 gives"]
    assert house.ask(1, 2) == ["1: 0a then 3 of 1"]
    assert house.pool.outstanding == 1
    assert house.ask(0, 3, "b") == ["0: then 4 of 0"]
    # Round 2 is gone, and so is its memory: who asks for it is to ask for round 4.
    assert house.ask(2, 2) == ["2: then 4 of 0 again"]
    assert house.pool.outstanding == 1
    # A number from a server's earlier life, and none.
    assert house.ask(2, 77) == ["2: then 4 of 0 again"]
    assert house.ask(9, 0) == ["9: then 4 of 0 again"]


def test_a_donor_without_samples_gives_nothing_and_holds_nobody_up(play):
    house = play({2: (0, 1)})
    house.ask(0, 0), house.ask(1, 0), house.ask(0, 1)
    assert house.ask(0, 2) == []
    assert house.ask(1, 2, "x") == ["0: 1x then 3 of 0", "1: then 3 of 0"]


def test_a_donor_gives_once(play):
    house = play({2: (0, 1)})
    house.ask(0, 0), house.ask(1, 0), house.ask(0, 1)
    assert house.shares.due(0, 2)
    assert not house.shares.due(0, 1)
    assert not house.shares.due(0, 3)
    house.ask(0, 2, "a")
    assert not house.shares.due(0, 2)
    # It asks again, over another connection maybe: the question before gets an answer, too.
    assert house.ask(0, 2) == ["0: then 2 of 2 gives again"]
    assert house.ask(1, 2, "b") == ["0: 1b then 3 of 0", "1: 0a then 3 of 0"]


def test_a_donor_that_leaves_is_not_waited_for(play):
    house = play({2: (0, 1)})
    house.ask(0, 0), house.ask(1, 0), house.ask(2, 0), house.ask(2, 1)
    assert house.ask(2, 2) == []
    assert house.left(0) == []
    assert house.left(1) == ["2: then 3 of 0"]
    assert house.asked[-1] == (3, 1)
    # Nobody is told what comes of it where nobody asks.
    house.donors[4] = (0,)
    assert house.ask(2, 3) == ["2: then 4 of 1 gives"]
    assert house.left(2) == []
    assert house.ask(7, 4) == ["7: then 5 of 0"]


def test_a_donor_whose_line_is_lost_may_come_back_and_is_drawn_no_more(play):
    house = play({2: (0,)})
    for worker in range(3):
        house.ask(worker, 0)
    house.ask(1, 1)
    assert house.ask(1, 2) == []
    house.shares.lost(0)
    assert house.ask(2, 2) == []
    house.shares.lost(2)
    assert house.ask(0, 2, "a") == ["1: 0a then 3 of 0", "0: then 3 of 0"]
    assert house.asked == [(2, 3), (3, 2)]


def test_donors_are_waited_for_as_long_as_patience_is_from_the_first_question_on(play):
    house = play({2: (0, 1), 3: (0,)})
    for worker in range(4):
        house.ask(worker, 0)
    house.ask(2, 1)
    assert house.shares.late(1e9) == set()
    house.ask(2, 2, now=5.0), house.ask(0, 2, "a", now=9.0)
    assert house.shares.late(15.0) == set()
    assert house.shares.late(15.1) == {1}
    assert house.left(1) == ["2: 0a then 3 of 1", "0: then 3 of 1 gives"]
    # The next round has a clock of its own, and one that nobody waits in has none.
    assert house.ask(2, 3, now=20.0) == []
    assert house.shares.late(29.0) == set()
    house.shares.lost(2)
    assert house.shares.late(99.0) == set()


def test_a_donor_whose_gift_is_refused_is_waited_for_no_longer(play):
    house = play({2: (0,)})
    house.ask(0, 0), house.ask(1, 0), house.ask(1, 1)
    assert house.ask(1, 2) == []
    assert house.said(house.shares.declined(0)) == ["1: then 3 of 0"]
    assert house.ask(0, 2) == ["0: then 3 of 0"]
