"""How far a round goes, as a worker knows it: answers, missing answers, late ones, and what is foreseen."""

import pytest

from aiops.errors import ConnectionLost, NotMember, Refused, RemoteProtocolError
from aiops.wire.frame import HEADER_BYTES, Header, Kind, parse_header
from aiops.wire.message import Ack, Advice, Query, Refuse, decode
from aiops.wire.session import Event, Role, Session, State
from aiops.worker.machine import Move
from aiops.worker.pace import Pace, QueryRequest

COMPUTE, PUSH = Move.COMPUTE, Move.PUSH


def timed(*, version=0, foreseen=None, rtt_s=0.0):
    """A worker at the beginning of a round, which has taken steps before."""
    pace = Pace(0)
    pace.stepped(0.02, 0.0)
    if rtt_s:
        pace.answered(pace.query(0.0), Advice(0), rtt_s)
    pace.report()
    pace.enter(version, foreseen)
    return pace


def test_before_its_first_step_a_worker_only_tells_that_it_begins():
    pace = Pace(3)
    assert pace.report() == Query(3, 0, 0.0, 0.0)
    assert pace.query(1.0) is None
    assert pace.stepped(0.5, 1.5) is COMPUTE
    assert pace.query(1.5) == Query(3, 1, 0.5, 0.0)


def test_without_an_answer_it_goes_on_and_asks_nothing_else():
    pace = timed()
    assert pace.query(0.0) is not None
    for n in range(1, 500):
        assert pace.stepped(0.02, 0.02 * n) is COMPUTE
        assert pace.query(0.02 * n) is None


def test_it_stops_at_the_step_that_the_answer_names():
    pace = timed()
    query = pace.query(0.0)
    assert pace.stepped(0.02, 0.02) is COMPUTE
    pace.answered(query, Advice(0, 3), 0.03)
    assert [pace.stepped(0.02, 0.02 * n) for n in (2, 3)] == [COMPUTE, PUSH]


def test_an_answer_that_comes_too_late_stops_it_after_the_step_under_way():
    pace = timed()
    query = pace.query(0.0)
    assert [pace.stepped(0.02, 0.02 * n) for n in range(1, 6)] == [COMPUTE] * 5
    pace.answered(query, Advice(0, 3), 0.11)
    assert pace.stepped(0.02, 0.12) is PUSH


def test_the_newest_answer_counts():
    pace = timed()
    for limit in (9, 2):
        pace.answered(pace.query(0.0), Advice(0, limit), 0.01)
    assert [pace.stepped(0.02, 0.02 * n) for n in (1, 2)] == [COMPUTE, PUSH]


def test_an_answer_that_knows_no_number_leaves_the_last_one():
    pace = timed()
    pace.answered(pace.query(0.0), Advice(0, 2), 0.01)
    pace.answered(pace.query(0.02), Advice(0, None), 0.03)
    assert [pace.stepped(0.02, 0.02 * n) for n in (1, 2)] == [COMPUTE, PUSH]


def test_an_answer_about_another_round_does_not_count():
    pace = timed()
    pace.answered(pace.query(0.0), Advice(7, 1), 0.01)
    assert pace.stepped(0.02, 0.02) is COMPUTE
    late = pace.query(0.02)
    pace.enter(1, None)
    assert pace.query(0.03) == Query(1, 0, 0.0, 0.01)
    pace.answered(late, Advice(1, 1), 0.04)
    assert pace.stepped(0.02, 0.05) is COMPUTE


def test_a_question_that_will_not_be_answered_is_asked_anew():
    pace = timed()
    query = pace.query(0.0)
    pace.answered(query, None, 0.01)
    assert pace.rtt_s == 0.0
    assert pace.query(0.02) is not None


