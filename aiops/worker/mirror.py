"""The newest model that a worker has received, for servers whose answers say only what has changed since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import DENSE, Codec
from aiops.errors import ConfigError, RemoteProtocolError, ShapeMismatch
from aiops.types import Version
from aiops.wire.frame import Frame, Header
from aiops.wire.message import Model
from aiops.wire.table import Table


class Mirror:
    """A copy of the newest model received, in memory of its own, where answers say what has changed.

    Args:
        codec: How changes are coded; None where models come whole, so that no copy is kept.
        make_codec: Builds the codec that a server goes over to.

    Attributes:
        version: Which one it is; None before the first.
    """

    def __init__(
        self, codec: Codec | None, make_codec: Callable[[str], Codec] | None = None
    ) -> None:
        self.version: Version | None = None
        self._codec = codec
        self._make_codec = make_codec
        self._flat = np.empty(0, np.float32)

    @property
    def on(self) -> bool:
        """Whether a copy is kept."""
        return self._codec is not None

    def follow(self, down: str, version: int, flat: NDArray[np.float32]) -> None:
        """Go over to what the server says with a model of how later ones will come.

        Args:
            down: How changes are coded from now on; "dense" keeps no copy any more.
            version: The model's version.
            flat: The model, float32, shape (n,); copied where a copy begins.

        Raises:
            RemoteProtocolError: There is no such codec.
        """
        if down == ("dense" if self._codec is None else self._codec.name):
            return
        self.version, self._codec = None, None
        if down == "dense" or self._make_codec is None:
            self._flat = np.empty(0, np.float32)
            return
        try:
            self._codec = self._make_codec(down)
        except ConfigError as error:
            raise RemoteProtocolError(
                f"model of version {version} is the last that comes whole: {error}"
            ) from None
        self.take(version, flat)

    def take(self, version: int, flat: NDArray[np.float32]) -> None:
        """Note a model that came whole; ``flat`` is copied."""
        if self._codec is None:
            return
        if self._flat.size != flat.size:
            self._flat = np.empty_like(flat)
        np.copyto(self._flat, flat)
        self.version = Version(version)

    def land(self, table: Table, header: Header) -> memoryview | None:
        """Return memory for a coded part of an answer; None for other ones.

        Raises:
            RemoteProtocolError: No coding of this bucket is that large.
        """
        codec = self._codec
        if codec is None or header.codec != codec.wire_id or header.key >= len(table.buckets):
            return None
        bucket = table.buckets[header.key]
        # An index and a value for each, or the head of a coded payload where they are few.
        most = 8 * bucket.size + 32
        if bucket.averaged or header.size > most:
            raise RemoteProtocolError(
                f"model's key {header.key} has {header.size} bytes in codec {header.codec}, "
                f"at most {0 if bucket.averaged else most} are due"
            )
        return np.empty(header.size, np.uint8).data

    def add(
        self,
        table: Table,
        model: Model,
        parts: Sequence[Frame],
        flat: NDArray[np.float32],
        chosen: Mapping[int, Codec],
    ) -> None:
        """Go on to the version that an answer leads to; nothing has changed here when an error is raised.

        Args:
            table: The agreed table.
            model: What the answer says of itself.
            parts: One for each key. Running statistics are whole, and have landed in ``flat``.
            flat: float32, shape (table.size,), writable: receives the model.
            chosen: How changes are coded in buckets whose positions were chosen for the round, by key.

        Raises:
            RemoteProtocolError: It is not about the version that is here, or a part makes no sense.
        """
        since = model.since
        if since is None or since != self.version or model.version <= since:
            raise RemoteProtocolError(
                f"model of version {model.version} says what has changed since version {since}, "
                f"the newest one here is {self.version}"
            )
        codec = self._codec
        assert codec is not None
        for part in parts:
            _check(chosen.get(part.header.key, codec), table, part)
        for part in parts:
            bucket = table.buckets[part.header.key]
            own, given = self._flat[bucket.start : bucket.stop], flat[bucket.start : bucket.stop]
            if bucket.averaged:
                np.copyto(own, given)
            else:
                chosen.get(part.header.key, codec).add_to(own, part.payload, 1.0)
                np.copyto(given, own)
        self.version = Version(model.version)


def _check(codec: Codec, table: Table, part: Frame) -> None:
    bucket, key = table.buckets[part.header.key], part.header.key
    due = DENSE if bucket.averaged else codec.wire_id
    if part.header.codec != due:
        raise RemoteProtocolError(f"model's key {key} has codec {part.header.codec}, {due} is due")
    if bucket.averaged:
        return
    try:
        position = codec.check(part.payload, bucket.size)
    except ShapeMismatch as error:
        raise RemoteProtocolError(f"model's key {key}: {error}") from None
    if position >= 0:
        raise RemoteProtocolError(f"model's key {key} is not finite at position {position}")
