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

# 1 has CHOOSE and CHOSEN, 2 SHARE and SHARED.
MINOR = 2

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
    """What the server decided and its workers do: the work, the codecs up and down, the merge rule, corrections.

    With ``query`` a worker asks during the round how many steps it has, and ``max_steps``, here and in every model, is
    what is foreseen. ``injection`` names the rule by which samples are shared, where they are.
    """

    overlap: bool
    min_steps: Count
    max_steps: Count | None
    codec: Text
    merge: Text
    alpha: float
    beta: float
    bootstrap: Text
    drift: Text = "off"
    proximal: float = 0.0
    query: bool = False
    down: Text = "dense"
    fragments: Count = 0
    delay: Count = 0
    injection: Text = ""


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
    """An update; ``parts`` TENSOR frames follow, one per key. ``want`` asks for the model in return.

    ``holds`` is the newest version that the worker has a copy of, so that the answer may say what has changed since.
    ``n_data`` is how many training samples the worker has at all, 0 where it does not say.
    A push of a ``fragment`` has that fragment's keys alone, and so has the model that answers it.
    ``payload_bytes`` is what all of its TENSOR frames carry together, 0 where it does not say.
    ``choice`` is the number of the choice of positions that its values are at, where a leader chooses them.
    """

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
    holds: Count | None = None
    n_data: Count = 0
    fragment: Count | None = None
    payload_bytes: Count = 0
    choice: Count | None = None


class Pull(Message, frozen=True):
    """Send me the newest model."""


class Ack(Message, frozen=True):
    """A push is merged (or a seed taken): ``version`` holds it, ``staleness`` rounds late.

    Under a server's buffer it may only be taken: it becomes part of a later version. ``lead`` is that of
    :class:`Model`.
    """

    version: Count
    staleness: Count
    lead: bool = False


class Model(Message, frozen=True):
    """One version of the parameters, or of a fragment; ``parts`` TENSOR frames follow, one per key.

    ``staleness``, ``n_merged`` and ``moved_steps`` speak of the push it answers; ``done`` says that training is over.
    ``moved_steps`` is the weighted sum of the merged pushes' local steps, times the server's learning rate: divided by
    it, the version's change is the mean progress of one local step. 0 where no push is answered.
    Where ``n_merged`` is 0, that push is in no version yet: it waits for others.

    With ``since`` the parts say what has changed since that version, in the codec that the policy names; without it
    they are the values.

    A server whose ``policy`` changes while workers train says with every model which one goes with it: it is adopted
    together with the model, at the worker's step boundary, and what comes after it is coded as it says.

    ``lead`` says that the receiver's next push chooses the positions of its round.
    """

    version: Count
    staleness: Count
    n_merged: Count
    parts: Count
    done: bool = False
    min_steps: Count = 1
    max_steps: Count | None = None
    moved_steps: float = 0.0
    since: Count | None = None
    policy: Policy | None = None
    lead: bool = False


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


class Query(Message, frozen=True):
    """How many more local steps may I take? Answered by ADVICE; request 0 tells that training or a push begins.

    ``n_steps`` are done in the round that started from ``version``; ``step_s`` is the mean duration of those that were
    not spoken of yet, 0 where there are none; ``rtt_s`` is how long answers take.
    """

    version: Count
    n_steps: Count
    step_s: float = 0.0
    rtt_s: float = 0.0


class Advice(Message, frozen=True):
    """Push once you have taken ``n_steps`` local steps from ``version``; none is "go on, and ask again".

    ``held_s`` is how long the server held the answer back, which is no part of the round trip.
    """

    version: Count
    n_steps: Count | None = None
    held_s: float = 0.0


class Choose(Message, frozen=True):
    """Who leads the round sends its positions, in ``parts`` TENSOR frames; else: which are they? Answered by CHOSEN.

    Whoever asks is waited for from then on: the round that it hears the positions of closes with its push.
    """

    lead: bool = False
    parts: Count = 0


class Chosen(Message, frozen=True):
    """The positions of choice ``number``, in ``parts`` TENSOR frames, or none: those that the receiver has sent.

    With ``lead`` there are none yet, and the receiver is to choose them.
    """

    number: Count
    lead: bool = False
    parts: Count = 0


class Share(Message, frozen=True):
    """What have the donors of ``round`` given? Who is one gives its own, in a TENSOR frame. Answered by SHARED.

    Who was not told of a round yet says 0. ``parts`` is 1, or 0 where nothing is given.
    """

    round: Count = 0
    parts: Count = 0


class Shared(Message, frozen=True):
    """What donors gave, in ``parts`` TENSOR frames; ``round`` is the next one, with so many ``donors``.

    With ``gives`` the receiver is one of them. With ``again`` it can have no part in the round of its question, which
    is over or was 0, and asks again, about this one.
    """

    round: Count
    donors: Count
    gives: bool
    parts: Count = 0
    again: bool = False


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
    Kind.QUERY: Query,
    Kind.ADVICE: Advice,
    Kind.CHOOSE: Choose,
    Kind.CHOSEN: Chosen,
    Kind.SHARE: Share,
    Kind.SHARED: Shared,
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
