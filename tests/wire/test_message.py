"""Control messages: there and back, older and newer versions, and bytes that are none."""

import contextlib
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops.errors import LocalProtocolError, RemoteProtocolError
from aiops.types import TensorSpec
from aiops.wire.frame import CONTROL_BYTES, Kind
from aiops.wire.message import (
    TYPES,
    Ack,
    Advice,
    Agreed,
    Bye,
    Choose,
    Chosen,
    Hello,
    Init,
    Message,
    Model,
    Ping,
    Policy,
    Pull,
    Push,
    Query,
    Refuse,
    Reject,
    Report,
    Seed,
    Share,
    Shared,
    Welcome,
    decode,
    encode,
)
from aiops.wire.table import BucketEntry, Table, TensorEntry

count = st.integers(0, 2**63 - 1)
text = st.text(max_size=40)
number = st.floats(allow_nan=False)
shape = st.lists(st.integers(0, 2**40), max_size=4).map(tuple)
spec = st.builds(TensorSpec, text, shape, st.sampled_from(["float32", "bfloat16"]))
entry = st.builds(TensorEntry, text, shape, text, count, count)
bucket = st.builds(BucketEntry, count, count, count)
table = st.builds(
    Table, st.lists(entry, max_size=4).map(tuple), st.lists(bucket, max_size=4).map(tuple)
)
policy = st.builds(
    Policy,
    st.booleans(),
    count,
    st.none() | count,
    text,
    text,
    number,
    number,
    text,
    drift=text,
    proximal=number,
    query=st.booleans(),
)

MESSAGES = {
    Kind.HELLO: st.builds(Hello, count, text, count, text, count, st.none() | text, text),
    Kind.WELCOME: st.builds(
        Welcome, count, text, count, count, number, number, number, policy, count
    ),
    Kind.REJECT: st.builds(Reject, text, st.booleans()),
    Kind.INIT: st.builds(Init, st.lists(spec, max_size=4).map(tuple)),
    Kind.TABLE: st.builds(Agreed, table, st.booleans()),
    Kind.SEED: st.builds(Seed, count),
    Kind.PUSH: st.builds(
        Push, count, count, count, count, count, number, count, st.booleans(), number, number
    ),
    Kind.ACK: st.builds(Ack, count, count, st.booleans()),
    Kind.MODEL: st.builds(
        Model, count, count, count, count, st.booleans(), count, st.none() | count
    ),
    Kind.REFUSE: st.builds(
        Refuse, count, text, st.lists(st.integers(-9, 9), max_size=3).map(tuple)
    ),
    Kind.BYE: st.builds(Bye, text),
    Kind.REPORT: st.builds(Report, text),
    Kind.QUERY: st.builds(Query, count, count, number, number),
    Kind.ADVICE: st.builds(Advice, count, st.none() | count, number),
    Kind.CHOOSE: st.builds(Choose, st.booleans(), count),
    Kind.CHOSEN: st.builds(Chosen, count, st.booleans(), count),
    Kind.SHARE: st.builds(Share, count, count),
    Kind.SHARED: st.builds(Shared, count, count, st.booleans(), count),
    **{
        kind: st.just(TYPES[kind]())
        for kind in (Kind.PING, Kind.PONG, Kind.PULL, Kind.LEAVE, Kind.STATUS)
    },
}


def raw(*values):
    return memoryview(msgspec.msgpack.encode(values))


def test_every_kind_but_tensor_has_a_message():
    assert set(TYPES) == set(MESSAGES) == set(Kind) - {Kind.TENSOR}


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.name)
@given(data=st.data())
def test_every_message_comes_back(kind, data):
    message = data.draw(MESSAGES[kind])
    assert decode(kind, memoryview(encode(kind, message))) == message


def test_a_loss_that_is_no_number_comes_back_as_none():
    push = Push(0, 0, 0, 1, 1, math.nan, 0, False)
    assert math.isnan(decode(Kind.PUSH, memoryview(encode(Kind.PUSH, push))).loss)


