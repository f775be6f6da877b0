"""Lanes: every byte to its place, none after a stop, and the loop answers meanwhile."""

import contextlib
import errno
import os
import signal
import socket
import struct
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from aiops.transport import lane as lane_module
from aiops.transport.lane import CALL_BYTES, STAY_S, Lane, Receive, Send
from aiops.transport.pump import PurePump
from aiops.wire.reader import CHUNK_BYTES, Landing
from tests.transport.kit import MIB
from tests.transport.lanes import LARGE, WAIT_S, Told, array, drain, soon, turn, view


@pytest.fixture
def lane():
    lane = Lane("lane under test")
    yield lane
    lane.close()
    assert not [t for t in threading.enumerate() if t.name == "lane under test"]


@pytest.fixture
def pair():
    """Make a pair of sockets: the lane's, and the test's, which blocks."""
    with contextlib.ExitStack() as stack:

        def make():
            ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
            ours.setblocking(False)
            theirs.settimeout(WAIT_S)
            return ours, theirs

        yield make


SIZES = [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, CALL_BYTES, LARGE + 3]


@pytest.mark.parametrize("size", SIZES)
def test_every_byte_is_received_and_not_one_more(lane, pair, size):
    ours, theirs = pair()
    source, target, told = np.arange(size).astype(np.uint8), array(size), Told()
    with ours.dup() as kept:
        lane.start(Receive(ours, Landing(view(target)), size, told))
        theirs.sendall(source)
        theirs.sendall(b"the next frame")
        assert told.wait() is None
        np.testing.assert_array_equal(target, source)
        assert drain(kept, 14).tobytes() == b"the next frame"
    turn(lane, pair)
    assert ours.fileno() == -1  # the lane's to close


@pytest.mark.parametrize("size", SIZES)
def test_every_byte_is_sent(lane, pair, size):
    ours, theirs = pair()
    source, told = np.arange(size).astype(np.uint8), Told()
    lane.start(Send(ours, view(source), told))
    np.testing.assert_array_equal(drain(theirs, size), source)
    assert told.wait() is None
    assert theirs.recv(1) == b""


