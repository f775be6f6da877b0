"""Requests: which frames they make, where answers land, and what an answer does to the ticket."""

import numpy as np
import pytest

from aiops.codec.dense import dense
from aiops.codec.topk import topk
from aiops.config import parse_codec
from aiops.errors import (
    REFUSALS,
    NotFinite,
    Refused,
    RemoteProtocolError,
    ShapeMismatch,
    StalePush,
    UnknownKey,
)
from aiops.types import DTYPE_IDS, TensorSpec
from aiops.wire.frame import HEADER_BYTES, Frame, Header, Kind, parse_header
from aiops.wire.message import (
    Ack,
    Agreed,
    Hello,
    Init,
    Model,
    Policy,
    Push,
    Refuse,
    Report,
    Seed,
    Welcome,
    decode,
    encode,
)
from aiops.wire.session import Event, Role, Session, State
from aiops.wire.table import BucketEntry, Table, TensorEntry
from aiops.worker.answer import as_bytes, refusal
from aiops.worker.request import InitRequest, PullRequest, PushRequest, StatusRequest, first_key
from aiops.worker.ticket import Ticket

TABLE = Table(
    (TensorEntry("w", (4,), "float32", 0, 4),), (BucketEntry(0, 3, 0), BucketEntry(3, 4, 1))
)
FLAT = np.arange(4, dtype=np.float32)


@pytest.fixture
def session():
    """A worker's session that has been welcomed."""
    session = Session(Role.WORKER)
    session.send(Kind.HELLO, Hello(0, "", 0, "a", 1))
    policy = Policy(False, 1, None, "dense", "reset", 0.5, 0.5, "fixed")
    welcome = encode(Kind.WELCOME, Welcome(0, "", 0, 0, 1.0, 1.0, 1.0, policy, 0))
    header = Header(Kind.WELCOME, 0, 0, 0, 0, 0, len(welcome))
    session.receive(Frame(header, memoryview(welcome), None))
    return session


def headers(frames):
    return [parse_header(memoryview(head[:HEADER_BYTES]), 1 << 20) for head, _ in frames]


def message(frame):
    head, _ = frame
    return decode(parse_header(memoryview(head[:HEADER_BYTES]), 1 << 20).kind, head[HEADER_BYTES:])


def push_of(request, *, want=True, codec=None, flat=FLAT, out=None):
    codec = codec or dense()
    payload = [codec.encode(flat[b.start : b.stop], None)[0] for b in TABLE.buckets]
    body = Push(9, 5, 1, 32, 2, 0.5, len(payload), want)
    return PushRequest(TABLE, body, payload, codec, out)


def model(request, version=6, *, parts=(0, 1), part_version=6):
    event = Event(Kind.MODEL, request, Model(version, 1, 3, len(parts), True, 2, 9))
    for key in parts:
        header = Header(Kind.TENSOR, 1, 1, request, key, part_version, 0)
        event.parts.append(Frame(header, memoryview(b""), None))
    return event


async def test_a_push_is_its_message_and_one_tensor_a_bucket(session):
    request = push_of(3)
    frames = request.frames(session, 3)
    assert [h.kind for h in headers(frames)] == [Kind.PUSH, Kind.TENSOR, Kind.TENSOR]
    assert {h.request for h in headers(frames)} == {3}
    assert [(h.key, h.size, h.codec, h.version) for h in headers(frames)[1:]] == [
        (0, 12, 1, 5),
        (1, 4, 1, 5),
    ]
    assert message(frames[0]) == request.message
    assert b"".join(view for _, views in frames[1:] for view in views) == FLAT.tobytes()
    assert request.ticket.bytes == 16


@pytest.mark.parametrize("codec", [dense(), topk(0.5), parse_codec("topk_int8:0.5")])
async def test_a_push_says_how_many_bytes_its_tensors_have_together(session, codec):
    frames = push_of(1, codec=codec).frames(session, 1)
    told = message(frames[0]).payload_bytes
    assert told == sum(h.size for h in headers(frames)[1:]) > 0


