"""Messages whose length only the sender knows, over collectives in which every rank has to know it.

The receivers guess. A message begins with its length; what the guess cut off follows in a second collective, which all
ranks know to be needed, and which a good guess makes rare.
"""

from __future__ import annotations

import numpy as np

from aiops.collective.request import Broadcast, Bytes, Dialogue, Gather, Route

_LENGTH = np.dtype("<u8")
HEAD_BYTES = _LENGTH.itemsize


class Guess:
    """How long the next message is expected to be; the same on every rank, because all have seen the same messages.

    Args:
        n_bytes: The first guess.
        margin: Share by which the last message may be exceeded before a second collective is needed.
    """

    __slots__ = ("_margin", "n_bytes")

    def __init__(self, n_bytes: int, *, margin: float = 0.02) -> None:
        self.n_bytes = n_bytes
        self._margin = margin

    def learn(self, n_bytes: int) -> None:
        """Expect messages of about ``n_bytes`` from now on."""
        self.n_bytes = n_bytes + int(n_bytes * self._margin)


def broadcast(data: Bytes | None, source: int, guess: Guess, route: Route) -> Dialogue[Bytes]:
    """Give everybody the bytes of ``source``.

    Args:
        data: uint8, one-dimensional, any length; None but on ``source``. Read only.
        source: Rank of the sender.
        guess: The same on every rank; learns the length.
        route: See :mod:`aiops.collective.request`.

    Returns:
        The message, in memory of its own or ``data`` itself.
    """
    first = _first(data, guess)
    reply = yield Broadcast(first, source, route)
    size = _length(reply.data)
    rest = size - guess.n_bytes
    seen = reply.data[HEAD_BYTES : HEAD_BYTES + size]
    if rest > 0:
        more = np.empty(rest, np.uint8) if data is None else np.array(data[guess.n_bytes :])
        more = (yield Broadcast(more, source, route)).data
        seen = np.concatenate([seen, more])
    guess.learn(size)
    return seen if data is None else data


def gather(data: Bytes, guess: Guess, route: Route) -> Dialogue[list[Bytes]]:
    """Give everybody the bytes of each rank.

    Args:
        data: uint8, one-dimensional, any length. Read only.
        guess: The same on every rank; learns the greatest length.
        route: See :mod:`aiops.collective.request`.

    Returns:
        A message for each rank, in their order, as views of memory that nobody else has.
    """
    rows = (yield Gather(_first(data, guess), route)).data
    sizes = [_length(row) for row in rows]
    rest = max(sizes) - guess.n_bytes
    seen = [row[HEAD_BYTES : HEAD_BYTES + size] for row, size in zip(rows, sizes, strict=True)]
    if rest > 0:
        more = np.zeros(rest, np.uint8)
        tail = data[guess.n_bytes :]
        more[: tail.size] = tail
        rows = (yield Gather(more, route)).data
        seen = [
            np.concatenate([part, row[: max(size - guess.n_bytes, 0)]])
            for part, row, size in zip(seen, rows, sizes, strict=True)
        ]
    guess.learn(max(sizes))
    return seen


# What fits into the guess, behind the length of the whole.
def _first(data: Bytes | None, guess: Guess) -> Bytes:
    first = np.zeros(HEAD_BYTES + guess.n_bytes, np.uint8)
    if data is not None:
        first[:HEAD_BYTES] = np.array([data.size], _LENGTH).view(np.uint8)
        part = data[: guess.n_bytes]
        first[HEAD_BYTES : HEAD_BYTES + part.size] = part
    return first


def _length(first: Bytes) -> int:
    return int(first[:HEAD_BYTES].view(_LENGTH)[0])
