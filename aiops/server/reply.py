"""The TENSOR frames of a model: values that are lent, or what has changed in them."""

from __future__ import annotations

from aiops.buffers import Block
from aiops.codec.base import DENSE, Codec
from aiops.server.peer import Reply
from aiops.types import DTYPE_IDS, Key, Version
from aiops.wire.session import Session


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
