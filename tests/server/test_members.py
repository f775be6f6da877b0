"""Leases, lives and memories, without a loop."""

import random

import pytest

from aiops.server.members import MAX_DEPARTED, WINDOW, Members, Taken


def taken(version):
    return Taken(version, staleness=0, n_merged=1)


@pytest.fixture
def members():
    return Members(lease_s=10.0)


def join(members, identity="a", incarnation=1, *, now=0.0):
    return members.join(identity, incarnation, name="", now=now)


def test_workers_are_numbered_in_the_order_of_joining(members):
    assert [join(members, name)[0].worker for name in "cab"] == [0, 1, 2]
    assert [member.identity for member in members.all()] == ["c", "a", "b"]
    assert len(members) == 3


def test_the_same_life_that_dials_again_is_the_same_member(members):
    first, new = join(members)
    assert new
    again, new = join(members, now=5.0)
    assert again is first
    assert not new
    assert again.last_heard == 5.0


def test_a_worker_keeps_its_number_over_lives_and_absences(members):
    for incarnation in range(5):
        member, new = join(members, "a", incarnation)
        assert (member.worker, member.incarnation, new) == (0, incarnation, True)
        join(members, f"other{incarnation}")
        members.leave(member)
    assert join(members, "a", 99)[0].worker == 0


def test_a_life_that_comes_back_remembers_its_pushes_and_another_life_does_not(members):
    member, _ = join(members)
    member.record(7, taken(1))
    members.leave(member)
    assert members.get("a") is None
    other, _ = join(members, "a", 2)
    assert not other.outcomes
    members.leave(other)
    back, new = join(members, now=50.0)
    assert back is member
    assert new
    assert back.outcomes[7] == taken(1)
    assert back.last_heard == 50.0


def test_a_lease_ends_after_its_length_and_not_before(members):
    early, late = join(members, "a", now=0.0)[0], join(members, "b", now=3.0)[0]
    assert members.expired(10.0) == []
    assert members.expired(10.5) == [early]
    assert members.expired(13.5) == [early, late]
    early.last_heard = 12.0
    assert members.expired(13.5) == [late]


def test_the_memory_of_pushes_is_a_window(members):
    member, _ = join(members)
    for sequence in range(1, 1000):
        member.record(sequence, taken(sequence))
    assert len(member.outcomes) == WINDOW
    assert member.is_old(999 - WINDOW)
    assert not member.is_old(1000 - WINDOW)
    assert not member.is_old(1000)


@pytest.mark.parametrize("seed", range(20))
def test_no_push_that_was_answered_ever_looks_new_in_whatever_order_they_came(members, seed):
    rng = random.Random(seed)
    member, _ = join(members)
    order = list(range(3 * WINDOW))
    rng.shuffle(order)
    answered = set()
    for sequence in order:
        if not member.is_old(sequence):
            member.record(sequence, taken(0))
            answered.add(sequence)
        assert all(known in member.outcomes or member.is_old(known) for known in answered)


def test_a_push_is_not_old_because_a_later_one_was_answered_first(members):
    member, _ = join(members)
    member.record(9, taken(1))
    assert not member.is_old(8)
    member.record(8, taken(2))
    assert not member.is_old(10)


def test_the_memory_of_departed_workers_is_bounded(members):
    for number in range(3 * MAX_DEPARTED):
        members.leave(join(members, f"w{number}")[0])
    assert len(members._departed) == MAX_DEPARTED
    assert len(members._numbers) <= MAX_DEPARTED + 1
    last, _ = join(members, f"w{3 * MAX_DEPARTED - 1}")
    assert last.worker == 3 * MAX_DEPARTED - 1
    forgotten, _ = join(members, "w0")
    assert forgotten.worker == 3 * MAX_DEPARTED


def test_many_live_workers_do_not_push_each_other_out(members):
    first, _ = join(members, "first")
    for number in range(2 * MAX_DEPARTED):
        join(members, f"w{number}")
    members.leave(first)
    assert join(members, "first", 2)[0].worker == 0
