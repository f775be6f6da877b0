"""The frame: 32 bytes of header, then the payload.

One ``struct.Struct`` and one table that documents it (``docs/wire.md`` is generated from here). What lives here knows
neither tensors nor connections.
"""

from __future__ import annotations

import enum
import struct
from typing import Protocol

import msgspec

from aiops.errors import (
    BadHandshake,
    FrameTooLarge,
    LocalProtocolError,
    RemoteProtocolError,
    VersionMismatch,
)

MAGIC = b"\xa1\xd5"
PROTOCOL = 1
HEADER = struct.Struct("<2sBBBBHIIQQ")
HEADER_BYTES = HEADER.size

# Control payloads are small by design; a larger one is a peer that is not ours.
CONTROL_BYTES = 64 * 1024

# What somebody hears who speaks TLS to a port without it, or the reverse: a TLS record with the alert "unexpected
# message", which means the same to either of them.
TLS_ALERT = bytes((0x15, 0x03, 0x01, 0, 2, 2, 10))

# 10^5 tensors with names of 60 characters make a table of about 9 MB.
TABLE_BYTES = 64 * 1024 * 1024

FIELDS = (
    ("magic", 2, "`a1 d5`: neither text nor a TLS record"),
    ("protocol", 1, "protocol version, now 1; another one ends the connection"),
    ("kind", 1, "what the frame means, see below"),
    ("codec", 1, "wire id of the codec of a TENSOR payload, else 0"),
    ("dtype", 1, "element type of a TENSOR payload's values, else 0"),
    ("flags", 2, "reserved, 0"),
    ("request", 4, "joins a request, its TENSOR frames and its answer; 0 where there is no answer"),
    ("key", 4, "bucket of a TENSOR frame, else 0"),
    ("version", 8, "version the content belongs to: a push's base, a model's version"),
    ("size", 8, "payload bytes that follow"),
)


class Kind(enum.IntEnum):
    """What a frame means. The number is on the wire and never reused."""

    HELLO = 1
    WELCOME = 2
    REJECT = 3
    PING = 4
    PONG = 5
    INIT = 6
    TABLE = 7
    SEED = 8
    PUSH = 9
    PULL = 10
    TENSOR = 11
    ACK = 12
    MODEL = 13
    REFUSE = 14
    LEAVE = 15
    BYE = 16
    STATUS = 17
    REPORT = 18
    QUERY = 19
    ADVICE = 20
    CHOOSE = 21
    CHOSEN = 22
    SHARE = 23
    SHARED = 24


_KINDS = {int(kind): kind for kind in Kind}

# Two control kinds describe every tensor of a model; all others are small. Of a TENSOR the receiver sets the limit.
_LIMITS = {
    **dict.fromkeys(Kind, CONTROL_BYTES),
    Kind.INIT: TABLE_BYTES,
    Kind.TABLE: TABLE_BYTES,
    Kind.TENSOR: 2**64,
}


# Eight of these are made in a small round: a struct takes 0.1 us, a named tuple 0.5.
class Header(msgspec.Struct, frozen=True, gc=False):
    """The fields of a frame header that vary; see :data:`FIELDS`."""

    kind: Kind
    codec: int
    dtype: int
    request: int
    key: int
    version: int
    size: int

    def pack(self) -> bytes:
        """Return the 32 bytes of this header."""
        return header_bytes(
            self.kind, self.codec, self.dtype, self.request, self.key, self.version, self.size
        )


class Loan(Protocol):
    """Memory that is another's until it is released."""

    def release(self) -> None:
        """End the loan."""


class Frame(msgspec.Struct):
    """One received frame.

    Attributes:
        header: Its fields.
        payload: Its bytes, format 'B'. Where ``loan`` is set they live in it and are good while the loan is.
        loan: The memory under ``payload``; whoever takes the frame releases it. None where the payload is plain
            bytes or landed in memory of the receiver's own.
    """

    header: Header
    payload: memoryview
    loan: Loan | None

    def release(self) -> None:
        """End the loan, if there is one."""
        if self.loan is not None:
            self.loan.release()
            self.loan = None


def header_bytes(
    kind: Kind, codec: int, dtype: int, request: int, key: int, version: int, size: int
) -> bytes:
    """Return the 32 bytes of a header with these fields, see :data:`FIELDS`, without making a :class:`Header`."""
    return HEADER.pack(MAGIC, PROTOCOL, kind, codec, dtype, 0, request, key, version, size)


def frame_bytes(kind: Kind, payload: bytes = b"", *, request: int = 0, version: int = 0) -> bytes:
    """Return a whole control frame: header and payload joined, to be sent in one piece.

    Raises:
        LocalProtocolError: The payload is larger than the peer will take.
    """
    size, limit = len(payload), _LIMITS[kind]
    if size > limit:
        raise LocalProtocolError(f"{kind.name} frame of {size} payload bytes, the limit is {limit}")
    return header_bytes(kind, 0, 0, request, 0, version, size) + payload


def check_magic(head: bytes) -> None:
    """Refuse a stream whose first two bytes are not ours, naming what they look like.

    Raises:
        BadHandshake: The bytes are not the start of a frame.
    """
    if head == MAGIC:
        return
    tls = head[:2] == b"\x16\x03"
    if tls:
        hint = ", this looks like TLS on a plain port"
    elif head[:2] == TLS_ALERT[:2]:
        hint = ", this looks like a port with TLS, whose url begins with aiops+tls://"
    elif head.isalpha() and head.isupper():
        hint = ", this looks like an HTTP request"
    else:
        hint = ""
    raise BadHandshake(f"stream starts with {head!r}, a frame starts with {MAGIC!r}{hint}", tls=tls)


def parse_header(data: memoryview, max_frame_bytes: int, at: int = 0) -> Header:
    """Parse the 32 bytes ``at`` a position; what can be checked without state is checked before memory is taken.

    Raises:
        BadHandshake: Not our magic.
        VersionMismatch: Another protocol version.
        RemoteProtocolError: A kind that does not exist, or a flag that does not.
        FrameTooLarge: More payload than ``max_frame_bytes`` (or the smaller limit of a control frame).
    """
    magic, protocol, number, codec, dtype, flags, request, key, version, size = HEADER.unpack_from(
        data, at
    )
    if magic != MAGIC:
        check_magic(magic)
    if protocol != PROTOCOL:
        raise VersionMismatch(protocol, PROTOCOL)
    kind = _KINDS.get(number)
    if kind is None:
        raise RemoteProtocolError(f"frame kind {number} does not exist, the last is {max(_KINDS)}")
    if flags:
        raise RemoteProtocolError(f"{kind.name} frame has flags {flags:#06x}, none are defined")
    limit = _LIMITS[kind]
    if size > limit or size > max_frame_bytes:
        raise FrameTooLarge(size, min(limit, max_frame_bytes))
    return Header(kind, codec, dtype, request, key, version, size)
