"""Network namespaces without names: one lives as long as a descriptor of it or a process in it, and leaves nothing.

Only the calling thread moves, for as long as the ``with`` block lasts: there must be no ``await`` inside. Making and
entering one takes CAP_SYS_ADMIN; without it the system's OSError comes out.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """Be in a namespace of its own that has nothing, not even loopback up."""
    with _moved("unshare", _CLONE_NEWNET):
        yield


@contextlib.contextmanager
def inside(descriptor: int) -> Iterator[None]:
    """Be in an existing namespace.

    Args:
        descriptor: An open descriptor of it; see :func:`here`.
    """
    with _moved("setns", descriptor, _CLONE_NEWNET):
        yield


def here() -> int:
    """Return a descriptor of the namespace this thread is in; the caller closes it."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def raise_interface(name: str) -> None:
    """Set an interface up in the namespace this thread is in."""
    request = struct.pack("16sh", name.encode(), 0) + bytes(14)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        flags = struct.unpack_from("h", fcntl.ioctl(sock, _SIOCGIFFLAGS, request), 16)[0] | _IFF_UP
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh", name.encode(), flags) + bytes(14))


@contextlib.contextmanager
def _moved(call: str, *arguments: int) -> Iterator[None]:
    home = here()
    try:
        _call(call, *arguments)
        try:
            yield
        finally:
            _call("setns", home, _CLONE_NEWNET)
    finally:
        os.close(home)


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
