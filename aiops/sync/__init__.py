"""For callers that are not asynchronous themselves: a loop in a thread, and a training link over it."""

from aiops.sync.link import Link
from aiops.sync.thread import LoopThread

__all__ = ["Link", "LoopThread"]
