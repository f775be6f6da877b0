"""The TENSOR frames of a model: values that are lent, or what has changed in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiops.buffers import Block
from aiops.codec.base import DENSE, Codec
from aiops.server.peer import Reply
from aiops.server.ruled import RuledShard
from aiops.types import DTYPE_IDS, Key, Version
from aiops.wire.session import Session

if TYPE_CHECKING:
    from aiops.server.store import Store


def model_of(
    store: Store, session: Session, request: int, version: Version, keys: range | None = None
) -> Reply:
    """Return the frames of the published snapshot, one per key (all unless given), its blocks on loan."""
    reply = Reply([])
    for shard in store.shards:
        for key in shard.keys:
            if keys is None or key in keys:
                add_values(reply, shard.lend(key), key, session, request, version)
    return reply


def change_of(store: Store, session: Session, request: int, version: Version) -> Reply:
    """Return the frames of what the newest round has changed; of running statistics, the values."""
    reply = Reply([])
    for shard in store.shards:
        for key in shard.keys:
            add_newest_change(reply, store, key, session, request, version)
    return reply


def add_newest_change(
    reply: Reply, store: Store, key: Key, session: Session, request: int, version: Version
) -> None:
    """Add what the newest round has changed in a key; of running statistics, the values."""
    bucket = store.require().buckets[key]
    shard = store.shards[bucket.shard]
    if bucket.averaged:
        add_values(reply, shard.lend(key), key, session, request, version)
        return
    assert isinstance(shard, RuledShard)
    assert shard.downlink is not None
    payload = shard.downlink.payload(key)
    add_change(reply, payload, shard.downlink.codec, key, session, request, version)


def add_values(
    reply: Reply, block: Block, key: Key, session: Session, request: int, version: Version
) -> None:
    """Add the published values of a key, whose loan goes over to the reply."""
    head = session.tensor(
        request, key, len(block.view), codec=DENSE, dtype=DTYPE_IDS["float32"], version=version
    )
    reply.frames.append((head, (block.view,)))
    reply.loans.append(block)


def add_change(
    reply: Reply,
    payload: memoryview,
    codec: Codec,
    key: Key,
    session: Session,
    request: int,
    version: Version,
) -> None:
    """Add what a round has changed in a key; the payload must never change itself."""
    dtype = DTYPE_IDS[codec.dtype]
    head = session.tensor(
        request, key, len(payload), codec=codec.wire_id, dtype=dtype, version=version
    )
    reply.frames.append((head, (payload,)))
