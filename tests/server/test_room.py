"""Bytes that pushes take as they come, in their order."""

import pytest

from aiops.server.landing import Room


def test_whoever_fits_has_room_at_once():
    room = Room(10)
    assert room.ask("a", 4)
    assert room.ask("b", 6)
    assert room.used_bytes == room.peak_bytes == 10
    assert room.waiting == []


def test_whoever_does_not_fit_waits_until_enough_is_given_back():
    room = Room(10)
    assert room.ask("a", 4)
    assert room.ask("b", 4)
    assert not room.ask("c", 7)
    room.leave("a")
    assert list(room.admit()) == []
    room.leave("b")
    assert list(room.admit()) == ["c"]
    assert room.used_bytes == 7
    assert room.peak_bytes == 8


def test_nobody_overtakes_a_large_one():
    room = Room(10)
    assert room.ask("a", 6)
    assert not room.ask("large", 10)
    assert not room.ask("small", 1)
    assert list(room.admit()) == []
    assert room.waiting == ["large", "small"]
    room.leave("a")
    assert list(room.admit()) == ["large"]
    room.leave("large")
    assert list(room.admit()) == ["small"]


def test_one_that_is_larger_than_all_of_it_has_it_alone():
    room = Room(10)
    assert room.ask("a", 1)
    assert not room.ask("huge", 1000)
    room.leave("a")
    assert list(room.admit()) == ["huge"]
    assert not room.ask("b", 1)
    room.leave("huge")
    assert list(room.admit()) == ["b"]
    assert room.used_bytes == 1


def test_several_are_let_in_as_far_as_they_fit():
    room = Room(10)
    assert room.ask("a", 10)
    assert [room.ask(name, 4) for name in "bcd"] == [False] * 3
    room.leave("a")
    assert list(room.admit()) == ["b", "c"]
    assert room.waiting == ["d"]


def test_asking_again_changes_neither_room_nor_place():
    room = Room(10)
    assert room.ask("a", 10)
    assert not room.ask("b", 5)
    assert not room.ask("c", 5)
    assert not room.ask("b", 5)
    assert room.ask("a", 10)
    assert room.used_bytes == 10
    assert room.waiting == ["b", "c"]


def test_whoever_leaves_the_line_lets_the_others_up():
    room = Room(10)
    assert room.ask("a", 8)
    assert not room.ask("large", 9)
    assert not room.ask("small", 2)
    room.leave("large")
    assert list(room.admit()) == ["small"]
    assert room.used_bytes == 10


def test_giving_back_twice_or_what_one_does_not_have_changes_nothing():
    room = Room(10)
    assert room.ask("a", 8)
    room.leave("b")
    room.leave("a")
    room.leave("a")
    assert room.used_bytes == 0
    assert "a" not in room


@pytest.mark.parametrize("size", [0, 10, 20])
def test_pushes_of_no_bytes_wait_for_nobody_but_those_before_them(size):
    room = Room(10)
    assert room.ask("a", size)
    assert room.ask("empty", 0) == (size <= 10)
    assert room.ask("b", 5) == (size == 0)
    assert room.ask("none", 0) == (size == 0)
