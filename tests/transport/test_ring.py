"""The ring without processes: any writes and reads give the same bytes, and no number of the peer's is trusted."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops.errors import RemoteProtocolError
from aiops.transport.ring import LINE_BYTES, RECORD_BYTES, RingReader, RingWriter

SIZE = 1024


@pytest.fixture
def memory():
    return memoryview(bytearray(SIZE))


def write(ring, data):
    """Write until the ring is full or all is written; return what is left."""
    rest = memoryview(data)
    while rest and (n := ring.put(rest)):
        rest = rest[n:]
    return rest


def read(ring, most=SIZE):
    got = b""
    while len(got) < most and (view := ring.view()):
        n = min(len(view), most - len(got))
        got += bytes(view[:n])
        ring.took(n)
    return got


@given(
    lines=st.integers(3, 40),
    writes=st.lists(st.integers(1, 3000), max_size=20),
    reads=st.lists(st.tuples(st.integers(1, 700), st.integers(1, 2000)), min_size=1),
)
def test_whatever_is_written_comes_out_in_order_through_a_ring_of_any_size(lines, writes, reads):
    memory = memoryview(bytearray(lines * LINE_BYTES))
    writer, reader = RingWriter(memory), RingReader(memory)
    sent = np.random.default_rng(1).bytes(sum(writes))
    got, rest, turn = b"", memoryview(sent), 0
    while len(got) < len(sent):
        rest = write(writer, rest)
        reader.came(writer.announce())
        most, at_least = reads[turn % len(reads)]
        turn += 1
        got += read(reader, most)
        writer.freed(reader.give_back(at_least=min(at_least, len(memory) // 4)))
    assert got == sent
    writer.freed(reader.give_back())
    assert writer.used == 0


def test_a_view_is_aligned_and_lies_in_the_ring(memory):
    writer, reader = RingWriter(memory), RingReader(memory)
    for size in (1, 63, 64, 65):
        assert writer.put(memoryview(bytes(size))) == size
    reader.came(writer.announce())
    start = np.frombuffer(memory, np.uint8).ctypes.data
    for size in (1, 63, 64, 65):
        view = reader.view()
        assert len(view) == size
        assert (np.frombuffer(view, np.uint8).ctypes.data - start) % LINE_BYTES == 0
        reader.took(size)


def test_a_full_ring_takes_nothing_until_room_is_given_back(memory):
    writer, reader = RingWriter(memory), RingReader(memory)
    data = memoryview(bytes(2 * SIZE))
    assert writer.put(data) == SIZE - LINE_BYTES
    assert writer.put(data) == 0
    reader.came(writer.announce())
    assert len(reader.view()) == SIZE - LINE_BYTES
    reader.took(100)
    assert reader.give_back() == 0, "a record goes back as a whole"
    reader.took(SIZE - LINE_BYTES - 100)
    assert reader.give_back(at_least=SIZE + 1) == 0
    writer.freed(reader.give_back(at_least=SIZE))
    assert writer.put(data) == SIZE - LINE_BYTES


def test_a_record_has_a_longest_size():
    writer = RingWriter(memoryview(bytearray(4 * (RECORD_BYTES + LINE_BYTES))))
    assert writer.put(memoryview(bytes(2 * RECORD_BYTES))) == RECORD_BYTES
    assert writer.put(memoryview(bytes(2 * RECORD_BYTES)), most=1000) == 1000
    assert writer.announce() == RECORD_BYTES + LINE_BYTES + 1024 + LINE_BYTES
    assert writer.announce() == 0


@pytest.mark.parametrize("n", [1, 63, SIZE + LINE_BYTES, 2**63, 2**64 - LINE_BYTES])
def test_news_that_cannot_be_is_refused(memory, n):
    with pytest.raises(RemoteProtocolError, match=f"announces {n} bytes"):
        RingReader(memory).came(n)
    writer = RingWriter(memory)
    writer.put(memoryview(b"x"))
    writer.announce()
    with pytest.raises(RemoteProtocolError, match=f"gives {n} bytes"):
        writer.freed(n)


def test_what_is_not_announced_cannot_be_given_back(memory):
    writer = RingWriter(memory)
    writer.put(memoryview(b"x"))
    with pytest.raises(RemoteProtocolError, match="gives 128 bytes"):
        writer.freed(128)


def test_more_than_the_ring_holds_is_not_announced_in_two_steps_either(memory):
    reader = RingReader(memory)
    reader.came(SIZE)
    with pytest.raises(RemoteProtocolError, match="announces 64 bytes"):
        reader.came(LINE_BYTES)


@pytest.mark.parametrize("length", [65, SIZE, 2**32, 2**63, 2**64 - 1, 2**64 - LINE_BYTES])
def test_a_record_longer_than_what_was_announced_is_refused(memory, length):
    struct.pack_into("<Q", memory, 0, length)
    reader = RingReader(memory)
    reader.came(2 * LINE_BYTES)
    with pytest.raises(RemoteProtocolError, match=f"record of {length} bytes"):
        reader.view()


def test_a_record_does_not_run_over_the_end_of_the_ring(memory):
    reader = RingReader(memory)
    struct.pack_into("<Q", memory, 0, SIZE - 3 * LINE_BYTES)
    reader.came(SIZE - 2 * LINE_BYTES)
    read(reader)
    reader.give_back()
    struct.pack_into("<Q", memory, SIZE - 2 * LINE_BYTES, LINE_BYTES + 1)
    reader.came(6 * LINE_BYTES)
    with pytest.raises(RemoteProtocolError, match="record of 65 bytes"):
        reader.view()


def test_a_length_that_changes_under_the_readers_hands_changes_nothing(memory):
    writer, reader = RingWriter(memory), RingReader(memory)
    writer.put(memoryview(b"abc"))
    writer.put(memoryview(b"defg"))
    reader.came(writer.announce())
    reader.view()
    struct.pack_into("<Q", memory, 0, 2**40)
    assert read(reader) == b"abcdefg"
    assert reader.give_back() == 4 * LINE_BYTES


def test_an_empty_record_is_passed_over_at_the_end_of_the_ring_alone(memory):
    reader = RingReader(memory)
    struct.pack_into("<Q", memory, 0, SIZE - 2 * LINE_BYTES)
    reader.came(SIZE)
    reader.took(len(reader.view()))
    assert len(reader.view()) == 0
    assert reader.give_back() == SIZE
    struct.pack_into("<Q", memory, 0, 0)
    reader.came(SIZE)
    with pytest.raises(RemoteProtocolError, match="empty record at 0"):
        reader.view()


@given(
    content=st.lists(st.sampled_from([0, 1, 63, 64, 65, 128, 200, 960, 961, 2**63]), min_size=16),
    news=st.lists(st.sampled_from([0, 64, 128, 192, 512, SIZE, 2**63]), min_size=1, max_size=20),
)
def test_whatever_lies_in_the_ring_a_reader_stays_inside_it(content, news):
    memory = memoryview(bytearray(SIZE))
    for line, value in enumerate(content[: SIZE // LINE_BYTES]):
        struct.pack_into("<Q", memory, line * LINE_BYTES, value)
    reader = RingReader(memory)
    start = np.frombuffer(memory, np.uint8).ctypes.data
    try:
        for n in news:
            reader.came(n)
            while view := reader.view():
                at = np.frombuffer(view, np.uint8).ctypes.data - start
                assert LINE_BYTES <= at <= at + len(view) <= SIZE
                reader.took(len(view))
            assert 0 <= reader.give_back() <= SIZE
    except RemoteProtocolError:
        pass
