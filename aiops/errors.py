"""Every exception aiops raises on purpose, in one tree.

The second level answers "what should the caller do?"::

    AiopsError
    |- ConfigError (ValueError)         fix the setting; raised before any socket opens
    |- ProtocolError                    the two ends disagree about bytes; the connection is dropped
    |   |- LocalProtocolError           we were about to send something illegal: our bug
    |   `- RemoteProtocolError          the peer did: FrameTooLarge, BadHandshake, VersionMismatch
    |- TransportError (OSError)         the link failed, reconnecting may help: ConnectFailed, ConnectionLost
    |- DeadlineExceeded (TimeoutError)  which wait, on whom, how long, how many bytes moved
    |- Rejected                         token, certificate or protocol version refused; do not retry
    |- BadRecords                       a stream's records cannot be read: put the producer or the decoding right
    `- Refused                          understood and declined, the connection stays good: StalePush, UnknownKey,
                                        ShapeMismatch, NotFinite, ZeroWeight, NotMember, Busy
"""

from __future__ import annotations


class AiopsError(Exception):
    """Base class: ``except AiopsError`` catches all of ours and nothing else."""


class ConfigError(AiopsError, ValueError):
    """A setting is wrong; raised before any socket opens."""


class ProtocolError(AiopsError):
    """The two ends disagree about bytes; the connection is dropped."""


class LocalProtocolError(ProtocolError):
    """We were about to send something illegal: a bug of ours."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something illegal; the connection cannot be trusted further."""


class BadHandshake(RemoteProtocolError):
    """The peer's first bytes are not a greeting of ours.

    Attributes:
        tls: Whether they are one of TLS.
    """

    def __init__(self, message: str, *, tls: bool = False) -> None:
        super().__init__(message)
        self.tls = tls


class FrameTooLarge(RemoteProtocolError):
    """A frame announces more payload than we accept.

    Attributes:
        size_bytes: Payload size that the header announces.
        limit_bytes: The largest payload this end takes.
    """

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"frame of {size_bytes} payload bytes, the limit is {limit_bytes}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class VersionMismatch(RemoteProtocolError):
    """The peer speaks another major protocol version.

    Attributes:
        theirs: Protocol version of the peer.
        ours: Protocol version of this library.
    """

    def __init__(self, theirs: int, ours: int) -> None:
        super().__init__(f"peer speaks protocol {theirs}, this library speaks {ours}")
        self.theirs = theirs
        self.ours = ours


class TransportError(AiopsError, OSError):
    """The link failed; reconnecting may help."""


class ConnectFailed(TransportError):
    """No connection could be made."""


class ConnectionLost(TransportError):
    """An established connection ended before its work was done."""


class DeadlineExceeded(AiopsError, TimeoutError):
    """A wait made no progress for too long.

    Attributes:
        wait: What was waited for, in a word or two: "sending".
        peer: Who was waited for.
        waited_s: How long nothing moved, in seconds.
        moved_bytes: Bytes received from the peer so far.
    """

    def __init__(self, wait: str, *, peer: str, waited_s: float, moved_bytes: int = 0) -> None:
        super().__init__(
            f"{wait} made no progress for {waited_s:.3g} s "
            f"(peer {peer}, {moved_bytes} bytes received from it)"
        )
        self.wait = wait
        self.peer = peer
        self.waited_s = waited_s
        self.moved_bytes = moved_bytes


class Rejected(AiopsError):
    """One end turned the other away for good (token, certificate, version): do not retry."""


class BadRecords(AiopsError):
    """Too many of a stream's last records could not be decoded.

    Attributes:
        n_bad: How many of them.
        n_records: Out of how many.
        limit: The largest share that is put up with.
    """

    def __init__(self, name: str, n_bad: int, n_records: int, limit: float, fault: str) -> None:
        super().__init__(
            f"{n_bad} of the last {n_records} records of {name} could not be decoded, "
            f"max_bad_share is {limit:g}; the last: {fault}"
        )
        self.n_bad = n_bad
        self.n_records = n_records
        self.limit = limit


class Refused(AiopsError):
    """The server understood the request and declined it; the connection stays usable."""

    code: int = 0  # on the wire; 0 stands for "no subclass that this library knows"


class StalePush(Refused):
    """A push started from a version too old to be merged.

    Attributes:
        staleness: Shard version minus the push's base, in rounds.
        bound: The largest staleness the server accepts, in rounds.
    """

    code = 1

    def __init__(self, staleness: int, bound: int) -> None:
        super().__init__(f"push is {staleness} rounds stale, the bound is {bound}")
        self.staleness = staleness
        self.bound = bound


class UnknownKey(Refused):
    """A request names a key that the agreed table does not hold, or the table is not agreed yet."""

    code = 2


class ShapeMismatch(Refused):
    """A tensor's shape, dtype or payload size differs from the agreed table."""

    code = 3


class NotFinite(Refused):
    """An update holds NaN or infinity; the message names the tensor and the position."""

    code = 4


class ZeroWeight(Refused):
    """Every push of a round weighs nothing, so there is nothing to merge."""

    code = 5


class NotMember(Refused):
    """The worker's lease ended (or it never joined): join again, then resend."""

    code = 6


class Busy(Refused):
    """The server is at a limit of its own (members, memory); try again later."""

    code = 7


# Wire code -> class, for the end that receives a refusal.
REFUSALS: dict[int, type[Refused]] = {
    kind.code: kind
    for kind in (
        Refused,
        StalePush,
        UnknownKey,
        ShapeMismatch,
        NotFinite,
        ZeroWeight,
        NotMember,
        Busy,
    )
}
