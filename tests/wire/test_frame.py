"""The 32 bytes of a header: what they say, and what is refused before memory is taken."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops.errors import (
    BadHandshake,
    FrameTooLarge,
    LocalProtocolError,
    RemoteProtocolError,
    VersionMismatch,
)
from aiops.wire.frame import (
    CONTROL_BYTES,
    FIELDS,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PROTOCOL,
    TABLE_BYTES,
    Header,
    Kind,
    frame_bytes,
    parse_header,
)

U8, U32, U64 = st.integers(0, 2**8 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
LIMIT = 1 << 40
BYTES_OF = {"B": 1, "H": 2, "I": 4, "Q": 8}


def packed(**changes):
    fields = (
        dict(zip(Header.__struct_fields__, (Kind.TENSOR, 1, 2, 3, 4, 5, 6), strict=True)) | changes
    )
    return Header(**fields).pack()


def parsed(data, limit=LIMIT):
    return parse_header(memoryview(data), limit)


def test_the_documented_fields_are_those_of_the_struct_and_fill_32_bytes():
    formats = re.findall(r"(\d*)([a-zA-Z])", HEADER.format.removeprefix("<"))
    sizes = [int(count) if kind == "s" else BYTES_OF[kind] for count, kind in formats]
    assert [size for _, size, _ in FIELDS] == sizes
    assert sum(sizes) == HEADER_BYTES == HEADER.size == 32
    varying = [name for name, _, _ in FIELDS if name not in ("magic", "protocol", "flags")]
    assert varying == list(Header.__struct_fields__)


def test_the_bytes_on_the_wire_do_not_change():
    header = Header(Kind.TENSOR, 2, 3, 0x04050607, 0x08090A0B, 0x0C, 0x100000002)
    assert header.pack().hex(" ") == (
        "a1 d5 01 0b 02 03 00 00 07 06 05 04 0b 0a 09 08 "
        "0c 00 00 00 00 00 00 00 02 00 00 00 01 00 00 00"
    )
    assert {kind.name: int(kind) for kind in Kind} == {
        "HELLO": 1,
        "WELCOME": 2,
        "REJECT": 3,
        "PING": 4,
        "PONG": 5,
        "INIT": 6,
        "TABLE": 7,
        "SEED": 8,
        "PUSH": 9,
        "PULL": 10,
        "TENSOR": 11,
        "ACK": 12,
        "MODEL": 13,
        "REFUSE": 14,
        "LEAVE": 15,
        "BYE": 16,
        "STATUS": 17,
        "REPORT": 18,
        "QUERY": 19,
        "ADVICE": 20,
        "CHOOSE": 21,
        "CHOSEN": 22,
        "SHARE": 23,
        "SHARED": 24,
    }


@given(st.builds(Header, st.sampled_from(Kind), U8, U8, U32, U32, U64, st.integers(0, 60000)))
def test_every_field_comes_back(header):
    assert parsed(header.pack()) == header


@given(U64)
def test_a_tensor_may_be_as_large_as_the_limit_and_no_larger(size):
    data = packed(size=size)
    if size <= LIMIT:
        assert parsed(data).size == size
    else:
        with pytest.raises(FrameTooLarge) as caught:
            parsed(data)
        assert (caught.value.size_bytes, caught.value.limit_bytes) == (size, LIMIT)


@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1])
def test_no_length_wraps_around(size):
    assert parsed(packed(size=size), 2**64 - 1).size == size
    with pytest.raises(FrameTooLarge, match=f"frame of {size} payload bytes, the limit is 1000"):
        parsed(packed(size=size), 1000)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.TENSOR])
def test_a_control_frame_has_a_limit_of_its_own(kind):
    limit = TABLE_BYTES if kind in (Kind.INIT, Kind.TABLE) else CONTROL_BYTES
    assert parsed(packed(kind=kind, size=limit)).size == limit
    with pytest.raises(FrameTooLarge, match=f"the limit is {limit}"):
        parsed(packed(kind=kind, size=limit + 1))
    with pytest.raises(FrameTooLarge, match="the limit is 10"):
        parsed(packed(kind=kind, size=11), 10)
    assert len(frame_bytes(kind, bytes(limit))) == HEADER_BYTES + limit
    with pytest.raises(LocalProtocolError, match=f"{kind.name} frame of {limit + 1} payload bytes"):
        frame_bytes(kind, bytes(limit + 1))


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        pytest.param(b"GET / HTTP/1.1", "looks like an HTTP request", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00", "looks like TLS on a plain port", id="tls"),
        pytest.param(
            b"\x15\x03\x01\x00\x02",
            "a port with TLS, whose url begins with aiops+tls:",
            id="tls alert",
        ),
        pytest.param(b"\x00\x00", r"starts with b'\x00\x00'", id="zeros"),
        pytest.param(MAGIC[::-1], "a frame starts with", id="other end first"),
    ],
)
def test_bytes_of_a_stranger_are_named(start, hint):
    with pytest.raises(BadHandshake) as caught:
        parsed(start.ljust(HEADER_BYTES, b"\x00"))
    assert hint in str(caught.value)


def test_another_protocol_version_is_named_before_anything_else_is_looked_at():
    data = bytearray(packed(size=2**63))
    data[2], data[3] = PROTOCOL + 1, 255
    with pytest.raises(VersionMismatch, match="peer speaks protocol 2, this library speaks 1"):
        parsed(data)


@pytest.mark.parametrize("number", [0, 25, 255])
def test_a_kind_that_does_not_exist_is_refused(number):
    data = bytearray(packed())
    data[3] = number
    with pytest.raises(RemoteProtocolError, match=f"kind {number} does not exist, the last is 24"):
        parsed(data)


def test_a_flag_that_nobody_defined_is_refused():
    data = bytearray(packed())
    data[6] = 4
    with pytest.raises(RemoteProtocolError, match="TENSOR frame has flags 0x0004"):
        parsed(data)


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_no_32_bytes_do_worse_than_a_protocol_error(data):
    for start in (b"", MAGIC, MAGIC + bytes([PROTOCOL])):
        try:
            header = parsed(start + data[len(start) :])
        except RemoteProtocolError:
            continue
        assert header.size <= LIMIT
