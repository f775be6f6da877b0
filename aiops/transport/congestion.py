"""How a TCP socket is set up: its congestion control, and on loopback what suits memory instead of a wire.

The congestion control is the system's, the caller's, or on loopback the fastest one allowed.

A loopback link has no queue to be fair to. BBR paces it all the same: 2.0 GB/s at three times the CPU time where reno
reached 5-7 GB/s (Linux 6.18, 2 cores), so a machine whose default is BBR would lose half of its speed within itself.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket

from aiops.errors import ConfigError

# Congestion controls that pace what they send; on loopback reno, which every Linux lets everybody choose, is faster.
PACED = frozenset({"bbr", "bbr2", "bbr3"})
UNPACED = "reno"

# What a sender may have queued on loopback; the kernel doubles it. More than that leaves the caches before it is
# received: with two workers the server's system time for 100 MB each went from 98 to 49-75 ms. Half of it slows one
# worker down.
QUEUE_BYTES = 512 * 1024

_OPTION: int | None = getattr(socket, "TCP_CONGESTION", None)


def in_force(sock: socket.socket) -> str:
    """Return the name of what a socket uses; ``"unknown"`` where the system does not tell."""
    if _OPTION is None:
        return "unknown"
    with contextlib.suppress(OSError):
        name = sock.getsockopt(socket.IPPROTO_TCP, _OPTION, 16)
        return name.partition(b"\0")[0].decode("ascii", "replace")
    return "unknown"


def choose(sock: socket.socket, wanted: str | None) -> None:
    """Ask the system for a congestion control; None means the fastest one on loopback and the system's elsewhere.

    What the system refuses is left as it is: :func:`check` tells beforehand.
    """
    if _OPTION is None:
        return
    if wanted is None:
        if in_force(sock) not in PACED or not _is_loopback(sock):
            return
        wanted = UNPACED
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, _OPTION, wanted.encode())


def bound_queue(sock: socket.socket) -> None:
    """Keep what is on its way over loopback small enough for the caches; real links keep their automatic windows."""
    if _is_loopback(sock):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES)


def check(wanted: str) -> None:
    """Refuse a congestion control that this process may not choose.

    Raises:
        ConfigError: The system has none of that name, or not for us.
    """
    if _OPTION is None:
        raise ConfigError(f"congestion is {wanted!r}, this system does not let a process choose")
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, _OPTION, wanted.encode())
        except (OSError, UnicodeEncodeError):
            raise ConfigError(
                f"congestion is {wanted!r}, which is not among those that the system allows this process "
                "(net.ipv4.tcp_allowed_congestion_control)"
            ) from None


def _is_loopback(sock: socket.socket) -> bool:
    try:
        host = sock.getpeername()[0]
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except (OSError, ValueError, IndexError, TypeError):
        return False
