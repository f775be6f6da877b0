"""aiops: an asyncio-native parameter server for training across sites.

The face of the package, by topic. Nothing is computed here, and whatever is more than an exception is loaded by whoever
asks for it: numpy alone takes longer to load than a command line may take to answer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from aiops import torch as torch
    from aiops.api.connecting import connect
    from aiops.api.serving import Server, serve
    from aiops.config import ServerConfig, preset
    from aiops.transport.certificate import Tls
    from aiops.worker.client import Client
    from aiops.worker.machine import Rule
    from aiops.worker.meter import Meter
    from aiops.worker.overlap import Step, overlapped
    from aiops.worker.rounds import blocking
    from aiops.worker.ticket import Snapshot, Ticket

    __version__: str

_LATER = {
    # Certificates of either end.
    "Tls": "aiops.transport.certificate",
    # Serving, and its settings.
    "Server": "aiops.api.serving",
    "ServerConfig": "aiops.config",
    "preset": "aiops.config",
    "serve": "aiops.api.serving",
    # Working: the client and its tickets.
    "Client": "aiops.worker.client",
    "Snapshot": "aiops.worker.ticket",
    "Ticket": "aiops.worker.ticket",
    "connect": "aiops.api.connecting",
    # Training loops without a framework.
    "Meter": "aiops.worker.meter",
    "Rule": "aiops.worker.machine",
    "Step": "aiops.worker.overlap",
    "blocking": "aiops.worker.rounds",
    "overlapped": "aiops.worker.overlap",
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
    "Tls",
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


def __dir__() -> list[str]:
    return [*__all__, "torch"]
