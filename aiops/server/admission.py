"""The gate: a push comes in whole and valid, or not at all, and never twice.

Whatever a push could be refused for without looking at other pushes is decided here, before the engine hears of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiops.codec.base import Codec
from aiops.errors import NotFinite, Refused, ShapeMismatch, UnknownKey
from aiops.server.event import Handle, Pushed
from aiops.server.members import Member
from aiops.server.peer import Peer, most_bytes
from aiops.server.shard import Part
from aiops.server.store import Store
from aiops.types import DTYPE_IDS, Key, Version, WorkerId
from aiops.wire.frame import Frame
from aiops.wire.message import Push
from aiops.wire.session import Event
from aiops.wire.table import Table


class AdmittedPush(Handle):
    """A push that is on its way into a round.

    Attributes:
        member: Whose it is.
        message: What it says of itself.
        parts: Its buckets by key.
        peer: The connection to answer on: the newest one that sent it.
        request: The request to answer there.
        origin: The connection and the request that brought the payload.
    """

    __slots__ = ("_frames", "member", "message", "origin", "parts", "peer", "request")

    def __init__(self, member: Member, peer: Peer, event: Event) -> None:
        assert isinstance(event.body, Push)
        self.member = member
        self.message = event.body
        self.parts: dict[Key, Part] = {}
        self.peer = peer
        self.request = event.request
        self.origin = peer, event.request
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
    )


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
        part, bad = check_part(frame, table, codecs, seen)
        key = Key(frame.header.key)
        if bad >= 0:
            raise NotFinite(f"push holds NaN or infinity in {store.where(key, bad)}")
        push.parts[key] = part


def check_part(
    frame: Frame,
    table: Table,
    codecs: Mapping[int, Codec],
    seen: Mapping[Key, int] | None = None,
) -> tuple[Part, int]:
    """Check one TENSOR frame of a push; return it as a part, and the position of its first bad value, or -1.

    Its payload is read unless ``seen`` has its key, see :func:`check_parts`.

    Raises:
        UnknownKey: The key is not in the table.
        ShapeMismatch: The codec, dtype or size does not fit the bucket.
    """
    header = frame.header
    if header.key >= len(table.buckets):
        raise UnknownKey(
            f"key {header.key} is not in the table, the last is {len(table.buckets) - 1}"
        )
    key, bucket = Key(header.key), table.buckets[header.key]
    codec = _codec(frame, codecs)
    if seen is not None and key in seen:
        return Part(codec, frame.payload), seen[key]
    if len(frame.payload) != header.size:
        # The reader dropped it: no coding of this bucket is that large.
        raise ShapeMismatch(
            f"key {key} came with {header.size} bytes, a bucket of {bucket.size} values "
            f"takes at most {most_bytes(bucket.size)}"
        )
    try:
        position = codec.check(frame.payload, bucket.size)
    except Refused as error:
        raise type(error)(f"key {key}: {error}") from None
    return Part(codec, frame.payload), position


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
