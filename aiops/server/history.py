"""Published snapshots that somebody may still push from, kept by lending their blocks.

A worker goes on from the model that answered its last push, or from one that it has pulled since; pushes under way keep
the one that they started from. So there are as many snapshots as there are bases, and each costs its memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import msgspec

from aiops.buffers import Block
from aiops.errors import Refused
from aiops.types import Key, Version, WorkerId


class _Kept(msgspec.Struct):
    blocks: dict[Key, Block]
    owners: int = 0


class History:
    """Snapshots by version.

    Args:
        lend: Lends every block of the newest one.
    """

    __slots__ = ("_answered", "_kept", "_lend", "_pulled", "_pushes")

    def __init__(self, lend: Callable[[], dict[Key, Block]]) -> None:
        self._lend = lend
        self._kept: dict[Version, _Kept] = {}
        self._answered: dict[WorkerId, Version] = {}
        self._pulled: dict[WorkerId, Version] = {}
        self._pushes: dict[Hashable, Version] = {}

    def __len__(self) -> int:
        """Return how many snapshots are kept."""
        return len(self._kept)

    def snapshot(self, version: Version) -> Mapping[Key, Block]:
        """Return the blocks of a version that is kept; they are good as long as it is."""
        return self._kept[version].blocks

    def handed(self, worker: WorkerId, newest: Version, *, answer: bool) -> None:
        """Keep the newest version for a worker that has got it: after an answer to a push, that one and no other."""
        self._take(newest)
        old = [self._pulled.pop(worker, None)]
        if answer:
            old.append(self._answered.pop(worker, None))
        (self._answered if answer else self._pulled)[worker] = newest
        for version in old:
            self._give_back(version)

    def begin(
        self, push: Hashable, worker: WorkerId, base: Version, *, newest: Version
    ) -> Refused | None:
        """Keep the version that a push started from until it is over; return why that cannot be.

        Its worker never starts from an older one again.
        """
        if base != newest and base not in self._kept:
            return Refused(
                f"push starts from version {base}, which worker {worker} went on from: "
                f"start from the newest model, the server is at {newest}"
            )
        self._take(base)
        self._pushes[push] = base
        for held in (self._answered, self._pulled):
            if held.get(worker, base) < base:
                self._give_back(held.pop(worker))
        return None

    def end(self, push: Hashable) -> None:
        """Let the base of a push go, if there is one."""
        self._give_back(self._pushes.pop(push, None))

    def leave(self, worker: WorkerId) -> None:
        """Let go of what a worker might have pushed from; its push under way keeps its own."""
        self._give_back(self._answered.pop(worker, None))
        self._give_back(self._pulled.pop(worker, None))

    def close(self) -> None:
        """Give everything back."""
        for kept in self._kept.values():
            _release(kept.blocks)
        self._kept.clear()
        self._answered.clear()
        self._pulled.clear()
        self._pushes.clear()

    # Of a version that is kept already, or of the newest.
    def _take(self, version: Version) -> None:
        if version not in self._kept:
            self._kept[version] = _Kept(self._lend())
        self._kept[version].owners += 1

    def _give_back(self, version: Version | None) -> None:
        if version is None:
            return
        kept = self._kept[version]
        kept.owners -= 1
        if not kept.owners:
            del self._kept[version]
            _release(kept.blocks)


def _release(blocks: Mapping[Key, Block]) -> None:
    for block in blocks.values():
        block.release()
