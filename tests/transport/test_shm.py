"""What is shared memory's own: who gets it, hostile peers, peers that die, and that nothing of it is left."""

import asyncio
import contextlib
import errno
import fcntl
import functools
import gc
import itertools
import logging
import os
import resource
import signal
import socket
import struct
import sys
import threading

import numpy as np
import pytest

from aiops.errors import ConnectFailed, ConnectionLost, RemoteProtocolError
from aiops.transport import handover, nearest, tcp
from aiops.transport.lane import Lane
from aiops.transport.passage import Outlet
from aiops.transport.shm import RECORD_COST_BYTES, TURN_BYTES
from aiops.wire.reader import Landing
from tests.transport import kit
from tests.transport.kit import (
    MIB,
    OPTIONS,
    Inbox,
    bulk,
    filled,
    ping,
    stalled,
    tensor,
    until,
)

pytestmark = pytest.mark.skipif(not handover.AVAILABLE, reason="Linux only")


accepting = functools.partial(kit.accepting, listen=nearest.listen)


@contextlib.contextmanager
def lanes():
    lane = Lane("test")
    try:
        yield (lane,)
    finally:
        lane.close()


@contextlib.asynccontextmanager
async def raw_peer(inbox=None, **options):
    """Connect one of ours to the bare other end of a link; gives our inbox and connection, and the link."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    inbox = inbox or Inbox()
    link = handover.hand_over(near)
    peer = handover.take_over(far, "peer")
    connection = nearest.ShmConnection(inbox, link, **{**OPTIONS, **options})
    connection.start()
    try:
        yield inbox, connection, peer
    finally:
        peer.close()
        connection.abort()
        await inbox.lost()
        inbox.release()
        assert inbox.pool.outstanding == 0


def kind(connection):
    return "shm" if isinstance(connection, nearest.ShmConnection) else "tcp"


def mapped():
    with open("/proc/self/maps", encoding="utf-8") as file:
        return sum("aiops ring" in line for line in file)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


# Who gets it.


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_peer_on_this_machine_goes_through_memory_unless_told_not_to(host):
    async with accepting() as ((_, port), accepted):
        for wanted, got in ((True, "shm"), (False, "tcp")):
            inbox = Inbox()
            connection = await nearest.connect(
                [(host, port)], lambda inbox=inbox: inbox, shared_memory=wanted, **OPTIONS
            )
            assert kind(connection) == got
            connection.post(ping(1))
            await until(lambda: accepted)
            await accepted[-1][0].received(1)
            assert kind(accepted[-1][1]) == got
            assert f"{host}:{port}" in connection.peer or got == "tcp"
            await connection.close()


async def test_a_server_that_offers_none_is_reached_by_tcp():
    async with accepting(shared_memory=False) as (address, accepted):
        connection = await nearest.connect([address], Inbox, **OPTIONS)
        assert kind(connection) == "tcp"
        await until(lambda: accepted)
        connection.abort()


async def test_a_server_at_every_address_is_found_at_this_machines(monkeypatch):
    made = []
    listener = await nearest.listen(
        "0.0.0.0", 0, Inbox, made=lambda *pair: made.append(pair), **OPTIONS
    )
    port = listener.addresses[0][1]
    connection = await nearest.connect([("127.0.0.1", port)], Inbox, **OPTIONS)
    assert kind(connection) == "shm"
    with pytest.raises(ConnectFailed):
        # Another machine may well have a server at that port.
        await nearest.connect_shared(("192.0.2.1", port), Inbox, **OPTIONS)
    await connection.close()
    await listener.close()
    await until(lambda: made)
    await made[0][0].lost()


async def test_addresses_are_tried_in_order_each_both_ways():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()
    async with accepting() as (address, accepted):
        connection = await nearest.connect([dead, address], Inbox, **OPTIONS)
        assert kind(connection) == "shm"
        await until(lambda: accepted)
        connection.abort()
    with pytest.raises(ConnectFailed) as caught:
        await nearest.connect([dead, address], Inbox, **OPTIONS)
    assert str(caught.value).startswith(f"cannot connect to {dead[0]}:{dead[1]}: ")
    assert f"; {address[0]}:{address[1]}: " in str(caught.value)


@pytest.mark.parametrize("side", ["worker", "server"])
async def test_another_user_gets_tcp(monkeypatch, caplog, side):
    caplog.set_level(logging.INFO, "aiops.transport")
    check, calls = handover.check_peer, []

    def check_as_another(sock):
        calls.append(sock)
        # Of one connection the worker's side is the first to look, before the server has said anything.
        if (len(calls) % 2 == 1) == (side == "worker"):
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
        try:
            return check(sock)
        finally:
            monkeypatch.undo()
            watch()

    def watch():
        for module in (handover, nearest):
            monkeypatch.setattr(module, "check_peer", check_as_another)

    watch()
    # A ring that another test's error still refers to is none of this one's.
    gc.collect()
    rings = mapped()
    async with accepting() as (address, accepted):
        before = descriptors()
        connection = await nearest.connect([address], Inbox, **OPTIONS)
        assert kind(connection) == "tcp"
        connection.post(ping(1))
        await until(lambda: any(inbox.frames for inbox, _ in accepted))
        connection.abort()
        for inbox, accepted_one in accepted:
            accepted_one.abort()
            await inbox.lost()
        await asyncio.sleep(0)
        assert descriptors() <= before
    assert mapped() == rings


async def test_a_name_that_is_taken_leaves_tcp(caplog, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        host, port = probe.getsockname()
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(nearest._name(host, port))
        squatter.listen()
        listener = await nearest.listen(host, port, Inbox, made=lambda *_: None, **OPTIONS)
        assert "no shared memory at" in caplog.text
        # The squatter says nothing; who waits for it is not kept for long.
        monkeypatch.setattr(nearest, "GREETING_S", 0.1)
        async with asyncio.timeout(5):
            connection = await nearest.connect([(host, port)], Inbox, **OPTIONS)
        assert kind(connection) == "tcp"
        connection.abort()
        await listener.close()


async def test_another_users_door_is_not_waited_at(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        host, port = probe.getsockname()
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(nearest._name(host, port))
        squatter.listen()
        monkeypatch.setattr(nearest, "GREETING_S", 30.0)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        async with asyncio.timeout(5):
            with pytest.raises(ConnectFailed, match="is of user"):
                await nearest.connect_shared((host, port), Inbox, connect_timeout_s=30, **OPTIONS)


async def test_a_server_short_of_descriptors_leaves_the_rest_to_tcp(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "aiops.transport")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with accepting() as (address, accepted), contextlib.AsyncExitStack() as stack:
        taken = os.dup(0)
        os.close(taken)
        monkeypatch.setattr(resource, "getrlimit", lambda _: (2 * taken + 60, limit[1]))
        kinds = []
        for _ in range(10):
            connection = await nearest.connect([address], Inbox, **OPTIONS)
            stack.callback(connection.abort)
            kinds.append(kind(connection))
        # Each takes twelve, as both ends are here, and the next is asked for with two.
        assert kinds == ["shm"] * 3 + ["tcp"] * 7
        assert "descriptors are taken" in caplog.text
        await until(lambda: len(accepted) == 10)


class Short:
    """A listening socket whose process has no descriptor for the next one that comes."""

    def __init__(self, sock):
        self._sock, self.refused = sock, 0

    def accept(self):
        if not self.refused:
            self.refused += 1
            raise OSError(errno.EMFILE, "no descriptors")
        return self._sock.accept()

    def fileno(self):
        return self._sock.fileno()

    def close(self):
        self._sock.close()


async def test_a_door_that_is_short_of_descriptors_opens_again(monkeypatch, caplog):
    monkeypatch.setattr(nearest, "PAUSE_S", 0.05)
    made = []
    listener = await nearest.listen(
        "127.0.0.1", 0, Inbox, made=lambda *pair: made.append(pair), **OPTIONS
    )
    door = listener._doors[0]
    door._sock = Short(door._sock)
    async with asyncio.timeout(5):
        connection = await nearest.connect_shared(listener.addresses[0], Inbox, **OPTIONS)
    assert door._sock.refused == 1
    assert "no shared memory for 0.05 s" in caplog.text
    await connection.close()
    await until(lambda: made)
    await made[0][0].lost()
    await listener.close()


GREETING = struct.pack("<16sQ", b"aiops ring 1", MIB)


def memory(size=2 * MIB, seals=fcntl.F_SEAL_SHRINK):
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


@pytest.mark.parametrize(
    ("make", "greeting", "reason"),
    [
        pytest.param(lambda: [memory(seals=0)], GREETING, "may shrink", id="unsealed"),
        pytest.param(lambda: [memory(size=MIB)], GREETING, "file of 1048576", id="too small"),
        pytest.param(
            lambda: [memory()],
            struct.pack("<16sQ", b"aiops ring 1", 2**62),
            "rings of 4611686018427387904",
            id="too large",
        ),
        pytest.param(
            lambda: [memory()], struct.pack("<16sQ", b"aiops ring 1", 0), "rings of 0", id="empty"
        ),
        pytest.param(
            lambda: [memory()], struct.pack("<16sQ", b"other", MIB), "speaks b'other'", id="magic"
        ),
        pytest.param(lambda: [memory()], GREETING[:-1], "hands 23 bytes", id="short"),
        pytest.param(lambda: [], GREETING, "4 descriptors", id="no memory"),
        pytest.param(lambda: [*os.pipe()], GREETING, "5 descriptors|file of 0", id="pipes"),
        pytest.param(lambda: [os.eventfd(0)], GREETING, "file of 0", id="no file"),
    ],
)
def test_a_greeting_that_is_not_safe_is_refused(make, greeting, reason):
    before = descriptors()
    near, far = socket.socketpair()
    fds = make()
    fds += [os.eventfd(0) for _ in range(min(4, 5 - len(fds)))]
    with near, far:
        socket.send_fds(near, [greeting], fds)
        with pytest.raises(ConnectFailed, match=reason):
            handover.take_over(far, "peer")
    for fd in fds:
        os.close(fd)
    assert descriptors() == before


def test_what_is_no_bell_is_refused():
    near, far = socket.socketpair()
    fds = [memory(), *(os.eventfd(0) for _ in range(3)), memory()]
    with near, far:
        socket.send_fds(near, [GREETING], fds)
        with pytest.raises(ConnectFailed, match="no bell"):
            handover.take_over(far, "peer")
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize("left", range(5))
def test_a_handover_that_runs_out_of_descriptors_keeps_none(monkeypatch, left):
    made, make = [], os.eventfd

    def run_out(*args):
        if len(made) == left:
            raise OSError(errno.EMFILE, "no descriptors")
        made.append(make(*args))
        return made[-1]

    before = descriptors()
    near, far = socket.socketpair()
    with near, far:
        monkeypatch.setattr(os, "eventfd", run_out)
        if left == 4:
            monkeypatch.setattr(socket, "send_fds", lambda *_: run_out())
        with pytest.raises(OSError, match="descriptors"):
            handover.hand_over(near)
    assert descriptors() == before


def test_the_memory_cannot_be_shrunk_by_either_end():
    near, far = socket.socketpair()
    link = handover.hand_over(near)
    with far:
        _, fds, _, _ = socket.recv_fds(far, 1000, 10)
    with pytest.raises(PermissionError):
        os.ftruncate(fds[0], 0)
    for fd in fds:
        os.close(fd)
    link.close()


# Hostile peers.


@pytest.mark.parametrize("n", [1, 2**40, 2**63, 2**64 - 2])
async def test_news_of_bytes_that_cannot_be_end_the_connection(n):
    async with raw_peer() as (inbox, connection, peer):
        peer.outward.came.ring(n)
        lost = await inbox.lost()
        assert isinstance(lost, RemoteProtocolError)
        assert str(n) in str(lost)
        assert connection.closed


async def test_a_length_that_cannot_be_ends_the_connection():
    async with raw_peer() as (inbox, _, peer):
        struct.pack_into("<Q", peer.outward.memory, 0, 2**63)
        peer.outward.came.ring(128)
        assert isinstance(await inbox.lost(), RemoteProtocolError)


@pytest.mark.parametrize("with_lanes", [False, True])
async def test_room_that_was_never_taken_ends_the_connection(with_lanes):
    with lanes() as some:
        async with raw_peer(lanes=some if with_lanes else ()) as (inbox, connection, peer):
            peer.inward.freed.ring(2**40)
            with pytest.raises(RemoteProtocolError, match="gives"):
                await connection.send([bulk(1)])
            assert isinstance(await inbox.lost(), RemoteProtocolError)


async def test_a_lane_refuses_what_the_loop_refuses():
    head, _ = tensor(1, np.zeros(32 * MIB, np.uint8))
    with lanes() as some:
        async with raw_peer(lanes=some) as (inbox, connection, peer):
            out = nearest.ShmConnection(Inbox(), peer, **OPTIONS)
            out._write(head)
            await until(lambda: connection._incoming)
            peer.outward.came.ring(2**40)
            lost = await inbox.lost()
            assert isinstance(lost, RemoteProtocolError)
            assert inbox.pool.outstanding == 0


@pytest.mark.parametrize("way", ["came", "freed"])
async def test_a_bell_that_the_peer_has_filled_ends_the_connection(way):
    async with raw_peer() as (inbox, connection, peer):
        bell = peer.inward.came if way == "came" else peer.outward.freed
        bell.ring(2**64 - 2)
        if way == "came":
            connection.post(ping(1, size=1000))
        else:
            ours = nearest.ShmConnection(Inbox(), peer, **OPTIONS)
            with contextlib.suppress(RemoteProtocolError):
                for _ in range(40):
                    ours._write(bytes(100_000))
                    ours._outlet.freed.heard()
                    await asyncio.sleep(0)
            struct.pack_into("<Q", peer.outward.memory, 0, 0)
        lost = await inbox.lost()
        assert isinstance(lost, RemoteProtocolError)


async def test_a_bell_that_the_peer_lets_wait_does_not_hold_the_loop_up():
    async with raw_peer() as (inbox, _, peer):
        for bell in (peer.outward.came, peer.outward.freed, peer.inward.came, peer.inward.freed):
            os.set_blocking(bell.fileno(), True)
        out = Outlet(peer.outward)
        head, (payload,) = tensor(1, b"x" * 1000)
        out.put(memoryview(head))
        out.put(payload)
        await inbox.received(1)
        # Heard already: nothing is there to be read.
        os.eventfd_write(peer.outward.came.fileno(), 64)
        assert os.eventfd_read(peer.outward.came.fileno()) == 64
        await asyncio.sleep(0)
        peer.close()
        await inbox.lost()


def test_a_kernel_that_knows_no_read_without_waiting_is_read_plainly(monkeypatch):
    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "preadv", refuse)
    bell = handover._bell()
    assert bell.heard() == 0
    bell.ring(7)
    assert bell.heard() == 7
    assert bell.heard() == 0
    bell.close()


async def test_a_bell_is_heard_once_a_message(monkeypatch):
    async with raw_peer() as (inbox, connection, peer):
        heard, hear = [], connection._inlet.came.heard
        monkeypatch.setattr(connection._inlet.came, "heard", lambda: heard.append(1) or hear())
        out = Outlet(peer.outward)
        for number in range(1, 6):
            out.put(memoryview(ping(number)))
            await inbox.received(number)
        assert len(heard) == 5


async def test_many_small_records_let_the_loop_turn():
    async with raw_peer() as (inbox, connection, peer):
        out = Outlet(peer.outward)
        for number in range(10_000):
            out.ring.put(memoryview(ping(number)))
        taken = []
        peer.outward.came.ring(out.ring.announce())
        while len(inbox.frames) < 10_000:
            taken.append(len(inbox.frames))
            await asyncio.sleep(0)
        taken.append(len(inbox.frames))
        assert max(b - a for a, b in itertools.pairwise(taken)) <= TURN_BYTES // RECORD_COST_BYTES
        assert not connection.closed


async def test_a_peer_that_writes_to_the_socket_is_hung_up_on():
    async with raw_peer() as (inbox, _, peer):
        peer.sock.send(b"GET / HTTP/1.1\r\n")
        lost = await inbox.lost()
        assert isinstance(lost, RemoteProtocolError)
        assert "says nothing" in str(lost)


async def test_lanes_need_no_descriptors_of_their_own(monkeypatch):
    def refuse(_):
        raise OSError(errno.EMFILE, "no descriptors")

    with lanes() as some:
        async with accepting(lanes=some) as (address, accepted):
            near = Inbox()
            connection = await nearest.connect_shared(address, lambda: near, lanes=some, **OPTIONS)
            monkeypatch.setattr(os, "dup", refuse)
            for key in range(3):
                await connection.send([tensor(key, filled(4 * MIB, key))])
            await accepted[0][0].received(3)
            await connection.close()
            await accepted[0][0].lost()


# Peers that end.


async def test_a_payload_arrives_whole_although_its_sender_closes_at_once():
    payload = filled(20 * MIB, 7)
    with lanes() as some:
        async with accepting(lanes=some) as (address, accepted):
            for number in range(20):
                connection = await nearest.connect_shared(address, Inbox, **OPTIONS)
                await connection.send([tensor(number, payload[: 3 * MIB + number])])
                connection.post(ping(number))
                await connection.close()
                await until(lambda number=number: len(accepted) > number)
                inbox = accepted[number][0]
                assert "between frames" in str(await inbox.lost())
                assert [len(frame.payload) for frame in inbox.frames] == [3 * MIB + number, 1]


class Noting(Landing):
    """One that takes notes of what is done to it."""

    __slots__ = ("notes",)

    def __init__(self, notes, view, loan):
        super().__init__(view, loan)
        self.notes = notes


class Filled(Noting):
    """One that remembers who filled it."""

    __slots__ = ()

    def filled(self, n):
        self.notes.append((threading.current_thread().name, n))
        super().filled(n)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_lane_takes_in_what_a_peer_that_is_gone_has_written(whole):
    threads = []
    head, (payload,) = tensor(1, filled(6 * MIB if whole else 24 * MIB, 1))
    with lanes() as some:
        # How much the lane has taken in when the rest comes, at once with the end.
        for first in (0, 1 * MIB, 3 * MIB, 6 * MIB):
            threads.clear()
            keeper = Inbox()
            keeper.make = functools.partial(Filled, threads)
            async with raw_peer(keeper, lanes=some) as (_, connection, peer):
                out = Outlet(peer.outward)
                out.put(memoryview(head))
                put_all(out, payload[:first])
                due = len(head) + first
                await until(lambda: connection._incoming and connection.received_bytes == due)  # noqa: B023
                put_all(out, payload[first : 6 * MIB])
                peer.close()
                where = "between frames" if whole else "in the middle of a frame"
                assert str(await keeper.lost()).endswith(where)
                assert len(keeper.frames) == whole
                assert {name for name, _ in threads} == {"test"}
                assert sum(n for _, n in threads) == 6 * MIB
                assert not whole or keeper.payloads == [bytes(payload)]


def put_all(out, data):
    while data:
        n = out.put(data)
        assert n
        data = data[n:]


async def test_an_end_that_reads_nothing_hears_of_the_end_when_it_cannot_write():
    async with raw_peer() as (inbox, connection, peer):
        connection.pause_reading()
        sending = asyncio.create_task(connection.send([bulk(1)]))
        await stalled(connection)
        peer.close()
        with pytest.raises(ConnectionLost, match="closed the connection"):
            await sending
        assert isinstance(await inbox.lost(), ConnectionLost)


async def test_a_peer_that_is_gone_is_not_written_to():
    async with raw_peer() as (inbox, connection, peer):
        connection.pause_reading()
        peer.close()
        await until(lambda: connection._hung_up)
        assert not connection.closed
        with pytest.raises(ConnectionLost, match="closed the connection"):
            await connection.send([tensor(1, b"x")])
        await inbox.lost()


CHILD = """
import asyncio, sys
import numpy as np
from aiops.transport import nearest
from aiops.transport.lane import Lane
from aiops.transport.passage import Outlet
from aiops.transport.shm import RECORD_COST_BYTES, TURN_BYTES
from tests.transport.kit import OPTIONS, Inbox, bulk
async def main():
    c = await nearest.connect_shared(("127.0.0.1", int(sys.argv[1])), Inbox, lanes=[Lane("x")], **OPTIONS)
    print("connected", flush=True)
    while True:
        await c.send([bulk(1)])
