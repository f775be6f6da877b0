"""Pumps, the compiled one and its twin: every byte to its place, turns for all, and an end for every reason."""

import contextlib
import errno
import inspect
import signal
import socket
import struct
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiops.kernels import COMPILED
from aiops.transport import pump as module
from aiops.transport.pump import END, PurePump
from tests.transport.lanes import drain

MOST = 1000
STAY_S = 0.02
PUMPS = [PurePump] if module.Pump is PurePump else [PurePump, module.Pump]


class Kit:
    """A pump, and pairs of sockets: the pump's and the peer's."""

    def __init__(self, make, stack, *, stay_s=STAY_S):
        self.stack = stack
        self.woken, self.waker = self._pair()
        self.pump = make(self.woken, most_bytes=MOST, stay_s=stay_s)

    def job(self, memory=None, *, sends=False, queue=None):
        ours, theirs = self._pair()
        ours.setblocking(False)
        for end in (ours, theirs):
            if queue:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, queue)
        fd = self.pump.begin(ours, sends=sends)
        if memory is not None:
            self.pump.offer(fd, memoryview(memory))
        return fd, theirs

    def asleep(self):
        """Let every job find out that there is nothing for it yet."""
        self.waker.send(b"\0")
        assert self.pump.run() == []

    def _pair(self):
        return [self.stack.enter_context(end) for end in socket.socketpair()]


@pytest.fixture(params=PUMPS, ids=lambda make: make.__name__)
def kit(request):
    with contextlib.ExitStack() as stack:
        yield Kit(request.param, stack)


def test_the_compiled_pump_is_there_where_the_kernels_are():
    assert (module.Pump is not PurePump) == (COMPILED and sys.platform != "win32")


@pytest.mark.parametrize("make", PUMPS)
def test_both_pumps_have_the_same_methods_with_the_same_arguments(make):
    names = [name for name in vars(PurePump) if not name.startswith("_")]
    assert set(names) == {name for name in vars(make) if not name.startswith("_")}
    for name in names:
        ours = list(inspect.signature(getattr(make, name)).parameters)
        assert ours == list(inspect.signature(getattr(PurePump, name)).parameters), name


@pytest.mark.parametrize("make", PUMPS)
@given(
    pieces=st.lists(st.integers(1, 3 * MOST), min_size=1, max_size=4),
    # Not less: what nobody has read yet costs the kernel much more than its bytes when they are few.
    rooms=st.lists(st.integers(100, 3 * MOST), min_size=1, max_size=4),
    sends=st.booleans(),
)
@settings(max_examples=25)
def test_any_split_moves_every_byte_once(make, pieces, rooms, sends):
    size = sum(pieces)
    source = np.random.default_rng(size).bytes(size)
    with contextlib.ExitStack() as stack:
        kit = Kit(make, stack, stay_s=0.0001)
        fd, theirs = kit.job(sends=sends)
        target, at, coming = bytearray(size), 0, list(pieces)
        while at < size:
            room = min(rooms[at % len(rooms)], size - at)
            memory = (memoryview(source) if sends else memoryview(target))[at : at + room]
            kit.pump.offer(fd, memory)
            moved = 0
            while moved < room:
                if not sends and coming:
                    began = size - sum(coming)
                    theirs.sendall(source[began : began + coming.pop(0)])
                ((told, n, error),) = kit.pump.run()
                assert (told, error) == (fd, 0)
                assert 0 < n <= room - moved
                moved += n
                # Told of a part, an owner says again where the rest goes.
                kit.pump.offer(fd, memory[moved:])
            at += room
        if sends:
            target[:] = drain(theirs, size).tobytes()
        assert target == source


@pytest.mark.parametrize("came", [0, 1, MOST, MOST + 1])
def test_an_end_of_stream_is_told_of_with_what_came_before_it(kit, came):
    memory = bytearray(4 * MOST)
    fd, theirs = kit.job(memory)
    theirs.sendall(b"x" * came)
    theirs.close()
    assert kit.pump.run() == [(fd, came, END)]
    assert memory.count(b"x") == came


@pytest.mark.parametrize("sends", [False, True])
def test_a_reset_is_told_of_by_its_number(kit, sends):
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    with ours:
        ours.setblocking(False)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        fd = kit.pump.begin(ours, sends=sends)
        kit.pump.offer(fd, memoryview(bytearray(10)))
        assert kit.pump.run() == [(fd, 0, errno.ECONNRESET)]
        kit.pump.end(fd)


def test_jobs_that_have_all_they_need_take_turns_of_one_call(kit):
    memories = [bytearray(20 * MOST) for _ in range(3)]
    jobs = [kit.job(memory) for memory in memories]
    for _, theirs in jobs:
        theirs.sendall(b"x" * 20 * MOST)
    ((first, n, _),) = kit.pump.run()
    assert n == 20 * MOST
    kit.pump.end(first)
    kit.pump.halt()
    moved = {fd: n for fd, n, _ in kit.pump.run()}
    assert sorted(moved) == sorted(fd for fd, _ in jobs if fd != first)
    assert all(n >= 19 * MOST for n in moved.values())