@pytest.mark.parametrize(
    ("kind", "message", "sentence"),
    [
        pytest.param(Kind.PING, Pull(), "PING carries Ping, not Pull", id="another's message"),
        pytest.param(Kind.TENSOR, Ping(), "TENSOR carries raw bytes, not Ping", id="no message"),
    ],
)
def test_a_message_under_the_wrong_kind_is_our_own_mistake(kind, message, sentence):
    with pytest.raises(LocalProtocolError, match=sentence):
        encode(kind, message)


def test_fields_that_a_newer_version_appends_are_passed_over():
    assert decode(Kind.ACK, raw(7, 1, True, "new", [1, {"a": None}])) == Ack(7, 1, True)


def test_fields_that_an_older_version_lacks_take_their_defaults():
    assert decode(Kind.HELLO, raw(0, "1.0", 0, "w", 1)) == Hello(0, "1.0", 0, "w", 1, None, "")
    old = (False, 1, 1, "dense", "reset", 0.5, 0.5, "fixed")
    welcome = decode(Kind.WELCOME, raw(0, "1.0", 0, 3, 1.0, 1.0, 1.0, old, 0))
    assert welcome.policy == Policy(*old, query=False)


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        pytest.param(Kind.ACK, b"", "truncated", id="empty"),
        pytest.param(Kind.ACK, b"\xc1", "malformed", id="not MessagePack"),
        pytest.param(Kind.ACK, raw(7), "at least length 2, got 1", id="a field is missing"),
        pytest.param(Kind.ACK, raw(7, "x"), "Expected `int`, got `str`", id="wrong type"),
        pytest.param(Kind.ACK, raw(7, -1), "`int` >= 0", id="negative"),
        pytest.param(Kind.ACK, raw(7, 2**63), "<= 9223372036854775807", id="above 63 bits"),
        pytest.param(Kind.ACK, msgspec.msgpack.encode({"version": 1}), "`array`", id="a map"),
        pytest.param(Kind.ACK, bytes(raw(7, 1)) + b"\x00", "trailing", id="more behind it"),
        pytest.param(Kind.BYE, raw("x" * 4097), "length <= 4096", id="too long a text"),
        pytest.param(Kind.REPORT, raw("x" * 60001), "length <= 60000", id="too long a report"),
        pytest.param(Kind.BYE, b"\x91\xa2\xff\xfe", "UTF-8", id="no text"),
        pytest.param(Kind.BYE, b"\x91\xdb\xff\xff\xff\xff", "truncated", id="4 GiB text"),
        pytest.param(Kind.INIT, b"\x91\xdd\xff\xff\xff\xff", "truncated", id="2^32 tensors"),
        pytest.param(Kind.BYE, b"\x92\xa0" + b"\x91" * 60000, "recursion", id="nested lists"),
        pytest.param(Kind.PULL, b"\x91" + b"\x81" * 60000, "recursion", id="nested maps"),
    ],
)
def test_a_payload_that_is_not_the_message_is_the_peers_mistake(kind, payload, reason):
    with pytest.raises(RemoteProtocolError) as caught:
        decode(kind, memoryview(payload))
    assert f"{kind.name} frame does not hold its message: " in str(caught.value)
    assert reason in str(caught.value)


@given(st.sampled_from(list(TYPES)), st.binary(max_size=200))
def test_no_bytes_do_worse_than_a_protocol_error(kind, payload):
    try:
        message = decode(kind, memoryview(payload))
    except RemoteProtocolError:
        return
    assert isinstance(message, Message)


@given(st.sampled_from(list(TYPES)), st.data())
def test_no_change_of_one_byte_does_worse_than_a_protocol_error(kind, data):
    payload = bytearray(encode(kind, data.draw(MESSAGES[kind])))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RemoteProtocolError):
        decode(kind, memoryview(payload))


def test_the_longest_texts_of_a_greeting_fit_into_a_control_frame():
    long = "ä" * 4096
    hello = Hello(2**63 - 1, long, 2**63 - 1, long, 2**63 - 1, long, long)
    assert len(encode(Kind.HELLO, hello)) <= CONTROL_BYTES
