"""Control messages: MessagePack structs of at most 64 KiB, one type per frame kind.

Fields are only ever appended, with defaults, so that an older minor version reads a newer one's messages.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from aiops.errors import LocalProtocolError, RemoteProtocolError
from aiops.types import TensorSpec
from aiops.wire.frame import Kind
from aiops.wire.table import Table

MINOR = 0

# Features of a server: it wants the buckets of every push in key order, since one is of use when all workers' are here.
IN_ORDER = 1

MAX_COUNT = 2**63 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Text = Annotated[str, msgspec.Meta(max_length=4096)]


class Message(msgspec.Struct, array_like=True, frozen=True):
    """Base of every control message."""


class Hello(Message, frozen=True):
    """A worker's first frame.

    ``identity`` and ``incarnation`` name the worker across reconnects: the same pair inside the lease is the same
    member, a higher incarnation replaces it.
    """

    minor: Count
    library: Text
    features: Count
    identity: Text
    incarnation: Count
    token: Text | None = None
    name: Text = ""


class Policy(Message, frozen=True):
    """What the server decided and its workers do: the work, the codec, the merge rule."""

    overlap: bool
    min_steps: Count
    max_steps: Count | None
    codec: Text
    merge: Text
    alpha: float
    beta: float
    bootstrap: Text


class Welcome(Message, frozen=True):
    """The answer to Hello: from here on the worker is a member."""

    minor: Count
    library: Text
    features: Count
    worker: Count
    lease_s: float
    heartbeat_s: float
    idle_timeout_s: float
    policy: Policy
    version: Count


class Reject(Message, frozen=True):
    """The answer to a Hello that is not accepted; ``retry`` says whether coming back later makes sense."""

    reason: Text
    retry: bool = False


class Ping(Message, frozen=True):
    """I am alive, are you? Answered by PONG."""


class Init(Message, frozen=True):
    """What the worker trains; the answer is the table, then the model unless this worker seeds it."""

    tensors: tuple[TensorSpec, ...]


class Agreed(Message, frozen=True):
    """The key table; ``seed`` asks the receiver for the first parameters."""

    table: Table
    seed: bool


class Seed(Message, frozen=True):
    """The first parameters; ``parts`` TENSOR frames follow."""

    parts: Count


class Push(Message, frozen=True):
    """An update; ``parts`` TENSOR frames follow, one per key. ``want`` asks for the model in return."""

    sequence: Count
    base: Count
    clock: Count
    n_samples: Count
    n_steps: Count
    loss: float
    parts: Count
    want: bool
    step_s: float = 0.0
    sync_s: float = 0.0


class Pull(Message, frozen=True):
    """Send me the newest model."""


class Ack(Message, frozen=True):
    """A push is merged (or a seed taken): ``version`` holds it, ``staleness`` rounds late."""

    version: Count
    staleness: Count


class Model(Message, frozen=True):
    """One version of the parameters; ``parts`` TENSOR frames follow, one per key.

    ``staleness`` and ``n_merged`` speak of the push it answers; ``done`` says that training is over.
    """

    version: Count
    staleness: Count
    n_merged: Count
    parts: Count
    done: bool = False
    min_steps: Count = 1
    max_steps: Count | None = None


class Refuse(Message, frozen=True):
    """A request is declined, the connection stays good; ``args`` rebuild the exception where it takes numbers."""

    code: Count
    message: Text
    args: tuple[int, ...] = ()


class Leave(Message, frozen=True):
    """I am going for good: do not wait for me. Answered by BYE."""


class Bye(Message, frozen=True):
    """This end closes the connection; ``reason`` is for people."""

    reason: Text = ""


class Status(Message, frozen=True):
    """What is going on? Answered by REPORT."""


class Report(Message, frozen=True):
    """The server's state as JSON text (its fields are for people and scripts, not for the protocol)."""

    json: Annotated[str, msgspec.Meta(max_length=60000)]


TYPES: dict[Kind, type[Message]] = {
    Kind.HELLO: Hello,
    Kind.WELCOME: Welcome,
    Kind.REJECT: Reject,
    Kind.PING: Ping,
    Kind.PONG: Ping,
    Kind.INIT: Init,
    Kind.TABLE: Agreed,
    Kind.SEED: Seed,
    Kind.PUSH: Push,
    Kind.PULL: Pull,
    Kind.ACK: Ack,
    Kind.MODEL: Model,
    Kind.REFUSE: Refuse,
    Kind.LEAVE: Leave,
    Kind.BYE: Bye,
    Kind.STATUS: Status,
    Kind.REPORT: Report,
}

_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[Kind, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(form) for kind, form in TYPES.items()
}


def encode(kind: Kind, message: Message) -> bytes:
    """Return a control message as the payload of a ``kind`` frame.

    Raises:
        LocalProtocolError: The message is not of the type that ``kind`` carries.
    """
    due = TYPES.get(kind)
    if type(message) is not due:
        carries = "raw bytes" if due is None else due.__name__
        raise LocalProtocolError(f"{kind.name} carries {carries}, not {type(message).__name__}")
    return _ENCODER.encode(message)


def decode(kind: Kind, payload: memoryview) -> Message:
    """Return the message that a ``kind`` frame carries.

    Raises:
        RemoteProtocolError: The payload is not such a message; the sentence says where it goes wrong.
    """
    try:
        message = _DECODERS[kind].decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        # A newer version's fields are skipped by recursion, as deep as the peer likes to nest them.
        raise RemoteProtocolError(f"{kind.name} frame does not hold its message: {error}") from None
    assert isinstance(message, Message)
    return message
