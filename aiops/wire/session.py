"""Protocol state of one connection: who may say what now, and which frames belong together.

A transition table and no I/O, no clock: the driver feeds frames in, sends the bytes that come out and arms the timers.
Both ends obey this one rulebook.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from aiops.errors import BadHandshake, LocalProtocolError, RemoteProtocolError
from aiops.wire.frame import Frame, Header, Kind, frame_bytes
from aiops.wire.message import Message, Model, Push, Seed, decode, encode


class Role(enum.Enum):
    """Which end of the connection this is."""

    WORKER = "worker"
    SERVER = "server"

    @property
    def other(self) -> Role:
        """The role of the peer."""
        return Role.SERVER if self is Role.WORKER else Role.WORKER


class State(enum.Enum):
    """Where a connection stands."""

    NEW = "new"
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"


# (who speaks, state) -> what may be said -> the state after it.
_WORKER_SAYS = (
    Kind.INIT,
    Kind.SEED,
    Kind.PUSH,
    Kind.PULL,
    Kind.STATUS,
    Kind.PING,
    Kind.PONG,
    Kind.TENSOR,
)
_SERVER_SAYS = (
    Kind.TABLE,
    Kind.ACK,
    Kind.MODEL,
    Kind.REFUSE,
    Kind.REPORT,
    Kind.PING,
    Kind.PONG,
    Kind.TENSOR,
)
TRANSITIONS: dict[tuple[Role, State], dict[Kind, State]] = {
    (Role.WORKER, State.NEW): {Kind.HELLO: State.NEW},
    (Role.SERVER, State.NEW): {Kind.WELCOME: State.READY, Kind.REJECT: State.CLOSED},
    (Role.WORKER, State.READY): {
        **dict.fromkeys(_WORKER_SAYS, State.READY),
        Kind.LEAVE: State.CLOSING,
        Kind.BYE: State.CLOSING,
    },
    (Role.SERVER, State.READY): {
        **dict.fromkeys(_SERVER_SAYS, State.READY),
        Kind.BYE: State.CLOSING,
    },
    # What was on its way when the end was announced is still heard.
    (Role.WORKER, State.CLOSING): {**dict.fromkeys(_WORKER_SAYS, State.CLOSING), Kind.BYE: State.CLOSING},
    (Role.SERVER, State.CLOSING): {**dict.fromkeys(_SERVER_SAYS, State.CLOSING), Kind.BYE: State.CLOSING},
    (Role.WORKER, State.CLOSED): {},
    (Role.SERVER, State.CLOSED): {},
}

_CARRIES_PARTS = (Push, Seed, Model)
_ANSWERS = frozenset({Kind.ACK, Kind.MODEL, Kind.REFUSE, Kind.REPORT, Kind.TABLE})
# TABLE is half an answer: the model follows under the same request.
_LAST_ANSWERS = _ANSWERS - {Kind.TABLE}

# A worker has one push and a pull under way; a peer that opens more at once is not ours.
MAX_ASSEMBLING = 8


@dataclass(slots=True)
class Event:
    """A whole message: its control frame and the TENSOR frames that belong to it.

    Attributes:
        kind: What it means.
        request: The request it opens or answers; 0 for none.
        body: The control message.
        parts: Its TENSOR frames in the order of arrival, one per key; the taker releases them.
    """

    kind: Kind
    request: int
    body: Message
    parts: list[Frame] = field(default_factory=list)

    def release(self) -> None:
        """End the loans of all parts."""
        for part in self.parts:
            part.release()
        self.parts.clear()


class Session:
    """The grammar of one connection, seen from one end.

    Attributes:
        role: Which end this is.
        state: Where the connection stands.
    """

    __slots__ = ("_assembling", "_expected", "_last_request", "_open", "role", "state")

    def __init__(self, role: Role) -> None:
        self.role = role
        self.state = State.NEW
        self._assembling: dict[int, Event] = {}
        self._expected: dict[int, int] = {}
        self._open: set[int] = set()
        self._last_request = 0

    def next_request(self) -> int:
        """Open a request of this end's and return its id, 1..2^32-1, unused among the open ones."""
        request = self._last_request
        while True:
            request = request % 0xFFFFFFFF + 1
            if request not in self._open:
                break
        self._last_request = request
        self._open.add(request)
        return request

    def send(self, kind: Kind, body: Message, *, request: int = 0) -> bytes:
        """Return the bytes of a control frame and move to the state after it.

        Raises:
            LocalProtocolError: It may not be said now.
        """
        self._say(kind)
        return frame_bytes(kind, encode(kind, body), request=request)

    def tensor(
        self, request: int, key: int, size: int, *, codec: int, dtype: int, version: int
    ) -> bytes:
        """Return the header of a TENSOR frame; its ``size`` payload bytes must follow.

        Raises:
            LocalProtocolError: Tensors may not be sent now.
        """
        self._say(Kind.TENSOR)
        return Header(Kind.TENSOR, codec, dtype, request, key, version, size).pack()

    def admit(self, header: Header) -> None:
        """Check a bulk frame's header before memory is taken for it.

        Raises:
            RemoteProtocolError: It may not be said now, or nothing announced it.
        """
        self._hear(header.kind)
        if header.kind is not Kind.TENSOR:
            return
        event = self._assembling.get(header.request)
        if event is None:
            raise RemoteProtocolError(f"TENSOR frame for request {header.request}, which announced none")
        if any(part.header.key == header.key for part in event.parts):
            raise RemoteProtocolError(f"TENSOR frame repeats key {header.key} of request {header.request}")

    def receive(self, frame: Frame) -> Event | None:
        """Take one frame in; return the message it completes, or None while parts are missing.

        Raises:
            RemoteProtocolError: The peer may not say this now, or the payload is not its message.
        """
        kind, request = frame.header.kind, frame.header.request
        after = self._hear(kind)
        if kind is Kind.TENSOR:
            event = self._assembling[request]
            event.parts.append(frame)
            if len(event.parts) < self._expected[request]:
                return None
            del self._assembling[request], self._expected[request]
            return event
        try:
            body = decode(kind, frame.payload)
        finally:
            frame.release()
        if self.role is Role.WORKER and kind in _ANSWERS:
            if request not in self._open:
                raise RemoteProtocolError(f"{kind.name} answers request {request}, which is not open")
            if kind in _LAST_ANSWERS:
                self._open.discard(request)
        self.state = after
        event = Event(kind, request, body)
        if isinstance(body, _CARRIES_PARTS) and body.parts:
            self._expect(event, body.parts)
            return None
        return event

    def close(self) -> None:
        """End the session and the loans of everything half received."""
        self.state = State.CLOSED
        for event in self._assembling.values():
            event.release()
        self._assembling.clear()

    def _expect(self, event: Event, parts: int) -> None:
        if event.request in self._assembling:
            raise RemoteProtocolError(f"request {event.request} is opened twice")
        if len(self._assembling) == MAX_ASSEMBLING:
            raise RemoteProtocolError(f"more than {MAX_ASSEMBLING} messages are half sent")
        self._assembling[event.request] = event
        self._expected[event.request] = parts

    def _say(self, kind: Kind) -> None:
        after = TRANSITIONS[self.role, self.state].get(kind)
        if after is None:
            raise LocalProtocolError(f"a {self.role.value} may not send {kind.name} while {self.state.value}")
        self.state = after

    def _hear(self, kind: Kind) -> State:
        other = self.role.other
        after = TRANSITIONS[other, self.state].get(kind)
        if after is None:
            refusal = f"a {other.value} may not send {kind.name} while {self.state.value}"
            raise BadHandshake(refusal) if self.state is State.NEW else RemoteProtocolError(refusal)
        return after
