"""The emulator's loop between sockets that keep packets apart, as TUN interfaces do: routes, times, counts."""

import errno
import functools
import os
import socket
import time

import msgspec
import pytest

from aiops.lab.wan import emulator as module
from aiops.lab.wan.counters import Lateness
from aiops.lab.wan.emulator import Emulator
from aiops.lab.wan.link import Change, LinkSpec
from aiops.lab.wan.tun import line_bytes

FAST = LinkSpec(up_bits_s=1e9, down_bits_s=1e9)


class Over(Exception):
    """Raised by a handler: everything expected has come."""


class Ends:
    """An emulator and the far ends of its interfaces, on which programs would be: the server's first."""

    def __init__(self, links):
        self.ours, self.far = [], []
        for _ in range(1 + len(links)):
            ours, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            self.ours.append(ours)
            self.far.append(far)
        self.emulator = Emulator([sock.fileno() for sock in self.ours], links, seed=0)
        for end, sock in enumerate(self.far):
            self.emulator.listen(sock.fileno(), functools.partial(self._take, end))

    def send(self, end, packet):
        self.far[end].send(packet)

    def run(self, n_packets):
        """Run until so many packets have come out; return (end, packet, seconds) of each."""
        self._start, self._got, self._n_packets = time.monotonic(), [], n_packets
        with pytest.raises(Over):
            self.emulator.run()
        return self._got

    def _take(self, end):
        self._got.append((end, self.far[end].recv(2048), time.monotonic() - self._start))
        if len(self._got) == self._n_packets:
            raise Over


@pytest.fixture
def ends():
    made = []

    def make(*links):
        made.append(Ends(links))
        return made[-1]

    yield make
    for each in made:
        for sock in (*each.ours, *each.far):
            sock.close()


def packet(octet, *, size=100, mark=0):
    """A packet of so many bytes behind a virtio header of zeros."""
    data = bytearray(10 + size)
    data[10], data[10 + 19], data[-1] = 0x45, octet, mark
    return bytes(data)


def test_up_goes_to_the_server_and_down_to_the_worker_of_the_last_octet(ends):
    lab = ends(FAST, FAST)
    lab.send(1, packet(1, mark=1))
    lab.send(2, packet(1, mark=2))
    lab.send(0, packet(11, mark=3))
    lab.send(0, packet(10, mark=4))
    assert {(end, data[-1]) for end, data, _ in lab.run(4)} == {(0, 1), (0, 2), (2, 3), (1, 4)}


def test_what_is_for_nobody_or_no_ipv4_goes_nowhere(ends):
    lab = ends(FAST)
    for stray in (packet(99), bytes(10) + b"\x60" + packet(10)[11:], b"runt"):
        lab.send(0, stray)
    lab.send(0, packet(10, mark=7))
    assert [(end, data[-1]) for end, data, _ in lab.run(1)] == [(1, 7)]


def test_packets_come_no_sooner_than_they_are_due_and_in_order(ends):
    # 986 + 14 bytes at 8 Mbit/s: a millisecond each.
    lab = ends(LinkSpec(up_bits_s=8e6, down_bits_s=8e6, delay_s=0.02))
    for mark in range(20):
        lab.send(1, packet(1, size=986, mark=mark))
    got = lab.run(20)
    assert [data[-1] for _, data, _ in got] == list(range(20))
    assert all(at_s >= 0.021 + n * 0.001 for n, (_, _, at_s) in enumerate(got))


def test_a_train_takes_the_time_of_its_packets(ends):
    # 52 bytes of headers and twice 934 of payload: on the line two packets of 1000 bytes, 2 ms at 8 Mbit/s.
    train = bytearray(packet(1, size=52 + 2 * 934))
    train[1], train[2], train[4:6] = 1, 52, (934).to_bytes(2, "little")
    lab = ends(LinkSpec(up_bits_s=8e6, down_bits_s=8e6))
    lab.send(1, bytes(train))
    (_, data, at_s) = lab.run(1)[0]
    assert data == train
    assert at_s >= 0.002


