"""Sharing as its worker sees it: what it says, and which answers it does not believe."""

import msgspec
import numpy as np
import pytest

from aiops.errors import Busy, RemoteProtocolError
from aiops.wire.frame import HEADER_BYTES, Frame, Header, Kind, parse_header
from aiops.wire.message import Ack, Hello, Refuse, Share, Shared, Welcome, decode, encode
from aiops.wire.record import Records, pack_records, unpack_records
from aiops.wire.session import Event, Role, Session
from aiops.worker.sharer import ShareRequest
from tests.worker.kit import POLICY

OWN = Records.of(np.arange(6, dtype=np.float32).reshape(3, 2), [4, 5, 6])


@pytest.fixture
def session():
    made = Session(Role.WORKER)
    made.send(Kind.HELLO, Hello(0, "", 0, "a", 1))
    policy = msgspec.structs.replace(POLICY, injection="random:1,1")
    data = encode(Kind.WELCOME, Welcome(0, "", 0, 0, 1.0, 1.0, 1.0, policy, 0))
    made.receive(Frame(Header(Kind.WELCOME, 0, 0, 0, 0, 0, len(data)), memoryview(data), None))
    return made


def answer(*parts):
    frames = [
        Frame(Header(Kind.TENSOR, 0, 0, 1, key, 0, len(data)), memoryview(data), None)
        for key, data in enumerate(parts)
    ]
    return Event(Kind.SHARED, 1, Shared(3, 1, gives=False, parts=len(parts)), frames)


def test_a_question_is_a_frame_and_a_gift_is_one_more(session):
    ((head, _),) = ShareRequest(0, None).frames(session, 1)
    assert decode(Kind.SHARE, memoryview(head)[HEADER_BYTES:]) == Share(0, 0)
    request = ShareRequest(2, OWN)
    (head, _), (tensor, views) = request.frames(session, 1)
    assert decode(Kind.SHARE, memoryview(head)[HEADER_BYTES:]) == Share(2, 1)
    header = parse_header(memoryview(tensor), 1 << 20)
    assert (header.key, header.codec, header.dtype, header.size) == (0, 0, 0, request.gave_bytes)
    np.testing.assert_array_equal(unpack_records(views[0]).samples, OWN.samples)


def test_what_comes_is_taken_and_counted(session):
    request, data = ShareRequest(2, OWN), pack_records(OWN.first(1)).tobytes()
    assert request.answered(session, answer(data, data)) is None
    told, gifts = request.ticket._result
    assert (told.round, [gift.labels.tolist() for gift in gifts]) == (3, [[4], [4]])
    assert request.took_bytes == 2 * len(data)
    assert request.ticket.bytes == request.gave_bytes + request.took_bytes


def test_what_are_no_records_ends_the_connection_and_the_call(session):
    request = ShareRequest(2, None)
    with pytest.raises(RemoteProtocolError, match="what another worker gave: records have 3 bytes"):
        request.answered(session, answer(b"abc"))
    assert isinstance(request.ticket.exception(), RemoteProtocolError)


def test_a_refusal_is_raised_and_an_answer_of_another_kind_is_none(session):
    request = ShareRequest(2, None)
    request.answered(session, Event(Kind.REFUSE, 1, Refuse(7, "full")))
    assert isinstance(request.ticket.exception(), Busy)
    with pytest.raises(RemoteProtocolError, match="ACK does not answer request 1"):
        ShareRequest(2, None).answered(session, Event(Kind.ACK, 1, Ack(1, 0)))