def test_many_moves_of_both_kinds_take_turns(lane, pair):
    size, moves = 2 * MIB, []
    for number in range(24):
        ours, theirs = pair()
        told, memory = Told(), array(size, number)
        if number % 2:
            lane.start(Send(ours, view(memory), told))
        else:
            memory[:] = 255
            lane.start(Receive(ours, Landing(view(memory)), size, told))
        moves.append((number, theirs, memory, told))
    # All at once, piece by piece, from one thread: no move may wait for another.
    for _ in range(8):
        for number, theirs, _, _ in moves:
            if number % 2:
                assert (drain(theirs, size // 8) == number).all()
            else:
                theirs.sendall(array(size // 8, number))
    for number, _, memory, told in moves:
        assert told.wait() is None
        assert (memory == number).all()


def test_a_receive_that_is_stopped_touches_its_memory_no_more(lane, pair):
    ours, theirs = pair()
    target, told = array(LARGE), Told()
    move = Receive(ours, Landing(view(target)), LARGE, told)
    lane.start(move)
    theirs.sendall(array(LARGE // 2, 1))
    soon(lambda: move.left == LARGE // 2)
    lane.stop(move)
    target[:] = 9
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        theirs.sendall(array(MIB, 2))
    turn(lane, pair)
    assert (target == 9).all()
    assert told.nothing
    assert ours.fileno() == -1


def test_a_receive_is_stopped_at_any_moment(lane, pair):
    for _ in range(40):
        ours, theirs = pair()
        target, told = array(2 * MIB), Told()
        move = Receive(ours, Landing(view(target)), 2 * MIB, told)
        sender = threading.Thread(target=push_until_closed, args=(theirs,))
        lane.start(move)
        sender.start()
        soon(lambda move=move: move.left < 2 * MIB)
        lane.stop(move)
        target[:] = 9
        left = move.left
        turn(lane, pair)
        assert (target == 9).all()
        assert move.left == left
        # One that was over before it was stopped has said so.
        assert told.nothing == (left > 0)
        theirs.close()
        ours.close()
        sender.join(WAIT_S)


def push_until_closed(sock):
    with contextlib.suppress(OSError):
        for _ in range(8):
            sock.sendall(array(MIB // 4, 1))


def test_a_send_that_is_stopped_takes_no_later_bytes(lane, pair):
    ours, theirs = pair()
    source, told = array(LARGE, 1), Told()
    move = Send(ours, view(source), told)
    lane.start(move)
    assert (drain(theirs, MIB) == 1).all()
    lane.stop(move)
    source[:] = 2
    sent = LARGE - move.left
    assert (drain(theirs, sent - MIB) == 1).all()
    assert theirs.recv(1) == b""
    assert told.nothing


def test_a_move_may_be_stopped_before_it_began_and_after_it_ended(lane, pair):
    (ours, theirs), told = pair(), Told()
    theirs.sendall(b"12")
    target = array(2)
    move = Receive(ours, Landing(view(target)), 2, told)
    lane.start(move)
    assert told.wait() is None
    lane.stop(move)
    with lane.quiet():
        (ours, theirs), told = pair(), Told()
        theirs.sendall(b"12")
        late = Receive(ours, Landing(view(target)), 2, told)
        lane.start(late)
        late.over = True  # as stop does it
    turn(lane, pair)
    assert (told.nothing, ours.fileno()) == (True, -1)


def test_while_it_is_quiet_nothing_moves_and_then_it_goes_on(lane, pair):
    ours, theirs = pair()
    told = Told()
    move = Send(ours, view(array(4 * LARGE, 1)), told)
    reader = threading.Thread(target=drain, args=(theirs, 4 * LARGE))
    lane.start(move)
    reader.start()
    seen = set()
    while move.left:
        with lane.quiet():
            left = move.left
            time.sleep(0.0005)
            assert move.left == left
        seen.add(left)
        time.sleep(0.0005)
    # A lane that is busy lets others in between any two calls.
    assert len(seen) > 8
    assert told.wait() is None
    reader.join(WAIT_S)


@pytest.mark.parametrize("how", ["eof", "reset"])
@pytest.mark.parametrize("kind", ["receive", "send"])
def test_a_peer_that_goes_away_is_told_of_and_the_lane_lives_on(lane, kind, how):
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    told, memory = Told(), array(4 * LARGE)
    make = {
        "receive": lambda: Receive(ours, Landing(view(memory)), len(memory), told),
        "send": lambda: Send(ours, view(memory), told),
    }
    if kind == "receive":
        theirs.sendall(b"some")
    lane.start(make[kind]())
    if how == "reset":
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    expected = EOFError if (kind, how) == ("receive", "eof") else ConnectionError
    assert isinstance(told.wait(), expected)
    with contextlib.ExitStack() as stack:
        turn(lane, lambda: [stack.enter_context(end) for end in plain_pair()])


def plain_pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


class FaultyFilled(Landing):
    def filled(self, n):
        raise ZeroDivisionError("a bug in a landing")


class FaultyRoom(Landing):
    def room(self, most=CHUNK_BYTES):
        raise ZeroDivisionError("a bug in a landing")


@pytest.mark.parametrize("faulty", [FaultyFilled, FaultyRoom])
def test_a_bug_in_a_landing_is_told_of_and_the_lane_lives_on(lane, pair, faulty):
    ours, theirs = pair()
    told = Told()
    theirs.sendall(b"12345678")
    lane.start(Receive(ours, faulty(view(array(8))), 8, told))
    assert isinstance(told.wait(), ZeroDivisionError)
    turn(lane, pair)


class Counted(Landing):
    """One that remembers what it was told; in pieces, as a server's are."""

    def __init__(self, payload, piece):
        super().__init__(payload)
        self.told, self._piece = [], piece

    def room(self, most=CHUNK_BYTES):
        return super().room(self._piece - self._at % self._piece)

    def filled(self, n):
        super().filled(n)
        self.told.append(n)


def test_an_end_of_stream_between_two_pieces_brings_no_piece_of_nothing(lane, pair):
    (ours, theirs), told = pair(), Told()
    landing = Counted(view(array(4000)), 1000)
    lane.start(Receive(ours, landing, 4000, told))
    theirs.sendall(array(2000))
    theirs.close()
    assert isinstance(told.wait(), EOFError)
    assert sum(landing.told) == 2000
    assert all(landing.told)


def test_a_move_that_waits_for_nothing_is_stopped_at_once(lane, pair):
    ours, theirs = pair()
    source, told = array(4 * LARGE), Told()
    move = Send(ours, view(source), told)
    reader = threading.Thread(target=drain_until_closed, args=(theirs,))
    lane.start(move)
    reader.start()
    time.sleep(0.002)
    start = time.perf_counter()
    stopped = lane.stop(move)
    # One call takes a quarter of a millisecond; a run may stay for far longer, so the rest is for a busy machine.
    assert time.perf_counter() - start < STAY_S / 2
    assert stopped == told.nothing
    ours.close()
    reader.join(WAIT_S)


def drain_until_closed(sock):
    with contextlib.suppress(OSError):
        while sock.recv(MIB):
            pass


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped just before", "left to itself"])
@pytest.mark.parametrize("kind", ["receive", "send"])
def test_a_lane_closed_with_a_move_left_gives_it_up_and_starts_again(lane, pair, kind, stopped):
    for _ in range(10):
        (ours, _), told, memory = pair(), Told(), array(LARGE)
        receive = Receive(ours, Landing(view(memory)), LARGE, told)
        move = receive if kind == "receive" else Send(ours, view(memory), told)
        lane.start(move)
        turn(lane, pair)
        if stopped:
            lane.stop(move)
        lane.close()
        assert (ours.fileno(), told.nothing) == (-1, True)
        turn(lane, pair)


class Watched(Landing):
    """One that may be referred to weakly."""


def test_a_lane_with_nothing_to_do_holds_on_to_no_memory(lane, pair):
    (ours, theirs), told = pair(), Told()
    landing = Watched(view(array(1000)))
    seen = weakref.ref(landing)
    move = Receive(ours, landing, 1000, told)
    lane.start(move)
    turn(lane, pair)
    del landing, move
    theirs.sendall(array(1000))
    assert told.wait() is None
    soon(lambda: seen() is None)


def test_a_lane_may_be_closed_before_it_began_and_twice(lane):
    lane.close()
    lane.close()


class BrokenPump(PurePump):
    def run(self):
        raise OSError(errno.EMFILE, "no descriptors")


def test_a_lane_that_cannot_watch_tells_every_move_and_has_another_thread_for_the_next(
    lane, pair, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(lane_module, "Pump", BrokenPump)
        ends = []
        for _ in range(8):
            (ours, _), told = pair(), Told()
            lane.start(Receive(ours, Landing(view(array(8))), 8, told))
            ends.append((ours, told))
        for ours, told in ends:
            assert told.wait().errno == errno.EMFILE
            assert (told.nothing, ours.fileno()) == (True, -1)
        soon(lambda: lane._failed)
    turn(lane, pair)


@pytest.mark.parametrize("missing", ["descriptors", "threads"])
def test_a_lane_that_cannot_begin_says_so_and_is_as_it_was(lane, pair, monkeypatch, missing):
    (ours, _), told = pair(), Told()

    def refuse(*_):
        if missing == "threads":
            raise RuntimeError("can't start new thread")
        raise OSError(errno.EMFILE, "no descriptors")

    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with monkeypatch.context() as patch:
        if missing == "threads":
            patch.setattr(threading.Thread, "start", refuse)
        else:
            patch.setattr(socket, "socketpair", refuse)
        move = Receive(ours, Landing(view(array(8))), 8, told)
        with pytest.raises(OSError, match=r"descriptors|thread"):
            lane.start(move)
    assert (move.over, told.nothing, ours.fileno()) == (True, True, -1)
    if before:
        assert len(os.listdir("/proc/self/fd")) == before - 1
    turn(lane, pair)


class Slow(Landing):
    """One that takes its time, once, over what has come.

    Attributes:
        busy: Set while it does.
    """

    def __init__(self, payload):
        super().__init__(payload)
        self.busy = threading.Event()

    def filled(self, n):
        super().filled(n)
        if not self.busy.is_set():
            self.busy.set()
            time.sleep(0.3)


@pytest.fixture
def slow(lane, pair):
    """A lane that is inside a step for a while: gives the move's other end, and how it ends."""
    (ours, theirs), told = pair(), Told()
    landing = Slow(view(array(2)))
    lane.start(Receive(ours, landing, 2, told))
    theirs.sendall(b"1")
    # The pump tells what it has moved when it is told to stop, or has stayed for long enough.
    assert landing.busy.wait(WAIT_S)
    return theirs, told


def test_an_interrupt_while_somebody_waits_for_a_lane_leaves_it_open(lane, slow):
    theirs, told = slow

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt), lane.quiet():
            pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    theirs.sendall(b"2")
    assert told.wait() is None


def test_a_busy_lane_gives_way_to_who_waits(lane, slow):
    (theirs, told), serve, turns = slow, lane._serve, []

    def count():
        if not lane._free.is_set():
            turns.append(1)
        serve()

    lane._serve = count
    with lane.quiet():
        del lane._serve
    # One more at most, where it looked just before somebody began to wait: again and again it would keep them out.
    assert len(turns) <= 1
    theirs.sendall(b"2")
    assert told.wait() is None
