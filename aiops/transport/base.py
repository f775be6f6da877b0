"""What a transport is: connections that carry whole frames and say when memory may be changed again.

A transport knows frames as bytes and where to put them; it knows no message and no policy.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from aiops.errors import ConnectionLost, TransportError
from aiops.wire.frame import Frame, Header
from aiops.wire.reader import Landing

Outgoing: TypeAlias = "tuple[bytes, Sequence[memoryview]]"
"""One frame to be sent: its first bytes (the header, or a whole control frame), then payload views of format 'B'."""


class Receiver(Protocol):
    """The owner of a connection, as the connection sees it. Called on the loop; must not block."""

    def place(self, header: Header) -> Landing | None:
        """Choose the memory of a bulk payload; see :data:`aiops.wire.reader.Place`.

        :data:`aiops.wire.reader.HOLD` pauses the connection; ``resume_reading`` has the same asked again.
        """

    def frame_received(self, frame: Frame) -> None:
        """Take a frame and its loan; a ProtocolError raised here ends the connection with it.

        Any other exception is a bug of the receiver's: it ends the connection too, and the loop reports it.
        """

    def connection_lost(self, error: Exception | None) -> None:
        """Hear, once and last, that the connection is over; None when this end closed it."""


class Connection(Protocol):
    """A live link to one peer.

    Attributes:
        patient: Whether a send waits as long as bytes come in, though the peer takes none: a worker's for a server
            that has no room for its push and says that it is alive. False at first.
    """

    patient: bool

    @property
    def peer(self) -> str:
        """The peer's address, for people."""

    @property
    def closed(self) -> bool:
        """Whether the connection is over."""

    @property
    def received_bytes(self) -> int:
        """Bytes received so far."""

    @property
    def sent_bytes(self) -> int:
        """Bytes handed to the transport so far."""

    @property
    def last_heard(self) -> float:
        """When bytes last came in, in seconds of the loop's clock."""

    async def send(self, frames: Sequence[Outgoing]) -> None:
        """Send frames in order; concurrent sends queue up behind each other, frame groups stay whole.

        The payload views are on loan until this returns or raises: then, and not a moment earlier, they may be changed.
        A cancelled send that has written part of its frames aborts the connection, since half a message cannot be
        unsent; only copies that hold the whole message go out by themselves.

        Raises:
            ConnectionLost: The connection ended first.
            ProtocolError: The connection ended because the peer does not speak our protocol.
            DeadlineExceeded: The peer took no byte for the idle timeout, nor sent one if this is ``patient``; the
                connection is aborted.
        """

    def send_now(self, frames: Sequence[Outgoing]) -> bool:
        """Send a small message at once, if nothing is in its way; else do nothing and return False.

        The views are copied, so that they are the caller's again when this returns. A message of up to 64 KiB leaves
        with one system call and no turn of the loop.
        """

    def post(self, frame: bytes) -> None:
        """Send a small whole frame without waiting, at the next frame boundary.

        A closed connection swallows it. A peer that lets too many pile up is cut off.
        """

    def pause_reading(self) -> None:
        """Stop taking bytes from the peer, so that it is slowed down."""

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""

    async def close(self) -> None:
        """Wait for the sends under way, send what is posted, then end the connection; idempotent.

        Over once this returns or raises; a cancelled close aborts, and so does one whose last bytes the peer does not
        take for the idle timeout. What the peer is sending at that time is lost.
        """

    def abort(self, error: Exception | None = None) -> None:
        """End the connection at once; ``error`` is what everybody who waits on it is told. Idempotent."""


class Listener(Protocol):
    """A bound address that accepts connections."""

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """The host and port of every socket it is bound to."""

    async def close(self) -> None:
        """Stop accepting; existing connections live on."""


def address(name: object) -> str:
    """Return a socket's name, as systems give it, for people."""
    if isinstance(name, tuple) and len(name) >= 2:
        host, port = name[0], name[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return "unknown peer"


def reason(error: OSError, timeout_s: float = 0.0) -> str:
    """Return why the system refused something, plainly; ``timeout_s`` is how long we waited for nothing."""
    if error.errno is None:
        ours = isinstance(error, TimeoutError)
        return f"no answer in {timeout_s:g} s" if ours else str(error)
    # Loops add to the text of an error; the number says it plainly. A failed look-up numbers its reasons by itself.
    plain = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)
    return plain or str(error)


def translated(error: Exception, what: str) -> Exception:
    """Return an OSError as the TransportError that it is to our users, and other errors as they are."""
    if isinstance(error, OSError) and not isinstance(error, TransportError):
        return ConnectionLost(f"{what}: {reason(error)}")
    return error
