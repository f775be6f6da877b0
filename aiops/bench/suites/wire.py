"""Bytes below the server: what frames cost, and what our transport adds to the kernel's sockets."""

from __future__ import annotations

import struct
from collections.abc import Callable

from aiops.bench.campaign import Contender
from aiops.bench.machine import congestions
from aiops.bench.network import SAME
from aiops.bench.peers.table import peer
from aiops.bench.run import Bench, compared
from aiops.bench.suites import goals
from aiops.wire.frame import HEADER_BYTES, Header, Kind
from aiops.wire.message import Push
from aiops.wire.reader import FrameReader
from aiops.wire.session import Role, Session, State

SUITE = "wire"
KEYS = ("transport", "sockets")
OURS, BOUND = (peer(key).name for key in KEYS)
MERGING = f"{OURS}, merging"
SIZES = {"100 MB": 100_000_000, "16 MB": 16_000_000, "1 MB": 1_000_000}
SEGMENTS = (64, 256, 1024, 4096)


async def run(bench: Bench) -> None:
    """Measure framing, one way transfers, congestion controls and segments."""
    passes = 3 if bench.quick else 9
    await framing(bench, passes)
    await one_way(bench, passes)
    await by_congestion(bench, passes)
    if not bench.quick:
        await by_segment(bench, passes)


async def framing(bench: Bench, passes: int) -> None:
    """Measure reading 100 small frames that came in one piece, and writing one push."""
    for size in (64, 4096):
        data = memoryview(frames(100 if size < 4096 else 15, size))
        case = f"read {len(data) // (size + HEADER_BYTES)} frames of {size} B"
        contenders: dict[str, Callable[[], object]] = {
            "ours": lambda data=data: read_frames(data),  # type: ignore[misc]
            "struct and slices": lambda data=data: read_by_hand(data),  # type: ignore[misc]
            "memcpy": lambda data=data: bytes(data),  # type: ignore[misc]
        }
        await bench.time(SUITE, case, contenders, passes=passes, bound="memcpy")
    session = Session(Role.WORKER)
    session.state = State.READY
    push = Push(sequence=1, base=1, clock=1, n_samples=1, n_steps=1, loss=0.5, parts=1, want=True)
    head = struct.Struct("<2sBBBBHIIQQ")
    await bench.time(
        SUITE,
        "write the head of a push",
        {
            "ours": lambda: (
                session.send(Kind.PUSH, push, request=1)
                + session.tensor(1, 0, 4096, codec=1, dtype=1, version=1)
            ),
            "struct": lambda: head.pack(b"\xa1\xd5", 1, 11, 1, 1, 0, 1, 0, 1, 4096) * 2,
        },
        passes=passes,
        bound="struct",
    )


def frames(count: int, size: int) -> bytes:
    """Return control frames, back to back."""
    return (Header(Kind.STATUS, 0, 0, 1, 0, 0, size).pack() + bytes(size)) * count


def read_frames(data: memoryview) -> int:
    """Read frames with our reader; return how many."""
    reader, at, found = FrameReader(lambda header: None, max_frame_bytes=1 << 20), 0, 0
    while at < len(data):
        into = reader.get_buffer(len(data))
        n = min(len(into), len(data) - at)
        into[:n] = data[at : at + n]
        found += sum(1 for _ in reader.buffer_updated(n))
        at += n
    return found


def read_by_hand(data: memoryview) -> int:
    """Read frames with nothing but struct: no checks, no reader, no partial frames."""
    head, at, found = struct.Struct("<2sBBBBHIIQQ"), 0, 0
    while at < len(data):
        size = head.unpack_from(data, at)[9]
        bytes(data[at + HEADER_BYTES : at + HEADER_BYTES + size])
        at += HEADER_BYTES + size
        found += 1
    return found


async def one_way(bench: Bench, passes: int) -> None:
    """Measure one tensor up and one byte down, ours against C sockets, and once more with the sum made meanwhile."""
    for size, n_bytes in SIZES.items():
        if bench.quick and size != "16 MB":
            continue
        case = bench.case(n_bytes, one_way=True)
        keys = bench.available(SUITE, KEYS, always=KEYS)
        contenders = [
            Contender(peer(key).name, key, case, SAME, goal=goals.one_way(size, key))
            for key in keys
        ]
        merging = bench.case(n_bytes, one_way=True, merging=True)
        contenders.insert(1, Contender(MERGING, "transport", merging, SAME))
        name = f"{size} one way"
        result = await bench.compete(SUITE, name, contenders, passes=passes, ours=OURS, bound=BOUND)
        if result is not None and size == "100 MB":
            ratio = compared(result, MERGING, OURS)
            what = "100 MB added up as they come, against received"
            bench.figure(SUITE, what, ratio, "times as long", "<= 1.05")


async def by_congestion(bench: Bench, passes: int) -> None:
    """Measure the same transfer under each congestion control that an ordinary process may ask for here."""
    names = sorted({*congestions(), SAME})
    keys = bench.available(SUITE, KEYS, always=KEYS)
    contenders = [
        Contender(
            f"{peer(key).name}, {name}",
            key,
            bench.case(16_000_000, one_way=True, congestion=name),
        )
        for name in names
        for key in keys
    ]
    await bench.compete(
        SUITE,
        "16 MB one way by congestion control",
        contenders,
        passes=passes,
        ours=f"{OURS}, {SAME}",
        bound=f"{BOUND}, {SAME}",
    )


async def by_segment(bench: Bench, passes: int) -> None:
    """Measure what our transport sends at a time, and what it is without a thread for bulk."""
    cases = {OURS: bench.case(16_000_000, one_way=True)}
    for kib in SEGMENTS:
        label = f"{OURS}, {kib} KiB segments"
        cases[label] = bench.case(16_000_000, one_way=True, segment_bytes=kib * 1024)
    cases[f"{OURS}, on the loop"] = bench.case(16_000_000, one_way=True, lanes=0)
    contenders = [Contender(label, "transport", case, SAME) for label, case in cases.items()]
    await bench.compete(SUITE, "16 MB one way by segment", contenders, passes=passes, ours=OURS)
