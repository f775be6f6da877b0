"""What tests of pushes that wait for room share: a bounded server, and pushes that begin and say their size."""

import asyncio

import numpy as np

from aiops.config import parse_codec
from aiops.sim.cluster import Cluster
from aiops.types import DTYPE_IDS
from aiops.wire.frame import Kind
from aiops.wire.message import Push

# Much more than is read ahead of a push that waits.
VALUES = 100_000
MODEL_BYTES = 4 * VALUES

# A push takes a second over it.
LINE = {"rate_bytes_s": MODEL_BYTES}


def bounded(models, *, n=VALUES, **spec):
    """A server with room for so many models on their way in."""
    settings = {
        "fold": "arrival",
        "weights": "uniform",
        "shards": 2,
        "bucket_bytes": MODEL_BYTES // 4,
    }
    params = {"w": np.zeros(n, np.float32)}
    return Cluster(params=params, landing_bytes=int(models * 4 * n), **{**settings, **spec})


def landing(house):
    return house.server.status()["landing"]


def parts(house, value):
    """A dense push, every value of which is this."""
    buckets = house.server.service.store.table.buckets
    return [np.full(bucket.size, value, np.float32) for bucket in buckets]


def sparse(house, value):
    """A push of about a hundredth of that."""
    codec = parse_codec("topk:0.01")
    for part in parts(house, value):
        arrays, _ = codec.encode(part, codec.init(part.size))
        data = np.concatenate([np.ascontiguousarray(array).view(np.uint8) for array in arrays])
        yield {"data": data, "codec": codec.wire_id, "dtype": DTYPE_IDS[codec.dtype]}


def starting(worker, house, sequence=0, *, made=parts, value=1.0, **options):
    """Send a push that says how large it is, as a task."""
    payload = list(made(house, value))
    datas = [part["data"] if isinstance(part, dict) else part for part in payload]
    size = sum(data.nbytes for data in datas)
    return asyncio.create_task(
        worker.send_push(sequence, *payload, **{"payload_bytes": size, **options})
    )


async def answered(*workers):
    """Return what the pushes of these workers are answered with."""
    return [(await worker.events.get()).body.version for worker in workers]


def heard(task):
    """The connection of a push ends with it."""
    assert task.cancelled() or task.exception() is None or isinstance(task.exception(), Exception)


async def announce(worker, sequence, n_parts, *, payload_bytes):
    """Send a PUSH frame alone; return its request."""
    number = worker.session.next_request()
    push = Push(sequence, 0, 0, 1, 1, 0.0, n_parts, False, payload_bytes=payload_bytes)
    worker.connection.post(worker.session.send(Kind.PUSH, push, request=number))
    return number
