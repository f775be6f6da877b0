"""A worker process on a real Redis server, killed again and again: no record is lost or trained on twice."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stream.streams import RedisStream

WORKER = Path(__file__).with_name("killed_worker.py")
TOTAL = 600


def start(url, checkpoint):
    command = [sys.executable, str(WORKER), url, str(checkpoint), str(TOTAL)]
    root = WORKER.parents[2]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


async def publish(stream):
    await stream.begin()
    await stream.publish([b"%d" % number for number in range(TOTAL)])
    await stream.stop_writing()


@pytest.mark.timeout(60)
def test_a_killed_worker_goes_on_and_trains_on_every_record_once(redis_port, tmp_path):
    stream = RedisStream(redis_port, "killed")
    asyncio.run(publish(stream))
    checkpoint = tmp_path / "checkpoint.json"
    for until in (150, 400):
        with start(stream.url, checkpoint) as worker:
            for line in worker.stdout:
                if int(line) >= until:
                    # Wherever it is now: training, writing, or acknowledging.
                    worker.kill()
                    break
            worker.stdout.read()
    with start(stream.url, checkpoint) as worker:
        worker.stdout.read()
    assert worker.returncode == 0
    state = json.loads(checkpoint.read_text())
    assert state["trained"] == list(range(TOTAL))