asyncio.run(main())
"""


@pytest.mark.parametrize("with_lanes", [False, True])
async def test_a_process_that_is_killed_amid_a_payload_is_missed_and_leaves_nothing(with_lanes):
    gc.collect()
    before, fds = mapped(), descriptors()
    with lanes() as some:
        async with accepting(lanes=some if with_lanes else ()) as ((_, port), accepted):
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CHILD, str(port), stdout=asyncio.subprocess.PIPE
            )
            assert (await child.stdout.readline()).strip() == b"connected"
            await until(lambda: accepted)
            inbox, connection = accepted[0]
            inbox.skip = True
            await until(lambda: connection.received_bytes > 10 * MIB)
            child.send_signal(signal.SIGKILL)
            lost = await inbox.lost()
            assert isinstance(lost, ConnectionLost)
            assert "closed the connection" in str(lost)
            await child.wait()
        # A lane has let go of it too as soon as it has turned.
        await until(lambda: mapped() == before)
    assert descriptors() <= fds + 2  # what the loop keeps to watch children with


async def test_nothing_is_left_of_a_connection_that_is_over_although_somebody_remembers_it():
    async with accepting() as (address, accepted):
        before = mapped()
        connection = await nearest.connect_shared(address, Inbox, **OPTIONS)
        await connection.send([tensor(1, filled(5 * MIB, 1))])
        await until(lambda: accepted)
        assert mapped() == before + 2
        await connection.close()
        await accepted[0][0].lost()
        assert mapped() == before
        connection.pause_reading()
        connection.resume_reading()
        connection.abort()
        await asyncio.sleep(0)


@pytest.mark.parametrize("with_lanes", [False, True])
async def test_what_lies_unread_in_a_ring_is_waited_for(with_lanes):
    # Bytes that move into the ring are no sign of life of the peer's: it is given up after one idle timeout, not two.
    with lanes() as some:
        async with raw_peer(lanes=some if with_lanes else ()) as (_, connection, peer):
            frame = bulk(1, 16)
            sending = asyncio.create_task(connection.send([frame]))
            await until(lambda: connection._outlet.ring.used > 7 * MIB)
            left = 16 * MIB if with_lanes else connection.sent_bytes
            assert connection._backlog() >= left
            peer.close()
            with pytest.raises(ConnectionLost):
                await sending


# In place.


class Onlooker(Noting):
    """One that remembers where its bytes lay."""

    __slots__ = ()

    def take(self, view):
        self.notes.append(np.frombuffer(view, np.uint8).ctypes.data)
        super().take(view)


async def test_a_lane_shows_a_landing_its_bytes_where_they_lie():
    seen = []
    payload = np.arange(20 * MIB, dtype=np.uint32).view(np.uint8)[: 20 * MIB]
    with lanes() as some:
        async with raw_peer(lanes=some) as (_, connection, peer):
            keeper = Inbox()
            keeper.make = functools.partial(Onlooker, seen)
            far = nearest.ShmConnection(keeper, peer, lanes=some, **OPTIONS)
            far.start()
            start = np.frombuffer(peer.inward.memory, np.uint8).ctypes.data
            await connection.send([tensor(1, payload)])
            await keeper.received(1)
            assert len(seen) >= 20
            assert all(start < at < start + handover.RING_BYTES for at in seen)
            assert keeper.payloads == [payload.tobytes()]
            keeper.release()
            far.abort()
            await keeper.lost()


def test_a_landing_takes_bytes_as_if_they_had_come_by_rooms():
    payload = np.random.default_rng(1).bytes(9 * MIB + 3)
    took = Landing(memoryview(bytearray(len(payload))))
    at, step = 0, 700_001
    while at < len(payload):
        took.take(memoryview(payload)[at : at + step])
        at += step
    assert took.payload == payload


async def test_tcp_is_all_there_is_elsewhere(monkeypatch):
    monkeypatch.setattr(nearest, "AVAILABLE", False)
    async with accepting() as (address, accepted):
        connection = await nearest.connect([address], Inbox, **OPTIONS)
        assert isinstance(connection, tcp.TcpConnection)
        await until(lambda: accepted)
        connection.abort()


ELSEWHERE = """
import asyncio, mmap, selectors, socket, sys, numpy
sys.platform = "other"
sys.modules["fcntl"] = None
from aiops.transport import nearest
assert not nearest.AVAILABLE
"""


OLD = """
import os, fcntl
del {}
from aiops.transport import nearest
assert not nearest.AVAILABLE
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(ELSEWHERE, id="another system"),
        *(OLD.format(name) for name in ("os.eventfd", "os.memfd_create", "fcntl.F_ADD_SEALS")),
    ],
)
async def test_systems_that_lack_something_import_it_all_the_same(code):
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await child.wait() == 0


async def test_a_connection_that_its_owner_turns_away_at_once_is_over():
    inboxes = []

    def made(inbox, connection):
        inboxes.append(inbox)
        connection.abort()

    listener = await nearest.listen("127.0.0.1", 0, Inbox, made=made, **OPTIONS)
    inbox = Inbox()
    await nearest.connect_shared(listener.addresses[0], lambda: inbox, **OPTIONS)
    assert isinstance(await inbox.lost(), ConnectionLost)
    await inboxes[0].lost()
    await listener.close()
