"""A worker for test_killed.py: trains on batches of 10, writes its checkpoint, acknowledges, until it is killed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from aiops.stream.buffer import Persistence
from aiops.stream.decode import Samples
from aiops.stream.dedup import Dedup
from aiops.stream.intake import Intake
from aiops.stream.opening import open_source


async def train(url, checkpoint, total):
    state = {"cursor": "", "trained": [], "seen": []}
    if checkpoint.exists():
        state = json.loads(checkpoint.read_text())
    dedup = Dedup(seen=state["seen"])
    source = await open_source(url, cursor=state["cursor"])
    intake = Intake(Samples(source, int), Persistence(10_000))
    async with asyncio.TaskGroup() as group:
        group.create_task(intake.run())
        while len(state["trained"]) < total:
            batch = await intake.take(10, within_s=1.0)
            state["trained"] += [each.value for each in batch if dedup.is_new(each.record)]
            sys.stdout.write(f"{len(state['trained'])}\n")
            sys.stdout.flush()
            if not batch:
                continue
            state["cursor"] = batch[-1].record.cursor
            state["seen"] = dedup.state()
            fresh = checkpoint.with_suffix(".new")
            fresh.write_text(json.dumps(state))
            fresh.replace(checkpoint)
            await intake.ack(state["cursor"])
        await source.aclose()


asyncio.run(train(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
