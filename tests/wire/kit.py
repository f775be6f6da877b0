"""What the session tests share: a message of every kind, and frames made of them."""

from aiops.wire.frame import Frame, Header, Kind
from aiops.wire.message import (
    Ack,
    Advice,
    Agreed,
    Bye,
    Choose,
    Chosen,
    Hello,
    Init,
    Leave,
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
    Status,
    Welcome,
    encode,
)
from aiops.wire.session import Role, Session, State
from aiops.wire.table import Table

WORKER, SERVER = Role.WORKER, Role.SERVER
SAMPLES = {
    Kind.HELLO: Hello(0, "1", 0, "w", 1),
    Kind.WELCOME: Welcome(
        0, "1", 0, 0, 1.0, 1.0, 1.0, Policy(True, 1, None, "dense", "m", 0.0, 0.0, "b"), 0
    ),
    Kind.REJECT: Reject("no"),
    Kind.PING: Ping(),
    Kind.PONG: Ping(),
    Kind.INIT: Init(()),
    Kind.TABLE: Agreed(Table((), ()), False),
    Kind.SEED: Seed(0),
    Kind.PUSH: Push(0, 0, 0, 1, 1, 0.0, 0, False),
    Kind.PULL: Pull(),
    Kind.ACK: Ack(1, 0),
    Kind.MODEL: Model(1, 0, 1, 0),
    Kind.REFUSE: Refuse(1, "no"),
    Kind.LEAVE: Leave(),
    Kind.BYE: Bye(),
    Kind.STATUS: Status(),
    Kind.REPORT: Report("{}"),
    Kind.QUERY: Query(0, 0),
    Kind.ADVICE: Advice(0, 1),
    Kind.CHOOSE: Choose(),
    Kind.CHOSEN: Chosen(1),
    Kind.SHARE: Share(),
    Kind.SHARED: Shared(1, 0, False),
}


def session(role, state=State.READY):
    made = Session(role)
    made.state = state
    return made


def control(kind, body, request=0):
    payload = encode(kind, body)
    return Frame(Header(kind, 0, 0, request, 0, 0, len(payload)), memoryview(payload), None)


def tensor(request, key, *, block=None, size=0):
    view = block.view if block else memoryview(bytes(size))
    return Frame(Header(Kind.TENSOR, 1, 1, request, key, 0, len(view)), view, block)


def push(parts):
    return Push(0, 0, 0, 1, 1, 0.0, parts, False)


def model(parts):
    return Model(1, 0, 1, parts)