@pytest.mark.parametrize(
    ("size", "headers", "each", "n_bytes"),
    [
        pytest.param(1500, 0, 0, 1500, id="no train"),
        pytest.param(52 + 1448, 52, 1448, 1500, id="a train of one"),
        pytest.param(52 + 1449, 52, 1448, 1501 + 66, id="a full packet and a byte"),
        pytest.param(52 + 8 * 1448, 52, 1448, 8 * 1514 - 14, id="eight full packets"),
    ],
)
def test_a_train_is_its_packets_with_a_header_each(size, headers, each, n_bytes):
    data = bytearray(10 + size)
    data[1] = 1 if each else 0
    data[2:4], data[4:6] = headers.to_bytes(2, "little"), each.to_bytes(2, "little")
    assert line_bytes(bytes(data)) == n_bytes


def test_it_counts_what_it_delivers_drops_and_loses(ends):
    cut = LinkSpec(up_bits_s=8e6, down_bits_s=8e6, loss=1.0)
    lab = ends(LinkSpec(up_bits_s=8e6, down_bits_s=8e6, queue_bytes=3000), FAST, cut)
    lab.send(3, packet(1))
    for _ in range(5):
        lab.send(1, packet(1, size=986))
    lab.send(0, packet(11, size=50))
    lab.run(4)
    counters = lab.emulator.counters()
    up = counters.up[0]
    assert (up.packets, up.n_bytes, up.dropped, up.lost) == (3, 2958, 2, 0)
    assert (counters.down[1].packets, counters.down[1].n_bytes) == (1, 50)
    assert (counters.up[2].packets, counters.up[2].lost) == (0, 1)
    assert counters.packets == 4
    assert 0 < counters.late_s <= counters.late_p99_s
    assert counters.elapsed_s >= counters.cpu_s > 0


def test_a_schedule_begins_when_it_is_told_to_and_ends_with_a_reset(ends):
    first = LinkSpec(up_bits_s=1e9, down_bits_s=1e9, delay_s=0.1)
    lab = ends(msgspec.structs.replace(first, changes=(Change(at_s=0.05, delay_s=1.0),)))

    def took():
        lab.send(1, packet(1))
        return lab.run(1)[0][2]

    lab.emulator.begin()
    assert 0.1 <= took() < 1.0
    assert took() >= 1.0
    lab.emulator.reset()
    assert 0.1 <= took() < 1.0
    # No change has come meanwhile.
    assert 0.1 <= took() < 1.0
    lab.emulator.begin()
    assert 0.1 <= took() < 1.0
    assert took() >= 1.0


def test_an_interface_that_is_down_is_asked_again(ends, monkeypatch):
    lab = ends(FAST)
    worker, read, down = lab.ours[1].fileno(), os.read, [True, True]

    def may_fail(fd, n_bytes):
        if fd == worker and down:
            down.pop()
            raise OSError(errno.EIO, "down")
        return read(fd, n_bytes)

    monkeypatch.setattr(os, "read", may_fail)
    lab.send(1, packet(1))
    (_, _, at_s) = lab.run(1)[0]
    assert at_s >= 2 * module.DOWN_NS / 1e9


def test_what_cannot_be_delivered_counts_as_dropped(ends, monkeypatch):
    lab = ends(FAST, FAST)
    worker, write = lab.ours[1].fileno(), os.write

    def may_fail(fd, data):
        if fd == worker:
            raise OSError(errno.EIO, "down")
        return write(fd, data)

    monkeypatch.setattr(os, "write", may_fail)
    lab.send(0, packet(10))
    lab.send(0, packet(11))
    assert [end for end, _, _ in lab.run(1)] == [2]
    assert lab.emulator.counters().down[0].dropped == 1


def test_lateness_is_counted_in_steps():
    late = Lateness()
    assert late.percentile_s(0.99) == 0.0
    for _ in range(99):
        late.add(20_000, 10)
    late.add(50_000_000_000, 10)
    assert (late.packets, late.n_bytes) == (100, 1000)
    assert late.percentile_s(0.99) == 2 * 2**14 / 1e9
    assert late.percentile_s(1.0) == 4096 * 2**14 / 1e9
