"""What a type checker sees of the public API; never run, only checked (by test_public.py)."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import torch as t
from numpy.typing import NDArray

import aiops
import aiops.torch
from aiops.stream.base import StreamSource
from aiops.stream.kafka import KafkaSource
from aiops.stream.opening import open_source
from aiops.stream.redis import RedisSource
from aiops.stream.replay import Replayer
from aiops.types import Version


async def level_1(params: dict[str, NDArray[np.float32]]) -> None:
    async with aiops.connect("aiops://localhost:4711") as ps:
        assert_type(ps, aiops.Client)
        assert_type(await ps.init(params), dict[str, NDArray[Any]])
        ticket = ps.sync(params, base=ps.version, n_samples=3)
        assert_type(ticket, aiops.Ticket[dict[str, NDArray[Any]]])
        assert_type(await ticket, dict[str, NDArray[Any]])
        assert_type(ticket.bytes, int)
        assert_type(ticket.done(), bool)
        assert_type(await ps.push(params), Version)
        x, y = await ps.share(np.zeros((2, 3)), np.zeros(2, np.int64))
        assert_type(x, NDArray[Any])
        assert_type(y, NDArray[np.int64])
        ps.sync(params, n_sample=3)  # type: ignore[call-arg]


async def level_2() -> None:
    async with aiops.serve(port=0, sync="bulk", shards=2) as server:
        assert_type(server, aiops.Server)
        assert_type(server.url, str)
        assert_type(server.version, int)
    tls = aiops.Tls(cert="server.pem", key="server.key", ca="ca.pem")
    assert_type(aiops.serve(tls=tls), aiops.Server)
    aiops.connect("aiops+tls://localhost", tls="ca.pem")  # type: ignore[arg-type]
    aiops.serve(sinc="bulk")  # type: ignore[call-arg]
    aiops.serve(shards="two")  # type: ignore[arg-type]


def level_0(model: t.nn.Module, optimizer: t.optim.Optimizer) -> None:
    with aiops.torch.attach(model, optimizer, "aiops://localhost") as link:
        assert_type(link, aiops.torch.Link)
        assert_type(link.step(n_samples=3), bool)
        assert_type(link.meter, aiops.Meter)
        link.step(3)  # type: ignore[call-arg]


async def streams(one: Replayer, two: RedisSource, three: KafkaSource) -> list[StreamSource]:
    assert_type(await open_source("redis://localhost/s?group=g"), StreamSource)
    return [one, two, three]
