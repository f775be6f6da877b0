"""Protocol state of one connection: who may say what now, and which frames belong together.

A transition table and no I/O, no clock: the driver feeds frames in, sends the bytes that come out and arms the timers.
Both ends obey this one rulebook.
"""

from __future__ import annotations

import enum

import msgspec

from aiops.errors import BadHandshake, LocalProtocolError, RemoteProtocolError
from aiops.wire.frame import Frame, Header, Kind, frame_bytes, header_bytes
from aiops.wire.message import Message, decode, encode


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
    Kind.QUERY,
    Kind.CHOOSE,
    Kind.SHARE,
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
    Kind.ADVICE,
    Kind.CHOSEN,
    Kind.SHARED,
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
    # What was on its way when the end was announced is still heard, another announcement of the end too.
    (Role.WORKER, State.CLOSING): dict.fromkeys(
        (*_WORKER_SAYS, Kind.LEAVE, Kind.BYE), State.CLOSING
    ),
    (Role.SERVER, State.CLOSING): dict.fromkeys((*_SERVER_SAYS, Kind.BYE), State.CLOSING),
    (Role.WORKER, State.CLOSED): {},
    (Role.SERVER, State.CLOSED): {},
}

_ANSWERS = frozenset(_SERVER_SAYS) - {Kind.PING, Kind.PONG, Kind.TENSOR}
# TABLE is half an answer: the model follows under the same request.
_LAST_ANSWERS = _ANSWERS - {Kind.TABLE}

# A worker has one push and a pull under way; a peer that opens more at once is not ours.
MAX_ASSEMBLING = 8

# TENSOR frames that all half-sent messages together may announce: a push and a model of 10^5 tensors, and 100 MB of our
# own bookkeeping at the most.
MAX_PARTS = 1 << 18


class Event(msgspec.Struct):
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
    parts: list[Frame] = []

    def release(self) -> None:
        """End the loans of all parts."""
        for part in self.parts:
            part.release()
        self.parts.clear()


class _Half(msgspec.Struct):
    """A message whose TENSOR frames are still coming."""

    event: Event
    expected: int
    keys: set[int] = set()


class Session:
    """The grammar of one connection, seen from one end.

    Attributes:
        role: Which end this is.
    """

    __slots__ = (
        "_assembling", "_expected", "_hears", "_last_request", "_open", "_says", "_state", "role",
    )  # fmt: skip

    def __init__(self, role: Role) -> None:
        self.role = role
        self.state = State.NEW
        self._assembling: dict[int, _Half] = {}
        # TENSOR frames that those have announced.
        self._expected = 0
        self._open: set[int] = set()
        self._last_request = 0

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        # Looked up once a state: two look-ups of enum pairs for every frame took a tenth of a small round.
        self._state = state
        self._says = TRANSITIONS[self.role, state]
        self._hears = TRANSITIONS[self.role.other, state]

    def next_request(self) -> int:
        """Open a request of this end's and return its id, 1..2^32-1, which no open request and no half answer has."""
        request = self._last_request % 0xFFFFFFFF + 1
        while request in self._open or request in self._assembling:
            request = request % 0xFFFFFFFF + 1
        self._last_request = request
        self._open.add(request)
        return request

    def send(self, kind: Kind, body: Message, *, request: int = 0) -> bytes:
        """Return the bytes of a control frame and move to the state after it.

        Raises:
            LocalProtocolError: It may not be said now, or not like this; the state stays as it is.
        """
        after = self._say(kind)
        data = frame_bytes(kind, encode(kind, body), request=request)
        if after is not self._state:
            self.state = after
        return data

    def tensor(
        self, request: int, key: int, size: int, *, codec: int, dtype: int, version: int
    ) -> bytes:
        """Return the header of a TENSOR frame; its ``size`` payload bytes must follow.

        Raises:
            LocalProtocolError: Tensors may not be sent now.
        """
        self._say(Kind.TENSOR)
        return header_bytes(Kind.TENSOR, codec, dtype, request, key, version, size)

    def admit(self, header: Header) -> Message | None:
        """Check a bulk frame's header before memory is taken for it.

        Returns the message that a TENSOR frame belongs to; None for other frames.

        Raises:
            RemoteProtocolError: It may not be said now, or nothing announced it.
        """
        self._hear(header)
        return self._half(header).event.body if header.kind is Kind.TENSOR else None

    def receive(self, frame: Frame) -> Event | None:
        """Take one frame in; return the message it completes, or None while parts are missing.

        Raises:
            RemoteProtocolError: The peer may not say this now, or the payload is not its message; the frame is
                released.
        """
        header = frame.header
        try:
            after = self._hear(header)
            if header.kind is Kind.TENSOR:
                return self._part(frame)
            body = decode(header.kind, frame.payload)
        except RemoteProtocolError:
            frame.release()
            raise
        frame.release()
        if after is not self._state:
            self.state = after
        return self._message(Event(header.kind, header.request, body))

    def close(self) -> None:
        """End the session and the loans of everything half received."""
        self.state = State.CLOSED
        for half in self._assembling.values():
            half.event.release()
        self._assembling.clear()
        self._expected = 0

    def _message(self, event: Event) -> Event | None:
        if event.kind in _LAST_ANSWERS:
            self._open.discard(event.request)
        parts: int = getattr(event.body, "parts", 0)
        if not parts:
            return event
        if event.request in self._assembling:
            raise RemoteProtocolError(f"request {event.request} is opened twice")
        if len(self._assembling) == MAX_ASSEMBLING:
            raise RemoteProtocolError(f"more than {MAX_ASSEMBLING} messages are half sent")
        announced = self._expected + parts
        if announced > MAX_PARTS:
            raise RemoteProtocolError(
                f"{announced} TENSOR frames are announced, the limit is {MAX_PARTS}"
            )
        self._expected = announced
        self._assembling[event.request] = _Half(event, parts)
        return None

    def _part(self, frame: Frame) -> Event | None:
        half = self._half(frame.header)
        event = half.event
        half.keys.add(frame.header.key)
        event.parts.append(frame)
        if len(event.parts) < half.expected:
            return None
        del self._assembling[event.request]
        self._expected -= half.expected
        return event

    # The half message that a TENSOR frame belongs to.
    def _half(self, header: Header) -> _Half:
        half = self._assembling.get(header.request)
        if half is None:
            raise RemoteProtocolError(
                f"TENSOR frame for request {header.request}, which announced none"
            )
        if header.key in half.keys:
            raise RemoteProtocolError(
                f"TENSOR frame repeats key {header.key} of request {header.request}"
            )
        return half

    def _say(self, kind: Kind) -> State:
        after = self._says.get(kind)
        if after is None:
            raise LocalProtocolError(
                f"a {self.role.value} may not send {kind.name} while {self.state.value}"
            )
        return after

    def _hear(self, header: Header) -> State:
        kind = header.kind
        after = self._hears.get(kind)
        if after is None:
            other = self.role.other
            refusal = f"a {other.value} may not send {kind.name} while {self.state.value}"
            raise BadHandshake(refusal) if self.state is State.NEW else RemoteProtocolError(refusal)
        # Only a worker hears answers.
        if kind in _ANSWERS and header.request not in self._open:
            raise RemoteProtocolError(
                f"{kind.name} answers request {header.request}, which is not open"
            )
        return after
