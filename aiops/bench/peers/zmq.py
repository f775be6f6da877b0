"""pyzmq: a ROUTER for the server, DEALERs for the workers, zero-copy where ZeroMQ has it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from aiops.bench.peers.base import HOST, Case, Round, announce, package
from aiops.bench.peers.total import Total


class Zmq:
    """Whole messages, sent and received with ``copy=False``."""

    name = "pyzmq"
    spins = False

    def versions(self) -> str:
        """Return pyzmq's version."""
        return package("pyzmq", module="zmq")

    def serve(self, case: Case) -> None:
        """Receive from all, then send to all."""
        import zmq

        socket = zmq.Context().socket(zmq.ROUTER)
        port = socket.bind_to_random_port(f"tcp://{HOST}")
        announce(f"tcp://{HOST}:{port}")
        total, names = Total(case.n_workers, case.n_values), []
        while True:
            name, payload = socket.recv_multipart(copy=False)
            names.append(name.bytes)
            merged = total.add(np.frombuffer(payload.buffer, np.float32))
            if merged is not None:
                for each in names:
                    socket.send_multipart([each, merged.data], copy=False)
                names.clear()

    @contextlib.contextmanager
    def connect(self, case: Case, address: str, rank: int) -> Iterator[Round]:
        """Send, then receive."""
        import zmq

        socket = zmq.Context().socket(zmq.DEALER)
        socket.connect(address)
        update = case.update(rank).data

        def do_round() -> float:
            socket.send(update, copy=False)
            frame = socket.recv(copy=False)
            return float(np.frombuffer(frame.buffer, np.float32)[-1])

        yield do_round
