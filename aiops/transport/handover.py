"""How two processes of one user on one Linux machine come to share memory: a unix socket hands it over.

The server's side makes a memory file with a ring for each direction and four bells, and passes their descriptors to
whoever connects, if it is of the same user. The socket carries nothing else: its end is the end of the connection.

A bell is an eventfd whose counter says how many bytes were added since it was last heard. So the kernel orders memory
and news, nobody spins, no index lies in memory that the peer can write, and who waits can do so in a selector.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from aiops.errors import ConnectFailed, RemoteProtocolError

if sys.platform == "linux":
    import fcntl

# A Python that was built for an old C library has only some of them.
AVAILABLE = (
    sys.platform == "linux"
    and hasattr(os, "eventfd")
    and hasattr(os, "memfd_create")
    and hasattr(fcntl, "F_ADD_SEALS")
)
"""Whether this system has all that it takes."""

# One direction: eight of the longest records. In rings of half that size the two ends wait for each other more often
# (rounds of 100 MB: 1.06 times as long), and twice that size does not stay in a third-level cache of 32 MiB.
RING_BYTES = 8 * 1024 * 1024
MOST_RING_BYTES = 1 << 30

_GREETING = struct.Struct("<16sQ")
_MAGIC = b"aiops ring 1"
_DESCRIPTORS = 5


# What a kernel before 5.8 says to a read of a bell that must not wait.
_UNKNOWN = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class Bell:
    """A counter in the kernel that wakes who waits for it.

    Args:
        fd: Its descriptor, an eventfd's.
        owned: Whether :meth:`close` closes it.
    """

    def __init__(self, fd: int, *, owned: bool = True) -> None:
        self._fd = fd
        self._owned = owned
        self._count = bytearray(8)

    def ring(self, n: int) -> None:
        """Add ``n`` > 0 to what the other side will hear.

        Raises:
            RemoteProtocolError: The counter is full, which nobody but the peer can have done.
        """
        try:
            os.eventfd_write(self._fd, n)
        except BlockingIOError:
            raise RemoteProtocolError("peer has filled the counter of a bell") from None

    def heard(self) -> int:
        """Return what was added since the last time, 0 if nothing was."""
        try:
            # The peer has the same bell, and may have made it one that waits: this does not, at 0.4 us.
            os.preadv(self._fd, (self._count,), -1, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
            return self._heard_plainly()
        return int.from_bytes(self._count, sys.byteorder)

    def _heard_plainly(self) -> int:
        try:
            return os.eventfd_read(self._fd)
        except BlockingIOError:
            return 0

    def lent(self) -> Bell:
        """Return the same bell for who is done with it before it is closed, and leaves that to its owner."""
        return Bell(self._fd, owned=False)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor, if it is owned; idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0 and self._owned:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Way:
    """One direction: a ring, and its bells.

    Attributes:
        memory: The ring.
        came: Tells the reader what was written.
        freed: Tells the writer what was read.
    """

    memory: memoryview
    came: Bell
    freed: Bell


@dataclass(frozen=True, slots=True)
class Link:
    """One end of what is shared; owns the socket and the bells.

    Attributes:
        sock: Ends when the peer does.
        inward: What the peer writes.
        outward: What this end writes.
        peer: Who the peer is, for people.
    """

    sock: socket.socket
    inward: Way
    outward: Way
    peer: str

    def close(self) -> None:
        """End the connection. The memory lives until nobody looks at it."""
        with contextlib.suppress(OSError):  # the peer was faster
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        for way in (self.inward, self.outward):
            way.came.close()
            way.freed.close()


def check_peer(sock: socket.socket) -> int:
    """Return the process at the other end.

    Raises:
        ConnectFailed: It is another user's.
    """
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid != os.geteuid():
        raise ConnectFailed(f"process {pid} is of user {uid}, this one of {os.geteuid()}")
    return int(pid)


def hand_over(sock: socket.socket, ring_bytes: int = RING_BYTES) -> Link:
    """Make what is shared and send it, without waiting, through a fresh unix socket.

    Args:
        sock: Non-blocking; the link owns it, if there is one.
        ring_bytes: Size of each direction, whole pages.

    Raises:
        ConnectFailed: The peer is another user's.
        OSError: The system refuses.
    """
    pid = check_peer(sock)
    bells: list[Bell] = []
    fd = os.memfd_create("aiops ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # Its pages come when the ring first gets to them: all at once they would hold the loop up for 10 ms.
        os.ftruncate(fd, 2 * ring_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        # Those that there are belong to the list already when another cannot be had.
        bells.extend(_bell() for _ in range(_DESCRIPTORS - 1))
        out, into = _ways(fd, ring_bytes, bells)
        greeting = _GREETING.pack(_MAGIC, ring_bytes)
        socket.send_fds(sock, [greeting], [fd, *(bell.fileno() for bell in bells)])
        return Link(sock, into, out, f"process {pid} on this machine")
    except BaseException:
        for bell in bells:
            bell.close()
        raise
    finally:
        os.close(fd)


def take_over(sock: socket.socket, peer: str) -> Link:
    """Receive what the server shares; the socket is readable, and who is there has been checked.

    Args:
        sock: Non-blocking; the link owns it, if there is one.
        peer: Who the server is, for people.

    Raises:
        ConnectFailed: What came is not ours, or not safe to use.
        OSError: The system refuses.
    """
    greeting, fds, _, _ = socket.recv_fds(
        sock, _GREETING.size, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
    )
    bells: list[Bell] = []
    try:
        if len(greeting) != _GREETING.size or len(fds) != _DESCRIPTORS:
            raise ConnectFailed(f"{peer} hands {len(greeting)} bytes, {len(fds)} descriptors over")
        magic, ring_bytes = _GREETING.unpack(greeting)
        _check_greeting(magic.rstrip(b"\0"), ring_bytes, fds, peer)
        while len(fds) > 1:
            bells.append(Bell(fds.pop(1)))
        into, out = _ways(fds[0], ring_bytes, bells)
        return Link(sock, into, out, peer)
    except BaseException:
        for bell in bells:
            bell.close()
        raise
    finally:
        for fd in fds:
            os.close(fd)


def _check_greeting(magic: bytes, ring_bytes: int, fds: Sequence[int], peer: str) -> None:
    if magic != _MAGIC:
        raise ConnectFailed(f"{peer} speaks {magic!r}, this end {_MAGIC!r}")
    size = os.fstat(fds[0]).st_size
    whole = 0 < ring_bytes <= MOST_RING_BYTES and ring_bytes % mmap.PAGESIZE == 0
    if not whole or size != 2 * ring_bytes:
        raise ConnectFailed(f"{peer} has rings of {ring_bytes} bytes in a file of {size}")
    # A file that could shrink under our hands would kill us at the next look.
    if not fcntl.fcntl(fds[0], fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise ConnectFailed(f"{peer} hands memory over that may shrink")
    for fd in fds[1:]:
        if "eventfd" not in os.readlink(f"/proc/self/fd/{fd}"):
            raise ConnectFailed(f"{peer} hands something over that is no bell")


def _bell() -> Bell:
    return Bell(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))


# Map the file as the server sees it: its outward ring first.
def _ways(fd: int, ring_bytes: int, bells: Sequence[Bell]) -> tuple[Way, Way]:
    memory = memoryview(mmap.mmap(fd, 2 * ring_bytes))
    return (
        Way(memory[:ring_bytes], bells[0], bells[1]),
        Way(memory[ring_bytes:], bells[2], bells[3]),
    )
