"""What a transport is: connections that carry whole frames and say when memory may be changed again.

A transport knows frames as bytes and where to put them; it knows no message and no policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from aiops.wire.frame import Frame, Header
from aiops.wire.reader import Landing

Outgoing: TypeAlias = "tuple[bytes, Sequence[memoryview]]"
"""One frame to be sent: its first bytes (the header, or a whole control frame), then payload views."""


class Receiver(Protocol):
    """The owner of a connection, as the connection sees it. Called on the loop; must not block."""

    def place(self, header: Header) -> Landing:
        """Choose the memory of a bulk payload; see :data:`aiops.wire.reader.Place`."""

    def frame_received(self, frame: Frame) -> None:
        """Take a frame; a ProtocolError raised here ends the connection with it."""

    def connection_lost(self, error: Exception | None) -> None:
        """Hear, once and last, that the connection is over; None when this end closed it."""


class Connection(Protocol):
    """A live link to one peer."""

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

        The payload views are on loan until this returns: then, and not a moment earlier, they may be changed. A
        cancelled send that has written part of a frame aborts the connection, since half a frame cannot be unsent.

        Raises:
            ConnectionLost: The connection ended first.
            DeadlineExceeded: The peer took no byte for the idle timeout; the connection is aborted.
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
        """Send what is posted, then end the connection; idempotent."""

    def abort(self, error: Exception | None = None) -> None:
        """End the connection at once; ``error`` is what everybody who waits on it is told. Idempotent."""


class Listener(Protocol):
    """A bound address that accepts connections."""

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """The host and port of every socket it is bound to."""

    async def close(self) -> None:
        """Stop accepting; existing connections live on."""