async def test_a_push_is_sent_from_the_callers_memory_and_again_if_need_be(session):
    flat = FLAT.copy()
    request = push_of(3, flat=flat)
    (_, (view,)), _ = request.frames(session, 3)[1:]
    assert np.shares_memory(np.frombuffer(view, np.float32), flat)
    again = request.frames(session, 4)
    assert [h.request for h in headers(again)] == [4, 4, 4]


async def test_a_coded_push_says_its_codec_and_its_type(session):
    frames = push_of(1, codec=topk(0.5)).frames(session, 1)
    assert [(h.codec, h.dtype, h.size) for h in headers(frames)[1:]] == [
        (4, DTYPE_IDS["float32"], 16),
        (4, DTYPE_IDS["float32"], 8),
    ]


async def test_a_model_lands_in_the_memory_that_was_given(session):
    out = np.zeros(4, np.float32)
    request = push_of(1, out=out)
    for key, data in ((1, FLAT[3:]), (0, FLAT[:3])):
        header = Header(Kind.TENSOR, 1, 1, 1, key, 6, data.nbytes)
        request.land(header)[:] = data.tobytes()
    assert request.answered(session, model(1)) is None
    snapshot = await request.ticket
    assert snapshot.flat is out
    np.testing.assert_array_equal(out, FLAT)
    assert (snapshot.version, snapshot.staleness, snapshot.n_merged) == (6, 1, 3)
    assert (snapshot.done, snapshot.min_steps, snapshot.max_steps) == (True, 2, 9)
    assert (request.ticket.version, request.ticket.staleness, request.ticket.bytes) == (6, 1, 32)


@pytest.mark.parametrize(
    "header",
    [
        Header(Kind.TENSOR, 1, 1, 1, 2, 6, 4),
        Header(Kind.TENSOR, 1, 1, 1, 0, 6, 16),
        Header(Kind.TENSOR, 1, 1, 1, 0, 6, 0),
        Header(Kind.TENSOR, 2, 2, 1, 0, 6, 12),
    ],
    ids=["an unknown key", "too large", "too small", "coded"],
)
async def test_a_model_of_another_shape_lands_nowhere(header):
    with pytest.raises(RemoteProtocolError, match="model"):
        PullRequest(TABLE, None).land(header)


async def test_a_push_that_wants_no_model_has_no_room_for_one_and_is_acknowledged(session):
    request = push_of(1, want=False)
    with pytest.raises(RemoteProtocolError):
        request.land(Header(Kind.TENSOR, 1, 1, 1, 0, 6, 12))
    assert request.answered(session, Event(Kind.ACK, 1, Ack(7, 2))) is None
    snapshot = await request.ticket
    assert (snapshot.version, request.ticket.version, request.ticket.staleness) == (7, 7, 2)


@pytest.mark.parametrize(
    "event",
    [model(1, parts=(0,)), model(1, part_version=5)],
    ids=["with a part missing", "with a part of another version"],
)
async def test_a_torn_model_is_never_given_out(session, event):
    request = PullRequest(TABLE, None)
    with pytest.raises(RemoteProtocolError, match="model of version 6"):
        request.answered(session, event)
    with pytest.raises(RemoteProtocolError, match="model of version 6"):
        await request.ticket


@pytest.mark.parametrize(
    "request_of", [lambda: PullRequest(TABLE, None), lambda: push_of(1), StatusRequest]
)
async def test_an_answer_of_another_kind_ends_the_connection(session, request_of):
    request = request_of()
    with pytest.raises(RemoteProtocolError, match="does not answer"):
        request.answered(session, Event(Kind.ACK, 1, Ack(7, 2)))


async def test_a_report_is_its_text_and_has_no_tensors(session):
    request = StatusRequest()
    with pytest.raises(RemoteProtocolError):
        request.land(Header(Kind.TENSOR, 1, 1, 1, 0, 6, 12))
    request.answered(session, Event(Kind.REPORT, 1, Report("{}")))
    assert await request.ticket == "{}"


def filled(table, flat):
    flat[:] = FLAT


