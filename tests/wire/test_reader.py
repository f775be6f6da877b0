"""Bytes to frames: any split of any frames gives the same frames, and no bytes do worse than a protocol error."""

import contextlib
import itertools
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiops.buffers import BufferPool
from aiops.errors import BadHandshake, FrameTooLarge, RemoteProtocolError
from aiops.wire.frame import CONTROL_BYTES, HEADER_BYTES, MAGIC, Header, Kind, frame_bytes
from aiops.wire.reader import (
    BULK,
    CHUNK_BYTES,
    LEAST_ALIGNED_BYTES,
    STAGE_BYTES,
    FrameReader,
    Landing,
)

LIMIT = 1 << 30

# Around the edges of the stage, of a control frame and of a chunk.
SIZES = st.one_of(
    st.integers(0, 200),
    st.sampled_from([CONTROL_BYTES - 1, CONTROL_BYTES, STAGE_BYTES - HEADER_BYTES, STAGE_BYTES]),
    st.sampled_from([CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES]),
)


def frame(kind, size, number=0):
    payload = bytes([number % 251]) * size
    return Header(kind, 1, 2, 3, number, 4, size).pack() + payload


@st.composite
def frames(draw):
    kinds = draw(st.lists(st.sampled_from([*Kind, Kind.TENSOR, Kind.TABLE]), max_size=8))
    sizes = [draw(SIZES) if kind in BULK else draw(SIZES) % (CONTROL_BYTES + 1) for kind in kinds]
    return [
        frame(kind, size, number)
        for number, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    ]


@st.composite
def splits(draw, stream):
    """Cuts anywhere; many of them close to each other, where a header or the end of a payload may be."""
    cuts = {0, len(stream)}
    for at in draw(st.lists(st.integers(0, len(stream)), max_size=8)):
        cuts.update(at + step for step in draw(st.lists(st.integers(0, 40), max_size=8)))
        cuts.add(at)
    if len(stream) < 300:
        cuts.update(draw(st.sets(st.integers(0, len(stream)))))
    cuts = sorted(cut for cut in cuts if cut <= len(stream))
    return [stream[start:stop] for start, stop in itertools.pairwise(cuts)]


class Taker:
    """Lands payloads in turn in its own memory, in pooled memory, and nowhere; notes what it gets."""

    def __init__(self, *, skip_every=3):
        self.pool = BufferPool()
        self.seen = []
        self.placed = []
        self._skip_every = skip_every
        self.reader = FrameReader(self.place, max_frame_bytes=LIMIT)

    def place(self, header):
        self.placed.append(header)
        if header.key % self._skip_every == self._skip_every - 1:
            return None
        if header.key % 2:
            return Landing(memoryview(bytearray(header.size)))
        block = self.pool.take(header.size)
        return Landing(block.view, block)

    def feed(self, *parts):
        for data in map(memoryview, parts):
            part = data
            while part:
                room = self.reader.get_buffer(-1)
                assert 0 < len(room) <= max(CHUNK_BYTES, STAGE_BYTES)
                n = min(len(room), len(part))
                room[:n] = part[:n]
                part = part[n:]
                for got in self.reader.buffer_updated(n):
                    self.take(got)

    def take(self, got):
        self.seen.append((got.header, bytes(got.payload)))
        got.release()


def expected(sent, skip_every=3):
    for data in sent:
        header = Header(Kind(data[3]), 1, 2, 3, data[12], 4, len(data) - HEADER_BYTES)
        skipped = header.kind in BULK and header.key % skip_every == skip_every - 1
        yield header, b"" if skipped else data[HEADER_BYTES:]


def edges(sent):
    return list(itertools.accumulate(map(len, sent), initial=0))


@settings(max_examples=100)
@given(st.data())
def test_any_split_of_any_frames_gives_the_same_frames(data):
    sent = data.draw(frames())
    taker = Taker()
    taker.feed(*data.draw(splits(b"".join(sent))))
    assert taker.seen == list(expected(sent))
    assert not taker.reader.mid_frame
    assert taker.pool.outstanding == 0


