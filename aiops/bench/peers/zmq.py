"""pyzmq: a ROUTER for the server, DEALERs for the workers, zero-copy where ZeroMQ has it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aiops.bench.peers.base import HOST, Case, Round, announce, package, pieces
from aiops.bench.peers.total import Total

if TYPE_CHECKING:
    from zmq import SyncSocket

# malloc's largest mmap threshold: the memory of a longer message comes from the kernel anew each time, and its pages
# cost more than a copy. Whole messages took 1.9 to 2.4 times as long as pieces at 48 to 100 MB, 0.7 times at 16 MB.
WHOLE_BYTES = 32 << 20
PIECE_BYTES = 1 << 20


class Incoming:
    """Where one sender's messages go: whole ones stay where they are, pieces go into an array that is there already."""

    def __init__(self, case: Case) -> None:
        self._whole = case.n_bytes <= WHOLE_BYTES
        self._array = np.empty(0 if self._whole else case.n_values, np.float32)
        self._body = self._array.data.cast("B")
        self._filled = 0

    def take(self, part: memoryview) -> NDArray[np.float32] | None:
        """Take a message; return the array with the last one."""
        if self._whole:
            return np.frombuffer(part, np.float32)
        self._body[self._filled : self._filled + len(part)] = part
        self._filled = (self._filled + len(part)) % len(self._body)
        return None if self._filled else self._array


class Zmq:
    """Whole messages, or pieces of the longest, sent and received with ``copy=False``."""

    name = "pyzmq"
    spins = False

    def versions(self) -> str:
        """Return pyzmq's version."""
        return package("pyzmq", module="zmq")

    def serve(self, case: Case) -> None:
        """Receive from all, then send to all."""
        import zmq

        socket = _socket(zmq.ROUTER)
        port = socket.bind_to_random_port(f"tcp://{HOST}")
        announce(f"tcp://{HOST}:{port}")
        total, names = Total(case.n_workers, case.n_values), list[bytes]()
        coming: dict[bytes, Incoming] = {}
        while True:
            head, payload = socket.recv_multipart(copy=False)
            name = head.bytes
            if name not in coming:
                coming[name] = Incoming(case)
            array = coming[name].take(payload.buffer)
            if array is None:
                continue
            names.append(name)
            merged = total.add(array)
            if merged is not None:
                for each in names:
                    _send(socket, merged, each)
                names.clear()

    @contextlib.contextmanager
    def connect(self, case: Case, address: str, rank: int) -> Iterator[Round]:
        """Send, then receive."""
        import zmq

        socket = _socket(zmq.DEALER)
        socket.connect(address)
        update, coming = case.update(rank), Incoming(case)

        def do_round() -> float:
            _send(socket, update)
            while (total := coming.take(socket.recv(copy=False).buffer)) is None:
                pass
            return float(total[-1])

        yield do_round


# Without the limit of 1000 messages, which pieces could reach.
def _socket(kind: int) -> SyncSocket:
    import zmq

    socket = zmq.Context().socket(kind)
    socket.set_hwm(0)
    return socket


def _send(socket: SyncSocket, array: NDArray[np.float32], *to: bytes) -> None:
    if array.nbytes <= WHOLE_BYTES:
        socket.send_multipart((*to, array.data), copy=False)
        return
    body = array.data.cast("B")
    for piece in pieces(len(body), PIECE_BYTES):
        socket.send_multipart((*to, body[piece]), copy=False)
