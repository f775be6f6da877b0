"""gRPC: whole tensors in unary calls, 1 MB pieces in a stream, and unary calls the way Flower makes them."""

from __future__ import annotations

import contextlib
import io
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiops.bench.peers.base import HOST, Case, Round, announce, package, pieces
from aiops.bench.peers.total import Total

PIECE_BYTES = 1 << 20
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
Array = NDArray[np.float32]


class _Sum:
    """A Total for a server with a thread a call: whoever is not last waits."""

    def __init__(self, case: Case) -> None:
        self._total = Total(case.n_workers, case.n_values)
        self._turn = threading.Condition()
        self._round = 0
        self._merged: Array

    def add(self, part: Array) -> Array:
        with self._turn:
            mine = self._round
            merged = self._total.add(part)
            if merged is None:
                self._turn.wait_for(lambda: self._round > mine)
            else:
                self._merged = merged
                self._round += 1
                self._turn.notify_all()
            return self._merged


def _serve(case: Case, handler: object) -> None:
    import grpc

    server = grpc.server(ThreadPoolExecutor(case.n_workers + 1), options=OPTIONS)
    generic = grpc.method_handlers_generic_handler("bench", {"sync": handler})
    server.add_generic_rpc_handlers((generic,))
    announce(f"{HOST}:{server.add_insecure_port(f'{HOST}:0')}")
    server.start()
    server.wait_for_termination()


@contextlib.contextmanager
def _channel(address: str) -> Iterator[Any]:
    import grpc

    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        grpc.channel_ready_future(channel).result(30)
        yield channel


class Unary:
    """One call per round, the tensor's bytes as its message."""

    name = "gRPC unary"
    spins = False

    def versions(self) -> str:
        """Return gRPC's version."""
        return package("grpcio", module="grpc")

    def pack(self, array: Array) -> bytes:
        """Return a tensor as bytes."""
        return array.tobytes()

    def unpack(self, data: bytes) -> Array:
        """Return bytes as a tensor, without a copy."""
        return np.frombuffer(data, np.float32)

    def serve(self, case: Case) -> None:
        """Answer each call with the sum."""
        import grpc

        total = _Sum(case)

        def sync(data: bytes, _: object) -> bytes:
            return self.pack(total.add(self.unpack(data)))

        _serve(case, grpc.unary_unary_rpc_method_handler(sync))

    @contextlib.contextmanager
    def connect(self, case: Case, address: str, rank: int) -> Iterator[Round]:
        """Call, and look at the answer."""
        update = case.update(rank)
        with _channel(address) as channel:
            sync: Callable[[bytes], bytes] = channel.unary_unary("/bench/sync")

            def do_round() -> float:
                return float(self.unpack(sync(self.pack(update)))[-1])

            yield do_round


class FlowerLike(Unary):
    """What Flower does with arrays on the way into and out of its gRPC messages: np.save and np.load."""

    name = "Flower-like"
    spins = False

    def pack(self, array: Array) -> bytes:
        """Return a tensor as the bytes of an .npy file."""
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        return file.getvalue()

    def unpack(self, data: bytes) -> Array:
        """Return the tensor in an .npy file."""
        loaded: Array = np.load(io.BytesIO(data), allow_pickle=False)
        return loaded


class Streaming:
    """One bidirectional stream a worker, with tensors in pieces of 1 MB into and out of arrays that are there."""

    name = "gRPC stream"
    spins = False

    def versions(self) -> str:
        """Return gRPC's version."""
        return package("grpcio", module="grpc")

    def serve(self, case: Case) -> None:
        """Take pieces until a tensor is whole, then send the sum in pieces."""
        import grpc

        total = _Sum(case)

        def sync(coming: Iterator[bytes], _: object) -> Iterator[bytes]:
            mine = np.empty(case.n_values, np.float32)
            while _fill(mine, coming):
                yield from _cut(total.add(mine))

        _serve(case, grpc.stream_stream_rpc_method_handler(sync))

    @contextlib.contextmanager
    def connect(self, case: Case, address: str, rank: int) -> Iterator[Round]:
        """Let gRPC's own thread cut and send while this one receives."""
        update, merged = case.update(rank), np.empty(case.n_values, np.float32)
        asked: queue.SimpleQueue[bool] = queue.SimpleQueue()

        def going() -> Iterator[bytes]:
            while asked.get():
                yield from _cut(update)

        def do_round() -> float:
            asked.put(True)
            _fill(merged, coming)
            return float(merged[-1])

        with _channel(address) as channel:
            coming = channel.stream_stream("/bench/sync")(going())
            yield do_round
            asked.put(False)


def _cut(array: Array) -> Iterator[bytes]:
    view = array.data.cast("B")
    return (bytes(view[piece]) for piece in pieces(len(view), PIECE_BYTES))


def _fill(array: Array, coming: Iterator[bytes]) -> bool:
    view, filled = array.data.cast("B"), 0
    while filled < len(view):
        data = next(coming, b"")
        if not data:
            return False
        view[filled : filled + len(data)] = data
        filled += len(data)
    return True
