"""aiops: an asyncio-native parameter server for training across sites.

The face of the package, by topic. Nothing is computed here, and torch is imported only by whoever says
``aiops.torch``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# Serving and connecting.
from aiops.api import VERSION as __version__
from aiops.api import Server, connect, serve

# Settings.
from aiops.config import ServerConfig, preset

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
from aiops.worker.meter import Meter
from aiops.worker.overlap import Rule, Step, overlapped
from aiops.worker.rounds import blocking
from aiops.worker.ticket import Snapshot, Ticket

if TYPE_CHECKING:
    from aiops import torch as torch

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
    if name == "torch":
        return importlib.import_module("aiops.torch")
    raise AttributeError(f"module 'aiops' has no attribute {name!r}")