async def test_who_is_asked_for_the_first_parameters_seeds_them(session):
    request = InitRequest((TensorSpec("w", (4,), "float32"),), filled)
    (frame,) = request.frames(session, 1)
    assert message(frame) == Init((TensorSpec("w", (4,), "float32"),))
    frames = request.answered(session, Event(Kind.TABLE, 1, Agreed(TABLE, seed=True)))
    assert message(frames[0]) == Seed(2)
    assert b"".join(view for _, views in frames[1:] for view in views) == FLAT.tobytes()
    assert request.answered(session, Event(Kind.ACK, 1, Ack(0, 0))) is None
    snapshot = await request.ticket
    np.testing.assert_array_equal(snapshot.flat, FLAT)
    assert (snapshot.version, request.table) == (0, TABLE)


async def test_who_is_not_asked_receives_the_model(session):
    request = InitRequest((), filled)
    assert request.answered(session, Event(Kind.TABLE, 1, Agreed(TABLE, seed=False))) == []
    request.land(Header(Kind.TENSOR, 1, 1, 1, 0, 6, 12))[:] = FLAT[:3].tobytes()
    request.land(Header(Kind.TENSOR, 1, 1, 1, 1, 6, 4))[:] = FLAT[3:].tobytes()
    assert request.answered(session, model(1)) is None
    np.testing.assert_array_equal((await request.ticket).flat, FLAT)


async def test_nothing_lands_before_the_table_is_known(session):
    request = InitRequest((), filled)
    with pytest.raises(RemoteProtocolError, match="before its table"):
        request.land(Header(Kind.TENSOR, 1, 1, 1, 0, 6, 12))
    for body, kind in ((Ack(0, 0), Kind.ACK), (Model(1, 0, 0, 0), Kind.MODEL)):
        with pytest.raises(RemoteProtocolError, match="does not answer"):
            request.answered(session, Event(kind, 1, body))


@pytest.mark.parametrize("code", REFUSALS)
async def test_a_refusal_arrives_as_the_exception_it_was(session, code):
    kind = REFUSALS[code]
    error = StalePush(7, 2) if kind is StalePush else kind("the words")
    args = (7, 2) if kind is StalePush else ()
    request = push_of(1)
    request.answered(session, Event(Kind.REFUSE, 1, Refuse(code, str(error), args)))
    with pytest.raises(kind) as raised:
        await request.ticket
    assert type(raised.value) is kind
    assert str(raised.value) == str(error)


def test_a_refusal_that_is_newer_than_this_library_is_a_plain_one():
    error = refusal(Refuse(99, "something new"))
    assert type(error) is Refused
    assert str(error) == "something new"
    assert {NotFinite, ShapeMismatch, UnknownKey} <= set(REFUSALS.values())


def test_bytes_are_a_view_of_any_contiguous_array():
    for array in (
        FLAT,
        FLAT.reshape(2, 2),
        np.zeros((0, 3)),
        np.array(1.5),
        np.arange(3, dtype="u4"),
    ):
        view = as_bytes(array)
        assert (view.format, view.nbytes, bytes(view)) == ("B", array.nbytes, array.tobytes())


def test_workers_begin_with_different_shards_and_go_through_each_in_the_same_order():
    tensors = (TensorEntry("w", (64,), "float32", 0, 64, False),)
    homes = [0, 0, 2, 2]
    table = Table(
        tensors,
        tuple(BucketEntry(16 * i, 16 * i + 16, home, False) for i, home in enumerate(homes)),
    )
    payload = [[np.zeros(16, np.float32)] for _ in homes]

    def order(first):
        session = Session(Role.WORKER)
        session.state = State.READY
        message = Push(1, 0, 1, 1, 1, 0.0, len(homes), True)
        begin = first_key(table, first)
        request = PushRequest(table, message, payload, dense(), None, ticket=Ticket(), first=begin)
        frames = request.frames(session, session.next_request())[1:]
        return [parse_header(memoryview(head), 1 << 20).key for head, _ in frames]

    # Shard 1 is empty: whoever would begin there begins at the front.
    assert [order(first) for first in range(4)] == [
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [2, 3, 0, 1],
        [0, 1, 2, 3],
    ]
