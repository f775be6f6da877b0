"""Entries between a Redis server and its reader: no order of events loses one or hands one out twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops.errors import ConfigError
from aiops.stream.redis_ledger import Ledger


def entries(*numbers):
    return [(f"{number}-0", [b"value", b"%d" % number]) for number in numbers]


def hand_out(ledger):
    found = []
    while ledger.ready:
        found.append(ledger.hand_out().cursor)
    return found


def test_what_is_known_is_not_handed_out_twice():
    ledger = Ledger("")
    ledger.take_in(entries(1, 2, 3))
    assert ledger.hand_out().cursor == "1-0"
    # After a break the server sends again what is pending: 1 is in hand, 2 and 3 are ready, 4 is what was lost.
    ledger.take_in(entries(1, 2, 3, 4))
    assert hand_out(ledger) == ["2-0", "3-0", "4-0"]
    ledger.done("2-0")
    # Acknowledged, but the server has not heard of it.
    ledger.take_in(entries(1, 2))
    assert not ledger.ready
    ledger.paid(["1-0", "2-0"])
    assert (list(ledger.handed), ledger.owed) == (["3-0", "4-0"], {})


def test_the_cursor_is_the_newest_id_that_is_acknowledged_by_number_and_not_by_text():
    ledger = Ledger("")
    ledger.take_in(entries(9, 10, 5))
    hand_out(ledger)
    ledger.done("10-0")
    assert ledger.cursor == "10-0"
    # An older entry that came late, taken over from another consumer.
    ledger.done("5-0")
    assert ledger.cursor == "10-0"
    assert list(ledger.owed) == ["9-0", "10-0", "5-0"]


def test_an_entry_that_was_thrown_away_is_lost_and_acknowledged():
    ledger = Ledger("")
    ledger.take_in([("1-0", None), *entries(2)])
    assert (ledger.lost, list(ledger.owed), hand_out(ledger)) == (1, ["1-0"], ["2-0"])
    ledger.miss(["2-0", "7-0"])
    assert ledger.lost == 2


def test_what_was_never_handed_out_cannot_be_done():
    ledger = Ledger("4-0")
    ledger.take_in(entries(5, 6))
    ledger.hand_out()
    with pytest.raises(ConfigError, match="cursor '6-0' was not handed out, the last was '5-0'"):
        ledger.done("6-0")
    ledger.done("3-0")
    assert ledger.cursor == "4-0"


def test_the_mean_size_is_of_values():
    ledger = Ledger("")
    assert ledger.mean_bytes == 0.0
    ledger.take_in([("1-0", [b"value", b"1234"]), ("2-0", [b"value", b"12"])])
    assert ledger.mean_bytes == 3.0


@given(st.lists(st.tuples(st.sampled_from(["send", "read", "done", "paid"]), st.integers(0, 30))))
def test_every_entry_is_handed_out_once_whatever_is_sent_again(events):
    ledger = Ledger("")
    seen = []
    acknowledged = set()
    for event, number in events:
        if event == "send":
            # The server sends what is pending, up to some entry, and never what it knows as acknowledged.
            ledger.take_in(
                [each for each in entries(*range(number)) if each[0] not in acknowledged]
            )
        elif event == "read" and ledger.ready:
            seen.append(ledger.hand_out().cursor)
        elif event == "done" and ledger.handed:
            held = list(ledger.handed)
            ledger.done(held[number % len(held)])
        elif event == "paid":
            acknowledged |= set(ledger.owed)
            ledger.paid(list(ledger.owed))
    assert len(seen) == len(set(seen))
    ledger.take_in([each for each in entries(*range(31)) if each[0] not in acknowledged])
    seen += hand_out(ledger)
    assert sorted(seen) == sorted(each[0] for each in entries(*range(31)))
