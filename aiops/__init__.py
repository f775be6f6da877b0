"""aiops: an asyncio-native parameter server for training across sites.

The face of the package, by topic. Nothing is computed here, and torch is imported only by whoever says
``aiops.torch``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# Connecting.
from aiops.api.connecting import connect

# What can go wrong.
from aiops.errors import (
    AiopsError,
    Busy,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
    NotFinite,
    NotMember,
    ProtocolError,
    Refused,
    Rejected,
    ShapeMismatch,
    StalePush,
    TransportError,
    UnknownKey,
    ZeroWeight,
)

# Working: the client, its tickets, and the two training loops.
from aiops.worker.client import Client
from aiops.worker.machine import Rule
from aiops.worker.meter import Meter
from aiops.worker.overlap import Step, overlapped
from aiops.worker.rounds import blocking
from aiops.worker.ticket import Snapshot, Ticket

# Serving and its settings, and PyTorch, are loaded by whoever asks for them.
if TYPE_CHECKING:
    from aiops import torch as torch
    from aiops.api.serving import Server as Server
    from aiops.api.serving import serve as serve
    from aiops.config import ServerConfig as ServerConfig
    from aiops.config import preset as preset

    __version__: str

_LATER = {
    "Server": "aiops.api.serving",
    "ServerConfig": "aiops.config",
    "preset": "aiops.config",
    "serve": "aiops.api.serving",
}

__all__ = [
    "AiopsError",
    "Busy",
    "Client",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "DeadlineExceeded",
    "Meter",
    "NotFinite",
    "NotMember",
    "ProtocolError",
    "Refused",
    "Rejected",
    "Rule",
    "Server",
    "ServerConfig",
    "ShapeMismatch",
    "Snapshot",
    "StalePush",
    "Step",
    "Ticket",
    "TransportError",
    "UnknownKey",
    "ZeroWeight",
    "__version__",
    "blocking",
    "connect",
    "overlapped",
    "preset",
    "serve",
]


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name == "torch":
        return importlib.import_module("aiops.torch")
    if name == "__version__":
        return importlib.import_module("aiops.api.version").version()
    raise AttributeError(f"module 'aiops' has no attribute {name!r}")
