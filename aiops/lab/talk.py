"""What the real lab's parent and its processes say to each other: one line of JSON each."""

from __future__ import annotations

import msgspec

from aiops.lab.method import Method
from aiops.lab.record import WorkerRecord
from aiops.lab.scenario import Scenario


class Serve(msgspec.Struct, frozen=True, kw_only=True):
    """Parent to server: begin.

    Attributes:
        method: By which method.
        n_workers: For how many workers.
        host: Address to listen on.
    """

    method: Method
    n_workers: int
    host: str


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Server to parent: it listens on this port, with this congestion control."""

    port: int


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Parent to server: what is there newer than this version?"""

    version: int


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Server to parent.

    Attributes:
        version: Rounds closed.
        flat: The parameters, little-endian float32; None where no round closed since.
        up_bytes: Bytes received from workers.
        down_bytes: Bytes sent to them.
    """

    version: int
    flat: bytes | None
    up_bytes: int
    down_bytes: int


class Train(msgspec.Struct, frozen=True, kw_only=True):
    """Parent to worker: connect; say ready when the parameters are there, and wait for the word to go.

    Attributes:
        scenario: What is run.
        method: By which method.
        seed: Seed of model and batches.
        worker: Which worker this is.
        url: Where the server is, through its link.
        data_root: Where the data's files are; None searches the usual places.
    """

    scenario: Scenario
    method: Method
    seed: int
    worker: int
    url: str
    data_root: str | None


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """Worker to parent: what it measured, or why it could not go on.

    Attributes:
        record: What was measured.
        error: Why training ended by itself; "" where it did not.
        diverged: Whether that was numbers beyond all bounds, which is a result.
        cpu_s: Processor time used since the word to go.
    """

    record: WorkerRecord
    error: str
    diverged: bool
    cpu_s: float


READY = "ready"
GO = b"go"
STOP = b"stop"
