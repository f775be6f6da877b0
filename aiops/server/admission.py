"""The gate: a push comes in whole and valid, or not at all, and never twice.

Whatever a push could be refused for without looking at other pushes is decided here, before the engine hears of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiops.codec.base import Codec
from aiops.errors import NotFinite, Refused, ShapeMismatch, StalePush, UnknownKey
from aiops.server.event import Handle, Pushed
from aiops.server.members import Member
from aiops.server.peer import Peer, most_bytes
from aiops.server.shard import Part
from aiops.server.store import Store
from aiops.types import DTYPE_IDS, Key, Version, WorkerId
from aiops.wire.frame import Frame, Header
from aiops.wire.message import Push
from aiops.wire.session import Event
from aiops.wire.table import Table

if TYPE_CHECKING:
    from aiops.server.service import Service


class AdmittedPush(Handle):
    """A push that is on its way into a round.

    Attributes:
        member: Whose it is.
        message: What it says of itself.
        parts: Its buckets by key.
        peer: The connection to answer on: the newest one that sent it.
        request: The request to answer there.
        origin: The connection and the request that brought the payload.
        moved_steps: Mean local steps by which the version moved that it is merged in.
        holds: The newest version that its worker had a copy of when it sent this last; None for no copy.
        chosen: How buckets are read whose positions were chosen for all pushes of the round.
    """

    __slots__ = (
        "_frames", "chosen", "holds", "member", "message", "moved_steps", "origin", "parts", "peer",
        "request",
    )  # fmt: skip

    def __init__(self, member: Member, peer: Peer, event: Event) -> None:
        assert isinstance(event.body, Push)
        self.member = member
        self.message = event.body
        self.parts: dict[Key, Part] = {}
        self.peer = peer
        self.request = event.request
        self.origin = peer, event.request
        self.moved_steps = 0.0
        self.holds = self.message.holds
        self.chosen: Mapping[Key, Codec] = {}
        self._frames = event.parts

    def unseen_bytes(self, seen: Collection[Key]) -> int:
        """Return how many payload bytes belong to other keys than these."""
        return sum([len(frame.payload) for frame in self._frames if frame.header.key not in seen])

    def release(self) -> None:
        """Give the payload back."""
        for frame in self._frames:
            frame.release()
        self._frames = []
        self.parts = {}


def admitted(handle: Handle) -> AdmittedPush:
    """Return what the engine gives back as what it was given."""
    assert isinstance(handle, AdmittedPush)
    return handle


def pushed(worker: WorkerId, handle: Handle, message: Push) -> Pushed:
    """Return what the engine is told of a push."""
    return Pushed(
        worker,
        handle,
        base=Version(message.base),
        n_samples=message.n_samples,
        n_steps=message.n_steps,
        loss=message.loss,
        step_s=message.step_s,
        sync_s=message.sync_s,
        n_data=message.n_data,
    )


def misfit(push: AdmittedPush, service: Service) -> Refused | None:
    """Return why a checked push is not of the fragment that the open round takes; None if it is.

    Where the model goes whole, no push may be of a fragment.
    """
    message, count = push.message, service.config.fragments
    number, version = message.fragment, service.engine.version
    if not count:
        return None if number is None else Refused(f"push is of fragment {number}, there are none")
    if number is None:
        return Refused(
            f"push is of the whole model, a round of this server takes one of its {count} fragments: "
            "use aiops.overlapped or aiops.torch.attach"
        )
    if message.base < version:
        # Of another round, and that round's fragment.
        return StalePush(version - message.base, 0)
    due = service.store.require().fragment(version % count, count)
    if number != version % count or sorted(push.parts) != list(due):
        return Refused(
            f"push is of fragment {number} with {len(push.parts)} keys, fragment {version % count} with "
            f"keys {due.start} to {due.stop - 1} is due"
        )
    return None


def note_steps(pushes: Sequence[AdmittedPush], weights: Sequence[float], gain: float) -> None:
    """Tell pushes that are merged together by how many mean local steps that moves the version."""
    steps = moved_steps([push.message for push in pushes], weights, gain)
    for push in pushes:
        push.moved_steps = steps


def check_parts(
    push: AdmittedPush,
    store: Store,
    codecs: Mapping[int, Codec],
    seen: Mapping[Key, int],
) -> None:
    """Check a push's parts against the table and fill ``push.parts``.

    Reads every byte of the payload once, so a large push is checked off the loop.

    Args:
        push: The push, whole.
        store: What it is for.
        codecs: How payloads are read, by wire id.
        seen: Parts that were checked on their way: the position of the first value that is not finite, -1 for none.

    Raises:
        UnknownKey: There is no table yet, or a key is not in it.
        ShapeMismatch: A part's codec, dtype or size does not fit its bucket.
        NotFinite: A value is NaN or infinite; the message names the tensor.
    """
    table = store.require()
    for frame in push._frames:
        part, key = part_of(frame, table, codecs), Key(frame.header.key)
        chosen = push.chosen.get(key)
        if chosen is not None and chosen.wire_id == part.codec.wire_id:
            part = Part(chosen, part.payload)
        bad = seen[key] if key in seen else first_bad(part, frame.header, table)
        if bad >= 0:
            raise NotFinite(f"push holds NaN or infinity in {store.where(key, bad)}")
        push.parts[key] = part


def part_of(frame: Frame, table: Table, codecs: Mapping[int, Codec]) -> Part:
    """Return a TENSOR frame of a push as a part, whose payload nobody has looked at.

    Raises:
        UnknownKey: The key is not in the table.
        ShapeMismatch: The codec is unknown, or the dtype is not what it carries.
    """
    key = frame.header.key
    if key >= len(table.buckets):
        raise UnknownKey(f"key {key} is not in the table, the last is {len(table.buckets) - 1}")
    return Part(_codec(frame, codecs), frame.payload)


def first_bad(part: Part, header: Header, table: Table) -> int:
    """Return the position of a part's first value that is not finite, or -1; reads its payload once.

    Raises:
        ShapeMismatch: The payload does not fit its bucket.
    """
    size = table.buckets[header.key].size
    if len(part.payload) != header.size:
        # The reader dropped it: no coding of this bucket is that large.
        raise ShapeMismatch(
            f"key {header.key} came with {header.size} bytes, a bucket of {size} values "
            f"takes at most {most_bytes(size)}"
        )
    try:
        return part.codec.check(part.payload, size)
    except Refused as error:
        raise type(error)(f"key {header.key}: {error}") from None


def moved_steps(messages: Iterable[Push], weights: Sequence[float], server_lr: float) -> float:
    """Return the mean local steps by which a version of these pushes moves; see :class:`aiops.wire.message.Model`."""
    return server_lr * sum(
        [weight * message.n_steps for message, weight in zip(messages, weights, strict=True)]
    )


def objection(
    push: AdmittedPush, store: Store, codecs: Mapping[int, Codec], seen: Mapping[Key, int]
) -> Refused | None:
    """Return what :func:`check_parts` raises; None where the push is good."""
    try:
        check_parts(push, store, codecs, seen)
    except Refused as error:
        return error
    return None


def _codec(frame: Frame, codecs: Mapping[int, Codec]) -> Codec:
    header = frame.header
    codec = codecs.get(header.codec)
    if codec is None:
        raise ShapeMismatch(f"codec {header.codec} is unknown, known are {sorted(codecs)}")
    if header.dtype != DTYPE_IDS[codec.dtype]:
        raise ShapeMismatch(
            f"key {header.key} has dtype {header.dtype}, {codec.name} carries {codec.dtype} "
            f"({DTYPE_IDS[codec.dtype]})"
        )
    return codec
