"""A session in its corners: requests and answers, messages in parts, and what ends it."""

import pytest

from aiops.buffers import BufferPool
from aiops.errors import LocalProtocolError, RemoteProtocolError
from aiops.wire.frame import Frame, Header, Kind
from aiops.wire.message import (
    Bye,
    Init,
    Leave,
    Ping,
    Seed,
    encode,
)
from aiops.wire.session import MAX_ASSEMBLING, MAX_PARTS, Session, State
from tests.wire.kit import SAMPLES, SERVER, WORKER, control, model, push, session, tensor


def test_a_message_of_the_wrong_type_is_not_said_and_changes_nothing():
    ours = session(WORKER)
    with pytest.raises(LocalProtocolError, match="LEAVE carries Leave, not Ping"):
        ours.send(Kind.LEAVE, Ping())
    assert ours.state is State.READY


def test_a_message_that_the_peer_would_not_take_is_not_said():
    ours = session(SERVER)
    with pytest.raises(LocalProtocolError, match="BYE frame of 70006 payload bytes"):
        ours.send(Kind.BYE, Bye("x" * 70000))
    assert ours.state is State.READY


def test_both_ends_may_announce_the_end_at_once():
    worker, server = session(WORKER), session(SERVER)
    worker.send(Kind.LEAVE, Leave())
    server.send(Kind.BYE, Bye())
    assert worker.receive(control(Kind.BYE, Bye())).kind is Kind.BYE
    assert server.receive(control(Kind.LEAVE, Leave())).kind is Kind.LEAVE
    assert (worker.state, server.state) == (State.CLOSING, State.CLOSING)


def test_what_was_on_its_way_when_the_end_was_announced_is_still_heard():
    server = session(SERVER)
    server.receive(control(Kind.PUSH, push(1), 5))
    server.send(Kind.BYE, Bye())
    assert server.receive(tensor(5, 0)).kind is Kind.PUSH


def test_request_ids_count_up_from_one():
    ours = Session(WORKER)
    assert [ours.next_request() for _ in range(3)] == [1, 2, 3]


def test_request_ids_wrap_around_and_pass_over_those_in_use():
    ours = session(WORKER)
    assert ours.next_request() == 1
    half = ours.next_request()
    assert ours.receive(control(Kind.MODEL, model(1), half)) is None
    ours._last_request = 2**32 - 2
    # 1 is open, and of the answer to 2 a part is missing.
    assert [ours.next_request() for _ in range(2)] == [2**32 - 1, 3]
    assert Header(Kind.PULL, 0, 0, 2**32 - 1, 0, 0, 0).pack()


@pytest.mark.parametrize(
    "kind", [Kind.ACK, Kind.MODEL, Kind.REFUSE, Kind.REPORT, Kind.TABLE, Kind.ADVICE]
)
def test_an_answer_to_a_request_that_was_never_opened_is_refused(kind):
    ours = session(WORKER)
    ours.next_request()
    with pytest.raises(RemoteProtocolError, match=f"{kind.name} answers request 2, which is not"):
        ours.receive(control(kind, SAMPLES[kind], 2))


def test_a_table_that_nobody_asked_for_is_refused_before_memory_is_taken():
    with pytest.raises(RemoteProtocolError, match="TABLE answers request 9, which is not open"):
        session(WORKER).admit(Header(Kind.TABLE, 0, 0, 9, 0, 0, 1 << 20))


@pytest.mark.parametrize("kind", [Kind.ACK, Kind.MODEL, Kind.REFUSE, Kind.REPORT, Kind.ADVICE])
def test_a_request_is_answered_once(kind):
    ours = session(WORKER)
    request = ours.next_request()
    assert ours.receive(control(kind, SAMPLES[kind], request)).kind is kind
    with pytest.raises(RemoteProtocolError, match="which is not open"):
        ours.receive(control(kind, SAMPLES[kind], request))


def test_a_table_is_half_an_answer_and_the_model_follows_under_the_same_request():
    ours = session(WORKER)
    request = ours.next_request()
    ours.receive(control(Kind.TABLE, SAMPLES[Kind.TABLE], request))
    assert ours.receive(control(Kind.MODEL, SAMPLES[Kind.MODEL], request)).kind is Kind.MODEL


def test_a_message_is_complete_with_its_last_part_and_keeps_their_order():
    ours = session(SERVER)
    assert ours.receive(control(Kind.PUSH, push(3), 5)) is None
    assert ours.receive(tensor(5, 7, size=4)) is None
    assert ours.receive(control(Kind.PING, Ping())).kind is Kind.PING
    assert ours.receive(tensor(5, 2)) is None
    event = ours.receive(tensor(5, 9, size=1))
    assert (event.kind, event.request, event.body) == (Kind.PUSH, 5, push(3))
    assert [(part.header.key, len(part.payload)) for part in event.parts] == [
        (7, 4),
        (2, 0),
        (9, 1),
    ]


