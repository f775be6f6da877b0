"""A stream whose owner has no memory for a payload yet stops before it, however it is split, and goes on from there."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiops.wire.frame import HEADER_BYTES, Header, Kind
from aiops.wire.reader import BULK, HOLD, STAGE_BYTES, Landing
from tests.wire.test_reader import Taker, expected, frame, frames, splits


class Holder(Taker):
    """Lets nothing land before it was asked so many times."""

    def __init__(self, *, times=1):
        super().__init__()
        self._times = times
        self._asked = 0

    def place(self, header):
        self._asked += 1
        if self._asked <= self._times:
            return HOLD
        self._asked = 0
        return super().place(header)

    def feed(self, *parts):
        for data in map(memoryview, parts):
            part = data
            while part:
                self.go_on()
                room = self.reader.get_buffer(-1)
                assert room
                n = min(len(room), len(part))
                room[:n] = part[:n]
                part = part[n:]
                self.take_all(n)
        self.go_on()

    def go_on(self):
        while self.reader.held:
            assert self.reader.bulk is None
            assert self.reader.mid_frame
            self.take_all(0)

    def take_all(self, n):
        for got in self.reader.buffer_updated(n):
            self.take(got)


@settings(max_examples=100)
@given(st.data(), st.integers(1, 3))
def test_any_split_of_any_frames_gives_the_same_frames(data, times):
    sent = data.draw(frames())
    taker = Holder(times=times)
    taker.feed(*data.draw(splits(b"".join(sent))))
    assert taker.seen == list(expected(sent))
    assert len(taker.placed) == sum(Kind(one[3]) in BULK for one in sent)
    assert not taker.reader.mid_frame
    assert taker.pool.outstanding == 0


def test_what_comes_behind_a_payload_that_is_held_up_stays_behind_it():
    taker = Holder()
    small = [frame(Kind.PING, 3, 1), frame(Kind.TENSOR, 5, 2), frame(Kind.PONG, 4, 3)]
    data = b"".join(small)
    taker.reader.get_buffer(-1)[: len(data)] = data
    taker.take_all(len(data))
    assert [header.kind for header, _ in taker.seen] == [Kind.PING]
    assert taker.reader.held
    taker.take_all(0)
    assert not taker.reader.held
    assert [header.kind for header, _ in taker.seen] == [Kind.PING, Kind.TENSOR, Kind.PONG]


def test_a_stage_full_of_a_payload_that_is_held_up_has_no_room():
    taker = Holder()
    head = Header(Kind.TENSOR, 1, 2, 3, 4, 4, 2 * STAGE_BYTES).pack()
    room = taker.reader.get_buffer(-1)
    room[:HEADER_BYTES] = head
    taker.take_all(len(room))
    assert len(taker.reader.get_buffer(-1)) == 0
    taker.take_all(0)
    assert len(taker.reader.get_buffer(-1)) > 0
    taker.reader.close()
    assert taker.pool.outstanding == 0


def test_a_stream_that_is_closed_while_held_up_asks_for_nothing():
    taker = Holder()
    taker.feed(frame(Kind.PING, 0, 1))
    data = frame(Kind.TENSOR, 5, 2)
    taker.reader.get_buffer(-1)[: len(data)] = data
    taker.take_all(len(data))
    taker.reader.close()
    taker.take_all(0)
    assert taker.placed == []


@pytest.mark.parametrize("made", [Landing(memoryview(b"")), None])
def test_only_hold_itself_holds_up(made):
    taker = Taker()
    taker.reader._place = lambda header: made
    data = frame(Kind.TENSOR, 0, 2)
    taker.reader.get_buffer(-1)[: len(data)] = data
    list(taker.reader.buffer_updated(len(data)))
    assert not taker.reader.held
