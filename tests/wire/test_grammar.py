"""The grammar of a connection as a table: every kind, in every state, from either end."""

import pytest

from aiops.errors import BadHandshake, LocalProtocolError, RemoteProtocolError
from aiops.wire.frame import HEADER_BYTES, Kind, parse_header
from aiops.wire.session import Role, State
from tests.wire.kit import SAMPLES, SERVER, WORKER, control, model, push, session, tensor

# The grammar once more, in words: who may say what where, and what follows. What is not here is not allowed.
REQUESTS = {"INIT", "SEED", "PUSH", "PULL", "STATUS", "QUERY", "CHOOSE", "SHARE"}
ANSWERS = {"TABLE", "ACK", "MODEL", "REFUSE", "REPORT", "ADVICE", "CHOSEN", "SHARED"}
ANYBODY = {"PING", "PONG", "TENSOR"}
GRAMMAR = {
    (WORKER, "new"): {"HELLO": "new"},
    (SERVER, "new"): {"WELCOME": "ready", "REJECT": "closed"},
    (WORKER, "ready"): {
        **dict.fromkeys(REQUESTS | ANYBODY, "ready"),
        "LEAVE": "closing",
        "BYE": "closing",
    },
    (SERVER, "ready"): {**dict.fromkeys(ANSWERS | ANYBODY, "ready"), "BYE": "closing"},
    (WORKER, "closing"): dict.fromkeys(REQUESTS | ANYBODY | {"LEAVE", "BYE"}, "closing"),
    (SERVER, "closing"): dict.fromkeys(ANSWERS | ANYBODY | {"BYE"}, "closing"),
    (WORKER, "closed"): {},
    (SERVER, "closed"): {},
}
EVERY_STATE = [
    pytest.param(role, state, id=f"{role.value}-{state.value}") for role in Role for state in State
]


def say(ours, kind):
    if kind is Kind.TENSOR:
        return ours.tensor(7, 0, 0, codec=1, dtype=1, version=0)
    return ours.send(kind, SAMPLES[kind], request=7)


@pytest.mark.parametrize(("role", "state"), EVERY_STATE)
def test_what_may_be_said_is_said_and_the_rest_is_our_own_mistake(role, state):
    for kind in Kind:
        ours = session(role, state)
        after = GRAMMAR[role, state.value].get(kind.name)
        if after is None:
            sentence = f"a {role.value} may not send {kind.name} while {state.value}"
            with pytest.raises(LocalProtocolError, match=sentence):
                say(ours, kind)
            assert ours.state is state
        else:
            data = say(ours, kind)
            header = parse_header(memoryview(data)[:HEADER_BYTES], 1000)
            assert (header.kind, header.request) == (kind, 7)
            assert len(data) == HEADER_BYTES + header.size
            assert ours.state.value == after


@pytest.mark.parametrize(("role", "state"), EVERY_STATE)
def test_what_may_be_said_is_heard(role, state):
    for name, after in GRAMMAR[role, state.value].items():
        kind, ours = Kind[name], session(role.other, state)
        request = ours.next_request()
        if kind is Kind.TENSOR:
            announcement = (Kind.PUSH, push(1)) if role is WORKER else (Kind.MODEL, model(1))
            assert ours.receive(control(*announcement, request)) is None
            frame, kind = tensor(request, 0), announcement[0]
        else:
            frame = control(kind, SAMPLES[kind], request)
        ours.admit(frame.header)
        event = ours.receive(frame)
        assert (event.kind, event.request) == (kind, request)
        assert ours.state.value == after


@pytest.mark.parametrize(("role", "state"), EVERY_STATE)
def test_what_may_not_be_said_is_the_peers_mistake(role, state):
    wrong = BadHandshake if state is State.NEW else RemoteProtocolError
    for kind in Kind:
        if kind.name in GRAMMAR[role, state.value]:
            continue
        ours = session(role.other, state)
        request = ours.next_request()
        frame = tensor(request, 0) if kind is Kind.TENSOR else control(kind, SAMPLES[kind], request)
        sentence = f"a {role.value} may not send {kind.name} while {state.value}"
        with pytest.raises(wrong, match=sentence):
            ours.admit(frame.header)
        with pytest.raises(wrong, match=sentence):
            ours.receive(frame)
        assert ours.state is state
