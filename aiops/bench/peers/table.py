"""The peers by name."""

from __future__ import annotations

import importlib

from aiops.bench.peers.base import Peer

# Key -> module and class. A module is imported by the processes that run it, and by whoever asks for its version.
PEERS = {
    "ours": "ours:Ours",
    "readme": "ours:AsInReadme",
    "sockets": "sockets:Blocking",
    "epoll": "sockets:Epoll",
    "transport": "transport:Transport",
    "loop": "loop:Loop",
    "gloo": "gloo:Gloo",
    "rpc": "rpc:Rpc",
    "zmq": "zmq:Zmq",
    "grpc-stream": "grpc:Streaming",
    "grpc-unary": "grpc:Unary",
    "flower": "grpc:FlowerLike",
    "streams": "streams:Streams",
    "hivemind": "hivemind:Hivemind",
}


def peer(key: str) -> Peer:
    """Return a peer; its library is not imported yet."""
    module, _, name = PEERS[key].partition(":")
    made: Peer = getattr(importlib.import_module(f"aiops.bench.peers.{module}"), name)()
    return made
