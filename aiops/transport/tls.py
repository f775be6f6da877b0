"""TLS between a connection and its socket: OpenSSL's engine on memory, the same on every loop.

The loops have layers of their own, which cannot do what loans need: told that "may write again" has to mean "the kernel
has taken everything" (a limit of 0), they ask to wait and never call again; and their close waits for the peer's, up to
half a minute. What lives here knows bytes and no frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from aiops.errors import AiopsError, ConnectFailed, Rejected
from aiops.transport.base import address
from aiops.transport.certificate import is_alert, objection, stranger, words
from aiops.wire.frame import TLS_ALERT

if TYPE_CHECKING:
    from aiops.transport.connection import TcpConnection

# Ciphertext taken from the socket at once; every connection has so much memory for it.
RECEIVE_BYTES = 128 * 1024

# A peer that reads nothing may make us owe it so many bytes of answers to its key updates.
OWED_BYTES = 1024 * 1024

# TLS records of a handshake, and of what went wrong with it.
_RECORDS = {0x15, 0x16}

_CUT = "the stream ended without TLS's goodbye"
_CUT_AT_ONCE = "it ended at once, as it does where our certificate is not accepted"


class TlsStream(asyncio.Transport, asyncio.BufferedProtocol):
    """The transport of a connection, and the protocol of the socket's own transport beneath.

    The connection is made when the handshake is over, and not at all if that fails. All that is written is encrypted
    before ``write`` returns: memory on loan is never kept.

    Args:
        make: Makes the connection above.
        context: Certificates and rules.
        server_hostname: Name or address that the server's certificate must be for; None on the server's side.
        timeout_s: How long the handshake may take.
        done: Told once how the handshake ended, in words that go behind the peer's name; None is well.
    """

    def __init__(
        self,
        make: Callable[[], TcpConnection],
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        timeout_s: float,
        done: Callable[[AiopsError | None], None],
    ) -> None:
        self._make = make
        self._above: TcpConnection
        self._beneath: asyncio.Transport
        self.peer = "unknown peer"
        self._loop = asyncio.get_running_loop()
        self._serves = server_hostname is None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, self._serves, server_hostname)
        self._room = memoryview(bytearray(RECEIVE_BYTES))
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._done = done
        # How the handshake went, open, good or failed, and whether the link is over.
        self._made = self._failed = self._lost = False
        self._reading = True
        # Whether anything came in at all, and whether any of it was for the connection above.
        self._answered = self._heard = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._beneath = cast(asyncio.Transport, transport)
        self.peer = address(transport.get_extra_info("peername"))
        if self._failed:
            self._beneath.abort()
            return
        self._beneath.set_write_buffer_limits(high=0)
        self._timer = self._loop.call_later(self._timeout_s, self._too_late)
        self._shake()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Hand out memory for ciphertext."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Take ciphertext in."""
        if self._failed or self._lost:
            return
        if not self._answered and self._room[0] not in _RECORDS:
            if self._serves:
                # A worker of ours without TLS understands this.
                self._beneath.write(TLS_ALERT)
            self._refuse(stranger(bytes(self._room[: min(nbytes, 2)]), serves=self._serves))
            return
        self._answered = True
        self._incoming.write(self._room[:nbytes])
        if self._made:
            self._decrypt()
        else:
            self._shake()

    def eof_received(self) -> bool:
        """Tell a stream that was cut off from one that was ended."""
        if self._made:
            self._decrypt()
            self._break(self._unasked(OSError(_CUT)))
        else:
            self._refuse(ConnectFailed("it hung up during the TLS handshake"))
        return False

    def pause_writing(self) -> None:
        """Pass on that the kernel's buffer is full."""
        if self._made:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the kernel has taken everything."""
        if self._made:
            self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that it is over."""
        self._stop_timer()
        if self._made:
            self._break(self._unasked(exc))
        else:
            self._lost = True
            self._refuse(ConnectFailed("it hung up during the TLS handshake"))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._break(self._reason(error))
            return
        self._flush()

    def get_write_buffer_size(self) -> int:
        """Return how many encrypted bytes the kernel has yet to take."""
        return self._beneath.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say from when on the connection above is asked to wait."""
        self._beneath.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 -- as in asyncio
        """Return what is known about the socket, and ``"ssl_object"``."""
        if name == "ssl_object":
            return self._tls
        return self._beneath.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether it is closed or about to be."""
        return self._lost or self._beneath.is_closing()

    def is_reading(self) -> bool:
        """Return whether bytes are passed on."""
        return self._reading

    def pause_reading(self) -> None:
        """Pass nothing on for now."""
        self._reading = False
        self._beneath.pause_reading()

    def resume_reading(self) -> None:
        """Pass bytes on again, those that are here first."""
        self._reading = True
        self._beneath.resume_reading()
        self._loop.call_soon(self._decrypt)

    def close(self) -> None:
        """Say goodbye and close; the peer's goodbye is not waited for, frames say what is whole."""
        self._reading = False
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        self._beneath.close()

    def abort(self) -> None:
        """Close at once."""
        self._reading = False
        self._beneath.abort()

    def give_up(self) -> None:
        """Drop a peer that has not shaken hands."""
        if not (self._made or self._lost):
            self._failed = True
            if self._timer is not None:
                self._beneath.abort()

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            # What is left to be sent tells the peer why.
            self._flush()
            self._refuse(objection(error, serves=self._serves))
            return
        self._flush()
        self._stop_timer()
        self._above, self._made = self._make(), True
        self._above.connection_made(self)
        self._done(None)
        self._decrypt()

    def _decrypt(self) -> None:
        try:
            while self._reading and not self._lost:
                room = self._above.get_buffer(-1)
                n, ended = self._fill(room)
                if n:
                    self._heard = True
                    self._above.buffer_updated(n)
                if ended:
                    self._above.eof_received()
                if n < len(room):
                    break
        except ssl.SSLError as error:
            self._flush()
            self._break(self._reason(error))
        # The answers to the peer's key updates.
        if self._outgoing.pending and not self._lost:
            self._flush()
            if self.get_write_buffer_size() > OWED_BYTES:
                self._break(OSError("TLS failed: the peer does not read"))

    # Decrypt until memory or ciphertext runs out, a record of up to 16 KiB at a time; says also whether the peer has
    # said goodbye.
    def _fill(self, room: memoryview) -> tuple[int, bool]:
        tls, incoming, n, size = self._tls, self._incoming, 0, len(room)
        try:
            while n < size:
                got = tls.read(size - n, room[n:])
                if not got:
                    return n, True
                n += cast(int, got)
                # It would raise an exception otherwise, which costs as much as a small record.
                if not (incoming.pending or tls.pending()):
                    break
        except ssl.SSLWantReadError:
            pass
        return n, False

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._beneath.write(self._outgoing.read())

    # A connection that was made ends: with the reason, unless it has ended by itself.
    def _break(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self.abort()
            self._above.connection_lost(error)

    # With TLS 1.3 a client is through before the server has seen its certificate: the refusal comes later.
    def _reason(self, error: ssl.SSLError) -> Exception:
        if not (self._serves or self._heard) and is_alert(error):
            return Rejected(f"{self.peer} refuses our certificate: {words(error)}")
        return OSError(f"TLS failed, {words(error)}")

    # A refusal that got lost on its way leaves only that the server hung up.
    def _unasked(self, error: Exception | None) -> Exception | None:
        return error if self._serves or self._heard else OSError(_CUT_AT_ONCE)

    # The handshake has failed. A server stays for a while, so that its alert is read: what is sent to a closed socket
    # makes the kernel take back what the peer has not read yet.
    def _refuse(self, error: AiopsError) -> None:
        if self._failed:
            return
        self._failed = True
        self._done(error)
        if self._lost:
            return
        if isinstance(error, ConnectFailed):
            self._beneath.abort()
        elif self._serves:
            self._beneath.write_eof()
        else:
            self._beneath.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _too_late(self) -> None:
        self._refuse(ConnectFailed(f"no TLS handshake in {self._timeout_s:g} s"))
        if not self._lost:
            self._beneath.abort()