def test_what_is_told_is_the_mean_of_the_steps_that_were_not_told_yet():
    pace = timed()
    assert pace.query(0.0).step_s == 0.0
    for took in (0.1, 0.3):
        pace.stepped(took, 0.5)
    assert pace.report() == Query(0, 2, pytest.approx(0.2), 0.0)
    pace.enter(1, None)
    assert pace.query(0.6).step_s == 0.0
    pace.stepped(0.7, 1.3)
    assert pace.report() == Query(1, 1, pytest.approx(0.7), 0.0)


def test_a_round_trip_leaves_out_what_was_held_back_and_one_long_one_does_not_count():
    pace = timed()
    pace.answered(pace.query(1.0), Advice(0, None, 0.5), 1.7)
    assert pace.rtt_s == pytest.approx(0.2)
    for took_s, rtt_s in ((9.0, 0.2), (0.3, 0.3), (0.4, 0.3), (0.5, 0.4)):
        pace.answered(pace.query(2.0), Advice(0), 2.0 + took_s)
        assert pace.rtt_s == pytest.approx(rtt_s)
    # A server whose clock is wrong does not make it negative.
    pace.answered(pace.query(3.0), Advice(0, None, 9.0), 3.1)
    assert pace.rtt_s == 0.0


@pytest.mark.parametrize(
    ("rtt_s", "moves"),
    [
        pytest.param(0.05, [COMPUTE] * 4, id="the answer is late, so it is held back: go on"),
        pytest.param(0.2, [COMPUTE] * 2 + [PUSH] * 2, id="no answer can be here yet"),
        pytest.param(0.0, [COMPUTE] * 4, id="no round trip is known"),
    ],
)
def test_what_was_foreseen_counts_where_no_answer_can_be_in_time(rtt_s, moves):
    pace = timed(version=1, foreseen=3, rtt_s=rtt_s)
    pace.query(0.0)
    assert [pace.stepped(0.03, 0.03 * n) for n in (1, 2, 3, 4)] == moves


def test_what_was_foreseen_does_not_count_beside_an_answer():
    pace = timed(version=1, foreseen=1, rtt_s=9.0)
    pace.answered(pace.query(0.0), Advice(1, 2), 9.0)
    assert [pace.stepped(0.03, 0.03 * n) for n in (1, 2)] == [COMPUTE, PUSH]


class Asked:
    """A request on a session that is ready, and what came of it."""

    def __init__(self):
        self.session = Session(Role.WORKER)
        self.session.state = State.READY
        self.told = []
        self.request = QueryRequest(Query(2, 3, 0.5), self.told.append)


def test_a_question_is_one_frame_and_its_answer_is_told():
    asked = Asked()
    ((data, views),) = asked.request.frames(asked.session, 4)
    header = parse_header(memoryview(data), 1000)
    assert (header.kind, header.request, views) == (Kind.QUERY, 4, ())
    assert decode(Kind.QUERY, memoryview(data)[HEADER_BYTES:]) == Query(2, 3, 0.5)
    assert asked.request.answered(asked.session, Event(Kind.ADVICE, 4, Advice(2, 5))) is None
    assert asked.told == [Advice(2, 5)]
    with pytest.raises(RemoteProtocolError, match="no tensors"):
        asked.request.land(Header(Kind.TENSOR, 1, 1, 4, 0, 2, 8))


def test_a_question_that_is_refused_or_lost_is_told_as_no_answer():
    for end in ("refused", "lost"):
        asked = Asked()
        if end == "refused":
            refuse = Event(Kind.REFUSE, 4, Refuse(NotMember.code, "gone"))
            assert asked.request.answered(asked.session, refuse) is None
            assert isinstance(asked.request.ticket.exception(), Refused)
        else:
            asked.request.ticket.fail(ConnectionLost("cut"))
        assert asked.told == [None]


def test_what_does_not_answer_a_question_ends_the_line():
    asked = Asked()
    with pytest.raises(RemoteProtocolError, match="ACK does not answer request 4"):
        asked.request.answered(asked.session, Event(Kind.ACK, 4, Ack(1, 0)))
