"""Answers a rank's requests with collectives of torch.distributed, over Gloo, within a deadline.

The tensors are numpy's memory. What torch.distributed has a collective for is left to it; a tree is its point-to-point
messages, and what goes straight to everybody is its all-to-all.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from aiops.collective.request import (
    Array,
    Broadcast,
    Deal,
    Dialogue,
    Gather,
    Ping,
    Reply,
    Request,
    Sum,
)
from aiops.collective.rollcall import RankLost, call
from aiops.errors import ConfigError, LocalProtocolError

T = TypeVar("T")

# Of a deadline the first part is a collective's. The rest is for the roll call: a rank may come upon the failure that
# much later than another.
COLLECTIVE_SHARE = 0.4

_numbers: Iterator[int] = itertools.count()


class Group:
    """The ranks of a job that torch.distributed was initialized for.

    Args:
        deadline_s: Within how many seconds a failure is reported by the ranks that are left, > 0.

    Attributes:
        rank: This rank.
        ranks: How many there are.

    Raises:
        ConfigError: The deadline is out of range, or torch.distributed is not initialized.
    """

    def __init__(self, *, deadline_s: float = 60.0) -> None:
        if not deadline_s > 0:
            raise ConfigError(f"deadline_s is {deadline_s}, it must be above 0")
        if not dist.is_initialized():
            raise ConfigError("torch.distributed is not initialized, call init_process_group first")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self._deadline_s = deadline_s
        # A group of its own: its messages do not meet those of DistributedDataParallel, and Gloo takes numpy's memory
        # whatever the job's backend is.
        self._group = dist.new_group(
            backend="gloo", timeout=timedelta(seconds=deadline_s * COLLECTIVE_SHARE)
        )
        self._store = PrefixStore("aiops", dist.distributed_c10d._get_default_store())
        self._name = f"roll-call/{next(_numbers)}"
        self._failure: RankLost | None = None

    def run(self, dialogue: Dialogue[T], *, step: int = 0) -> T:
        """Return what a dialogue comes to.

        Args:
            dialogue: What this rank asks for; every rank runs its own at the same time.
            step: For messages: the step that it belongs to.

        Raises:
            RankLost: A rank is gone or silent; raised within the deadline on all that are left.
            LocalProtocolError: The group has failed before.
        """
        if self._failure is not None:
            raise LocalProtocolError(f"the group cannot be used any more: {self._failure}")
        start = time.monotonic()
        reply: Reply | None = None
        while True:
            try:
                request = dialogue.send(reply)  # type: ignore[arg-type]  # None starts a generator
            except StopIteration as end:
                result: T = end.value
                return result
            asked = time.monotonic()
            try:
                data = self._answer(request)
            except RuntimeError as error:
                dialogue.close()
                self._failure = self._call(error, step, start)
                raise self._failure from error
            reply = Reply(data, time.monotonic() - asked)

    def close(self) -> None:
        """Leave the group; torch.distributed's own stays."""
        if self._failure is None:
            dist.destroy_process_group(self._group)

    def _call(self, error: RuntimeError, step: int, start: float) -> RankLost:
        lost = call(
            self._store,
            self._name,
            rank=self.rank,
            ranks=self.ranks,
            within_s=self._deadline_s * (1 - COLLECTIVE_SHARE),
        )
        cause = str(error).strip().splitlines()[0]
        return RankLost(lost, step=step, waited_s=time.monotonic() - start, cause=cause)

    def _answer(self, request: Request) -> Array:
        match request:
            case Broadcast(data, source, route):
                self._broadcast(torch.from_numpy(data), source, direct=route == "direct")
                return data
            case Gather(data, "direct"):
                return self._deal(np.broadcast_to(data, (self.ranks, data.size)))
            case Gather(data):
                rows = np.empty((self.ranks, data.size), data.dtype)
                dist.all_gather(
                    list(torch.from_numpy(rows)), torch.from_numpy(data), group=self._group
                )
                return rows
            case Sum(data, route):
                {"ring": self._ring, "tree": self._tree, "direct": self._direct}[route](data)
                return data
            case Deal(data):
                return self._deal(data)
            case Ping(turn, count):
                return self._ping(turn, count)

    def _broadcast(self, data: torch.Tensor, source: int, *, direct: bool) -> None:
        if not direct:
            dist.broadcast(data, source, group=self._group)
        elif self.rank == source:
            others = (rank for rank in range(self.ranks) if rank != source)
            for work in [dist.isend(data, rank, group=self._group) for rank in others]:
                if work is not None:
                    work.wait()
        else:
            dist.recv(data, source, group=self._group)

    def _deal(self, rows: Array) -> Array:
        given = torch.from_numpy(np.ascontiguousarray(rows))
        taken = torch.empty_like(given)
        dist.all_to_all_single(taken, given, group=self._group)
        return taken.numpy()

    def _ring(self, data: Array) -> None:
        dist.all_reduce(torch.from_numpy(data), group=self._group)

    # To rank 0 along a binomial tree, and back as Gloo broadcasts.
    def _tree(self, data: Array) -> None:
        part, reach = torch.empty(data.size, dtype=torch.float32), 1
        while reach < self.ranks:
            if self.rank % (2 * reach):
                dist.send(torch.from_numpy(data), self.rank - reach, group=self._group)
                break
            if self.rank + reach < self.ranks:
                dist.recv(part, self.rank + reach, group=self._group)
                data += part.numpy()
            reach *= 2
        dist.broadcast(torch.from_numpy(data), 0, group=self._group)

    # Each rank adds up one part of the vector, and sends it to all.
    def _direct(self, data: Array) -> None:
        part = -(-data.size // self.ranks)
        rows = np.zeros((self.ranks, part), np.float32)
        rows.reshape(-1)[: data.size] = data
        own = np.zeros(part, np.float32)
        for row in self._deal(rows):
            own += row
        whole = self._deal(np.broadcast_to(own, rows.shape))
        data[:] = whole.reshape(-1)[: data.size]

    def _ping(self, turn: int, count: int) -> Array:
        starts = self.rank % 2 == turn % 2
        other = self.rank + 1 if starts else self.rank - 1
        if not 0 <= other < self.ranks:
            return np.empty(0)
        ball = torch.zeros(8, dtype=torch.uint8)
        seconds = []
        for _ in range(count):
            asked = time.monotonic()
            for sends in (starts, not starts):
                (dist.send if sends else dist.recv)(ball, other, group=self._group)
            seconds.append(time.monotonic() - asked)
        return np.array(seconds) if starts else np.empty(0)
