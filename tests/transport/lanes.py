"""What the tests of lanes share: who is told of an end, memory, and waits for what another thread does."""

import queue
import time

import numpy as np

from aiops.transport.lane import Receive
from aiops.wire.reader import Landing
from tests.transport.kit import MIB

# What no kernel buffer of a socket pair holds.
LARGE = 16 * MIB
WAIT_S = 15.0


class Told:
    """How a move ended."""

    def __init__(self):
        self._ends = queue.SimpleQueue()

    def __call__(self, error):
        self._ends.put(error)

    def wait(self):
        return self._ends.get(timeout=WAIT_S)

    @property
    def nothing(self):
        return self._ends.empty()


def array(size, value=0):
    return np.full(size, value, np.uint8)


def view(values):
    return memoryview(values).cast("B")


def soon(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def turn(lane, pair):
    """Let the lane come round: whatever it had to do before is done."""
    ours, theirs = pair()
    told = Told()
    lane.start(Receive(ours, Landing(view(array(1))), 1, told))
    theirs.sendall(b"x")
    assert told.wait() is None


def drain(sock, size):
    """Read so many bytes."""
    got = bytearray(size)
    rest = memoryview(got)
    while rest:
        n = sock.recv_into(rest)
        assert n
        rest = rest[n:]
    return np.frombuffer(got, np.uint8)