def test_a_job_that_never_waits_starves_nobody(kit):
    small, large = bytearray(10), bytearray(100 * MOST)
    late, theirs = kit.job(small)
    kit.asleep()
    _, busy = kit.job(large, queue=400 * MOST)
    busy.sendall(b"x" * 100 * MOST)
    theirs.sendall(b"0123456789")
    assert kit.pump.run() == [(late, 10, 0)]


def test_who_is_told_first_is_served_last_the_next_time(kit):
    jobs = dict(kit.job(bytearray(10)) for _ in range(3))
    for theirs in jobs.values():
        theirs.sendall(b"x" * 50)
    order = []
    for _ in range(9):
        ((fd, n, _),) = kit.pump.run()
        assert n == 10
        kit.pump.offer(fd, memoryview(bytearray(10)))
        order.append(fd)
    assert order[:3] == order[3:6] == order[6:]
    assert sorted(order[:3]) == sorted(jobs)


def test_news_of_another_thread_end_a_run_and_are_dropped(kit):
    kit.job(bytearray(10))
    threading.Timer(0.02, kit.waker.send, [b"\0\0\0"]).start()
    assert kit.pump.run() == []
    kit.woken.setblocking(False)
    with pytest.raises(BlockingIOError):
        kit.woken.recv(1)


def test_a_halted_pump_moves_nothing_until_it_may_go_on(kit):
    memory = bytearray(10)
    fd, theirs = kit.job(memory)
    theirs.sendall(b"0123456789")
    kit.pump.halt()
    assert kit.pump.run() == []
    assert not any(memory)
    kit.pump.resume()
    assert kit.pump.run() == [(fd, 10, 0)]


def test_a_busy_run_is_halted_from_another_thread(kit):
    size = 200_000_000
    kit = Kit(type(kit.pump), kit.stack, stay_s=60)
    fd, theirs = kit.job(memoryview(bytes(size)), sends=True)
    threading.Thread(target=drain_until_closed, args=(theirs,), daemon=True).start()
    threading.Timer(0.005, kit.pump.halt).start()
    ((told, moved, error),) = kit.pump.run()
    assert (told, error) == (fd, 0)
    assert moved < size


def drain_until_closed(sock):
    with contextlib.suppress(OSError):
        while sock.recv(65536):
            pass


def test_what_came_is_told_when_nothing_follows(kit):
    fd, theirs = kit.job(bytearray(10))
    theirs.sendall(b"0123")
    start = time.monotonic()
    assert kit.pump.run() == [(fd, 4, 0)]
    assert time.monotonic() - start < 5


def test_an_owner_without_memory_hears_when_it_may_move_bytes_itself(kit):
    fd, theirs = kit.job()
    # Once to begin with, and each time it asks for it.
    for _ in range(2):
        assert kit.pump.run() == [(fd, 0, 0)]
        kit.pump.again(fd)
    assert kit.pump.run() == [(fd, 0, 0)]
    kit.asleep()
    theirs.send(b"x")
    assert kit.pump.run() == [(fd, 0, 0)]


def test_many_jobs_end_in_any_order(kit):
    jobs = [kit.job(bytearray(5)) for _ in range(40)]
    for fd, _ in jobs[::3]:
        kit.pump.end(fd)
    left = [job for number, job in enumerate(jobs) if number % 3]
    for fd, theirs in left:
        theirs.send(b"12345")
        assert kit.pump.run() == [(fd, 5, 0)]
        kit.pump.end(fd)
    with pytest.raises(KeyError):
        kit.pump.end(left[0][0])


def test_memory_is_free_once_its_job_has_ended(kit):
    memory, other = bytearray(10), bytearray(10)
    fd, _ = kit.job(memory)
    with pytest.raises(BufferError):
        memory.append(1)
    kit.pump.offer(fd, memoryview(other))
    memory.append(1)
    kit.pump.end(fd)
    other.append(1)


def test_memory_that_is_read_only_is_not_received_into(kit):
    fd, _ = kit.job()
    with pytest.raises(BufferError):
        kit.pump.offer(fd, memoryview(b"constant"))


def test_a_signal_ends_nothing(kit):
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        memory, told = bytearray(3 * MOST), []
        _, theirs = kit.job(memory)
        thread = threading.Thread(target=lambda: told.extend(kit.pump.run()))
        thread.start()
        for _ in range(20):
            signal.pthread_kill(thread.ident, signal.SIGUSR1)
            time.sleep(0.001)
        assert not told
        theirs.sendall(b"x" * 3 * MOST)
        thread.join(5)
        assert [n for _, n, _ in told] == [3 * MOST]
    finally:
        signal.signal(signal.SIGUSR1, before)