@settings(max_examples=50)
@given(st.data())
def test_a_stream_that_is_cut_anywhere_leaves_no_loan(data):
    sent = data.draw(frames().filter(bool))
    near = st.builds(lambda at, by: at + by, st.sampled_from(edges(sent)), st.integers(-40, 40))
    cut = min(max(data.draw(near), 0), edges(sent)[-1])
    taker = Taker()
    taker.feed(*data.draw(splits(b"".join(sent)[:cut])))
    assert taker.reader.mid_frame == (cut not in edges(sent))
    taker.reader.close()
    assert taker.pool.outstanding == 0


def test_every_byte_by_itself_gives_the_same_frames():
    sent = [frame(kind, 40, number) for number, kind in enumerate(Kind)]
    taker = Taker()
    taker.feed(*(bytes([byte]) for byte in b"".join(sent)))
    assert taker.seen == list(expected(sent))


@given(st.binary(max_size=400), st.integers(1, 400))
def test_random_bytes_do_no_worse_than_a_protocol_error(noise, n):
    for start in (b"", MAGIC, frame(Kind.PING, 0)[:4]):
        taker = Taker()
        with contextlib.suppress(RemoteProtocolError):
            taker.feed(start, *(noise[at : at + n] for at in range(0, len(noise), n)))
        taker.reader.close()
        assert taker.pool.outstanding == 0


@pytest.mark.parametrize(
    ("stream", "hint"),
    [
        (b"GET / HTTP/1.1\r\nHost: aiops\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03", "TLS"),
    ],
    ids=["http", "tls"],
)
def test_a_stranger_is_told_after_two_bytes(stream, hint):
    taker = Taker()
    taker.feed(stream[:1])
    with pytest.raises(BadHandshake, match=hint):
        taker.feed(stream[1:2])


@pytest.mark.parametrize("size", [LIMIT + 1, 2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1])
def test_a_length_above_the_limit_is_refused_before_anybody_is_asked_for_memory(size):
    taker = Taker()
    with pytest.raises(FrameTooLarge) as caught:
        taker.feed(Header(Kind.TENSOR, 1, 1, 1, 0, 1, size).pack())
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (size, LIMIT)
    assert taker.placed == []


def test_a_frame_over_the_limit_does_not_take_back_the_frames_before_it():
    taker = Taker()
    with pytest.raises(FrameTooLarge):
        taker.feed(frame(Kind.TENSOR, 5) + Header(Kind.TENSOR, 0, 0, 0, 0, 0, LIMIT + 1).pack())
    assert [payload for _, payload in taker.seen] == [bytes(5)]


