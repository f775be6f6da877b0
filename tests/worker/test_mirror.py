"""Answers that say what has changed: added to a copy of the newest model, whole and right, or not at all."""

import numpy as np
import pytest

from aiops.codec.dense import dense
from aiops.codec.topk import topk
from aiops.errors import RemoteProtocolError
from aiops.wire.frame import Frame, Header, Kind
from aiops.wire.message import Model, Push
from aiops.wire.session import Event, Role, Session
from aiops.wire.table import BucketEntry, Table, TensorEntry
from aiops.worker.mirror import Mirror
from aiops.worker.request import PullRequest, PushRequest

# Six values, and one averaged value in a bucket of its own.
TABLE = Table(
    (TensorEntry("w", (6,), "float32", 0, 6), TensorEntry("m", (1,), "float32", 6, 1, True)),
    (BucketEntry(0, 4, 0), BucketEntry(4, 6, 0), BucketEntry(6, 7, 0, True)),
)
FLAT = np.arange(7, dtype=np.float32)


@pytest.fixture
def mirror():
    made = Mirror(topk(0.5))
    made.take(5, FLAT)
    return made


def change(index, value):
    return np.array(index, np.uint32).tobytes() + np.array(value, np.float32).tobytes()


# What has changed since version 5: a value in each bucket, and the new statistic.
PARTS = {
    0: (4, change([1], [10])),
    1: (4, change([0], [-1])),
    2: (1, np.array([9], np.float32).tobytes()),
}
AFTER = [0, 11, 2, 3, 3, 5, 9]


def request_with(mirror, out=None):
    push = Push(1, 5, 1, 1, 1, 0.0, 0, True)
    out = np.empty(7, np.float32) if out is None else out
    return PushRequest(TABLE, push, [], dense(), out, mirror=mirror)


def answer(request, parts=PARTS, *, version=6, since=5):
    """Let the parts land as a connection does, and return the event of the whole message."""
    event = Event(Kind.MODEL, 1, Model(version, 0, 1, len(parts), since=since))
    for key, (codec, data) in parts.items():
        header = Header(Kind.TENSOR, codec, 1, 1, key, version, len(data))
        memory = request.land(header)
        memory[:] = data
        event.parts.append(Frame(header, memory, None))
    return event


async def test_what_has_changed_is_added_to_the_newest_model(mirror):
    out = np.empty(7, np.float32)
    request = request_with(mirror, out)
    assert request.answered(Session(Role.WORKER), answer(request)) is None
    snapshot = await request.ticket
    assert snapshot.flat is out
    assert (out.tolist(), snapshot.version, mirror.version) == (AFTER, 6, 6)
    assert request.ticket.bytes == 8 + 8 + 4
    # The model belongs to whoever awaited it: the next one does not come of what it is by then.
    out.fill(99)
    request = request_with(mirror)
    request.answered(Session(Role.WORKER), answer(request, version=7, since=6))
    assert (await request.ticket).flat.tolist() == [0, 21, 2, 3, 2, 5, 9]


async def test_a_push_says_what_is_held_when_it_is_sent(mirror):
    request = request_with(mirror)
    seen = []

    class Recorder:
        def send(self, kind, body, *, request):
            seen.append(body.holds)
            return b""

    request.frames(Recorder(), 1)
    mirror.take(8, FLAT)
    request.frames(Recorder(), 2)
    request_with(None).frames(Recorder(), 3)
    assert seen == [5, 8, None]


async def test_a_whole_model_takes_the_copys_place(mirror):
    request = PullRequest(TABLE, None, mirror=mirror)
    whole = {key: (1, FLAT[b.start : b.stop].tobytes()) for key, b in enumerate(TABLE.buckets)}
    request.answered(Session(Role.WORKER), answer(request, whole, version=4, since=None))
    assert (await request.ticket).version == mirror.version == 4
    assert request.ticket.bytes == 28
    # And a model that is whole makes the first copy there is.
    fresh = Mirror(topk(0.5))
    request = PullRequest(TABLE, None, mirror=fresh)
    request.answered(Session(Role.WORKER), answer(request, whole, version=0, since=None))
    assert (fresh.version, fresh._flat.tolist()) == (0, FLAT.tolist())


@pytest.mark.parametrize(
    ("parts", "versions", "sentence"),
    [
        ({}, {"since": 4}, "changed since version 4, the newest one here is 5"),
        ({}, {"version": 5}, "version 5 says what has changed since version 5"),
        ({}, {"since": None}, "model of version 6 is not in plain float32"),
        ({0: (1, FLAT[:4].tobytes())}, {}, "model's key 0 has codec 1, 4 is due"),
        ({1: (4, change([2], [1]))}, {}, r"model's key 1: topk index\[0\] is 2"),
        ({1: (4, change([1], [np.nan]))}, {}, "model's key 1 is not finite at position 1"),
        ({1: (4, b"1234567")}, {}, "model's key 1: topk payload has 7 bytes"),
        ({1: None}, {}, "model of version 6 has 2 of 3 keys"),
    ],
)
async def test_what_makes_no_sense_changes_nothing(mirror, parts, versions, sentence):
    request = request_with(mirror)
    given = {key: part for key, part in (PARTS | parts).items() if part is not None}
    with pytest.raises(RemoteProtocolError, match=sentence):
        request.answered(Session(Role.WORKER), answer(request, given, **versions))
    with pytest.raises(RemoteProtocolError, match=sentence):
        await request.ticket
    assert (mirror.version, mirror._flat.tolist()) == (5, FLAT.tolist())


@pytest.mark.parametrize(
    "header",
    [
        Header(Kind.TENSOR, 4, 1, 1, 0, 6, 8 * 4 + 33),
        Header(Kind.TENSOR, 4, 1, 1, 2, 6, 8),
        Header(Kind.TENSOR, 4, 1, 1, 3, 6, 8),
        Header(Kind.TENSOR, 5, 1, 1, 0, 6, 8),
    ],
    ids=["too large", "a statistic", "no such key", "another codec"],
)
async def test_a_change_of_another_shape_lands_nowhere(mirror, header):
    with pytest.raises(RemoteProtocolError, match="model"):
        request_with(mirror).land(header)


async def test_nothing_but_an_answer_to_a_push_says_what_has_changed(mirror):
    header = Header(Kind.TENSOR, 4, 1, 1, 0, 6, 8)
    for request in (PullRequest(TABLE, None, mirror=mirror), request_with(None)):
        with pytest.raises(RemoteProtocolError, match="dense float32 are due"):
            request.land(header)
    request = request_with(None)
    with pytest.raises(RemoteProtocolError, match="no such answers were agreed"):
        request.answered(
            Session(Role.WORKER),
            answer(
                request,
                {k: (1, FLAT[b.start : b.stop].tobytes()) for k, b in enumerate(TABLE.buckets)},
            ),
        )