def test_parts_of_several_messages_may_come_in_any_order():
    ours = session(SERVER)
    ours.receive(control(Kind.PUSH, push(2), 1))
    ours.receive(control(Kind.PUSH, push(1), 2))
    assert ours.receive(tensor(1, 0)) is None
    assert ours.receive(tensor(2, 0)).request == 2
    assert ours.receive(tensor(1, 1)).request == 1


@pytest.mark.parametrize("verb", ["admit", "receive"])
@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (tensor(6, 1), "TENSOR frame for request 6, which announced none"),
        (tensor(5, 0), "TENSOR frame repeats key 0 of request 5"),
    ],
    ids=["unannounced", "same key twice"],
)
def test_a_tensor_that_nothing_announced_is_refused(verb, frame, sentence):
    ours = session(SERVER)
    ours.receive(control(Kind.PUSH, push(3), 5))
    ours.receive(tensor(5, 0))
    with pytest.raises(RemoteProtocolError, match=sentence):
        ours.admit(frame.header) if verb == "admit" else ours.receive(frame)


def test_a_tensor_behind_the_last_one_is_refused():
    ours = session(SERVER)
    ours.receive(control(Kind.PUSH, push(1), 5))
    ours.receive(tensor(5, 0))
    with pytest.raises(RemoteProtocolError, match="which announced none"):
        ours.receive(tensor(5, 1))


def test_a_request_that_is_half_sent_cannot_be_opened_again():
    ours = session(SERVER)
    ours.receive(control(Kind.PUSH, push(1), 5))
    with pytest.raises(RemoteProtocolError, match="request 5 is opened twice"):
        ours.receive(control(Kind.SEED, Seed(1), 5))


def test_too_many_half_sent_messages_are_refused():
    ours = session(SERVER)
    for request in range(MAX_ASSEMBLING):
        ours.receive(control(Kind.PUSH, push(1), request))
    with pytest.raises(RemoteProtocolError, match=f"more than {MAX_ASSEMBLING} messages"):
        ours.receive(control(Kind.PUSH, push(1), MAX_ASSEMBLING))


def test_more_parts_than_anybody_can_mean_are_refused():
    ours = session(SERVER)
    ours.receive(control(Kind.PUSH, push(MAX_PARTS - 1), 1))
    ours.receive(control(Kind.PUSH, push(1), 2))
    with pytest.raises(RemoteProtocolError, match=f"{MAX_PARTS + 1} TENSOR frames are announced"):
        ours.receive(control(Kind.PUSH, push(1), 3))


def test_a_push_of_very_many_tensors_is_put_together_in_linear_time():
    ours, parts = session(SERVER), 30_000
    ours.receive(control(Kind.PUSH, push(parts), 1))
    for key in range(parts - 1):
        ours.admit(tensor(1, key).header)
        assert ours.receive(tensor(1, key)) is None
    assert len(ours.receive(tensor(1, parts)).parts) == parts


def test_a_frame_that_is_refused_is_released():
    pool, ours = BufferPool(), session(SERVER)
    for frame in (
        tensor(1, 0, block=pool.take(8)),
        Frame(Header(Kind.INIT, 0, 0, 1, 0, 0, 8), memoryview(b"\xc1"), pool.take(8)),
        Frame(Header(Kind.TABLE, 0, 0, 1, 0, 0, 8), memoryview(b"\x90"), pool.take(8)),
    ):
        with pytest.raises(RemoteProtocolError):
            ours.receive(frame)
    assert pool.outstanding == 0


def test_a_control_frame_ends_its_loan_when_it_is_read():
    pool, ours = BufferPool(), session(SERVER)
    payload = encode(Kind.INIT, Init(()))
    block = pool.take(len(payload))
    block.view[:] = payload
    frame = Frame(Header(Kind.INIT, 0, 0, 1, 0, 0, len(payload)), block.view, block)
    assert ours.receive(frame).body == Init(())
    assert pool.outstanding == 0


def test_closing_ends_the_loans_of_everything_half_received_and_nothing_is_said_or_heard_after():
    pool, ours = BufferPool(), session(SERVER)
    for request in (1, 2):
        ours.receive(control(Kind.PUSH, push(2), request))
        ours.receive(tensor(request, 0, block=pool.take(8)))
    ours.close()
    ours.close()
    assert pool.outstanding == 0
    with pytest.raises(LocalProtocolError, match="while closed"):
        ours.send(Kind.PING, Ping())
    with pytest.raises(RemoteProtocolError, match="while closed"):
        ours.receive(tensor(1, 1, block=pool.take(8)))
    assert pool.outstanding == 0


def test_a_whole_message_ends_the_loans_of_its_parts_once():
    pool, ours = BufferPool(), session(SERVER)
    ours.receive(control(Kind.PUSH, push(1), 1))
    event = ours.receive(tensor(1, 0, block=pool.take(8)))
    event.release()
    event.release()
    assert pool.outstanding == 0