def test_a_payload_that_nobody_wants_costs_no_memory_and_keeps_the_stream_in_step():
    taker = Taker(skip_every=1)
    size = 64 * 1024 * 1024
    chunk = bytes(CHUNK_BYTES)
    tracemalloc.start()
    try:
        taker.feed(Header(Kind.TENSOR, 1, 2, 3, 0, 4, size).pack())
        for _ in range(size // CHUNK_BYTES):
            assert taker.reader.mid_frame
            taker.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    taker.feed(frame_bytes(Kind.PING, b"\x90"))
    assert [(header.kind, payload) for header, payload in taker.seen] == [
        (Kind.TENSOR, b""),
        (Kind.PING, b"\x90"),
    ]
    assert peak < CHUNK_BYTES


def test_a_bulk_payload_lands_in_the_memory_that_was_chosen_without_a_stop_on_the_way():
    own = bytearray(CHUNK_BYTES * 2)
    reader = FrameReader(lambda header: Landing(memoryview(own)), max_frame_bytes=LIMIT)
    head = Header(Kind.TENSOR, 1, 2, 3, 0, 4, len(own)).pack()
    reader.get_buffer(-1)[:HEADER_BYTES] = head
    assert list(reader.buffer_updated(HEADER_BYTES)) == []
    for _ in range(2):
        room = reader.get_buffer(-1)
        assert room.obj is own
        assert len(room) == CHUNK_BYTES
        done = list(reader.buffer_updated(len(room)))
    assert done[0].payload.obj is own


def test_before_a_long_way_a_landing_asks_for_what_brings_it_to_an_aligned_offset():
    landing = Landing(memoryview(bytearray(CHUNK_BYTES)))
    landing.filled(1001)
    assert len(landing.room()) == 1024 - 1001
    landing.filled(1024 - 1001)
    assert len(landing.room()) == CHUNK_BYTES - 1024
    landing.filled(CHUNK_BYTES - 1024 - LEAST_ALIGNED_BYTES + 1)
    assert len(landing.room()) == LEAST_ALIGNED_BYTES - 1


def test_a_landing_gives_as_much_room_as_is_asked_for_and_due():
    landing = Landing(memoryview(bytearray(CHUNK_BYTES * 3)))
    assert len(landing.room(CHUNK_BYTES * 2)) == CHUNK_BYTES * 2
    landing.filled(CHUNK_BYTES * 2)
    assert len(landing.room(CHUNK_BYTES * 2)) == len(landing.room()) == CHUNK_BYTES


def test_each_frame_is_taken_before_the_next_ones_memory_is_chosen():
    order = []

    def place(header):
        order.append(("place", header.key))
        return Landing(memoryview(bytearray(header.size)))

    reader = FrameReader(place, max_frame_bytes=LIMIT)
    data = frame(Kind.PUSH, 4, 0) + frame(Kind.TENSOR, 4, 1) + frame(Kind.TENSOR, 4, 2)
    reader.get_buffer(-1)[: len(data)] = data
    order.extend(("take", got.header.key) for got in reader.buffer_updated(len(data)))
    assert order == [("take", 0), ("place", 1), ("take", 1), ("place", 2), ("take", 2)]


def test_a_taker_that_closes_the_reader_is_asked_for_no_further_memory():
    taker = Taker()
    taker.take = lambda got: taker.reader.close()
    taker.feed(frame(Kind.PUSH, 4) + frame(Kind.TENSOR, 4, 2)[:-1])
    assert taker.placed == []
    assert taker.pool.outstanding == 0


def test_a_refusal_while_memory_is_chosen_ends_the_stream_with_no_loan():
    pool = BufferPool()

    def place(header):
        if header.key:
            raise RemoteProtocolError("no")
        block = pool.take(header.size)
        return Landing(block.view, block)

    reader = FrameReader(place, max_frame_bytes=LIMIT)
    data = frame(Kind.TENSOR, 4, 0) + frame(Kind.TENSOR, 4, 1)
    reader.get_buffer(-1)[: len(data)] = data
    got = reader.buffer_updated(len(data))
    next(got).release()
    with pytest.raises(RemoteProtocolError, match="no"):
        next(got)
    reader.close()
    assert pool.outstanding == 0


def test_closing_twice_ends_a_half_filled_loan_once():
    taker = Taker()
    taker.feed(frame(Kind.TENSOR, 1000)[:500])
    assert taker.pool.outstanding == 1
    taker.reader.close()
    taker.reader.close()
    assert taker.pool.outstanding == 0


def test_the_payload_of_a_control_frame_outlives_the_stage_it_came_through():
    taker = Taker()
    kept = []
    taker.take = kept.append
    for number in range(3):
        taker.feed(frame(Kind.PING, 8, number))
    assert [bytes(got.payload) for got in kept] == [bytes([number]) * 8 for number in range(3)]


def test_a_payload_is_its_takers_alone_as_soon_as_its_frame_is_whole():
    # A lane may know the landing for some milliseconds more, while its owner uses the memory for something else.
    memory = memoryview(bytearray(50))
    landing = Landing(memory)
    reader = FrameReader(lambda header: landing, max_frame_bytes=LIMIT)
    stream = frame(Kind.TENSOR, 50, 1)
    reader.get_buffer(len(stream))[: len(stream)] = stream
    (taken,) = reader.buffer_updated(len(stream))
    assert taken.payload == bytes([1]) * 50
    assert taken.payload is memory
    assert len(landing.payload) == 0
