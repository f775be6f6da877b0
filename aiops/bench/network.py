"""A network namespace with a congestion control of our choice: the same for peers that would not ask for one."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator

from aiops.bench.machine import TCP, congestion

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
DEFAULT = "default"

# What everybody gets for a fair comparison: every Linux has it, and it does not pace loopback as bbr does (a third of
# its rate, at three times the processor time).
SAME = "reno"


@contextlib.contextmanager
def network(name: str) -> Iterator[str]:
    """Put the processes that are started inside into a network of their own, with loopback alone.

    Only this thread moves, and comes back at the end; the network lives as long as a process in it. It takes the
    privilege to make one (CAP_SYS_ADMIN); without it everything stays in the system's network.

    Args:
        name: The congestion control to set there; ``DEFAULT`` stays in the system's network.

    Yields:
        What is in force: "reno", or "system's bbr".
    """
    home = None
    if name != DEFAULT:
        with contextlib.suppress(OSError, AttributeError):
            home = _leave(name)
    try:
        yield congestion() if home is not None else f"system's {congestion()}"
    finally:
        if home is not None:
            _call("setns", home, _CLONE_NEWNET)
            os.close(home)


def possible(name: str) -> bool:
    """Return whether this process may make networks with this congestion control."""
    with network(name) as in_force:
        return in_force == name


# Move this thread into a fresh network; return the way back.
def _leave(name: str) -> int:
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _call("unshare", _CLONE_NEWNET)
    except BaseException:
        os.close(home)
        raise
    try:
        _raise_loopback()
        (TCP / "tcp_congestion_control").write_text(name)
    except BaseException:
        _call("setns", home, _CLONE_NEWNET)
        os.close(home)
        raise
    return home


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh", b"lo", 0) + bytes(14)
        flags = struct.unpack_from("h", fcntl.ioctl(sock, _SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | _IFF_UP) + bytes(14))


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
