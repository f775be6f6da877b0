"""Links by relays: no privilege, and what split TCP cannot do is refused."""

import asyncio
import contextlib
import time

import pytest

from aiops.errors import ConfigError
from aiops.lab.wan.door import open_wan
from aiops.lab.wan.gate import worst
from aiops.lab.wan.link import Change, LinkSpec
from aiops.lab.wan.probe import examine

LINK = LinkSpec(up_bits_s=20e6, down_bits_s=20e6, delay_s=0.02)


@contextlib.asynccontextmanager
async def echo():
    """Serve connections that get back what they send."""
    writers = []

    async def serve(reader, writer):
        writers.append(writer)
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


async def round_trip(wan, worker, port):
    reader, writer = await asyncio.open_connection(*await wan.address_for(worker, port))
    start = time.perf_counter()
    writer.write(b"?")
    await reader.readexactly(1)
    took = time.perf_counter() - start
    writer.close()
    await writer.wait_closed()
    return took


async def test_every_worker_has_a_link_of_its_own_to_the_same_server():
    far = LinkSpec(up_bits_s=20e6, down_bits_s=20e6, delay_s=0.2)
    async with echo() as port, open_wan([LINK, far], kind="relay") as wan:
        urls = [await wan.url_for(worker, port) for worker in (0, 1, 0)]
        assert urls[0] == urls[2] != urls[1]
        assert urls[0].startswith("aiops://127.0.0.1:")
        # uvloop's clock counts in milliseconds, and two waits may each be one short.
        assert 0.038 <= await round_trip(wan, 0, port) < 0.398
        assert await round_trip(wan, 1, port) >= 0.398
        assert wan.command(0, ["true"]) == ["true"]
        assert (wan.kind, wan.label, await wan.counters()) == ("relay", "split TCP", None)
        with pytest.raises(ConfigError, match="worker 2 has no link, there are 2"):
            await wan.url_for(2, port)


async def test_a_link_changes_on_schedule():
    late = LinkSpec(up_bits_s=20e6, down_bits_s=20e6, changes=(Change(at_s=0.1, delay_s=0.2),))
    async with echo() as port, open_wan([late], kind="relay") as wan:
        assert await round_trip(wan, 0, port) < 0.398
        await wan.begin()
        await asyncio.sleep(0.2)
        assert await round_trip(wan, 0, port) >= 0.398
        await wan.reset()
        assert await round_trip(wan, 0, port) < 0.398


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (
            {"loss": 0.01},
            "the link of worker 1 has a loss of 0.01, a relay splits TCP and has none",
        ),
        ({"jitter_s": 0.01}, "the link of worker 1 has a jitter_s of 0.01, a relay splits TCP"),
        ({"queue_bytes": 9999}, "the link of worker 1 has a queue of 9999 bytes"),
        ({"changes": (Change(at_s=1, loss=0.1),)}, "the link of worker 1 has a loss of 0.1"),
    ],
)
async def test_what_a_relay_cannot_do_is_refused(numbers, message):
    link = LinkSpec(up_bits_s=1e6, down_bits_s=1e6, delay_s=0.02, **numbers)
    with pytest.raises(ConfigError, match=message):
        async with open_wan([LINK, link], kind="relay"):
            pass


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"congestion": "bbr"}, "congestion is set, a relay splits TCP and has none"),
        ({"slow_start_after_idle": False}, "slow_start_after_idle is set, a relay"),
    ],
)
async def test_a_relay_has_no_congestion_control(settings, message):
    with pytest.raises(ConfigError, match=message):
        async with open_wan([LINK], kind="relay", **settings):
            pass


async def test_what_this_machine_does_not_allow_is_told(monkeypatch):
    monkeypatch.setattr("aiops.lab.wan.door.why_not_tun", lambda: "no TUN: gone")
    with pytest.raises(
        ConfigError, match="kind is 'tun', which is not possible here: no TUN: gone"
    ):
        async with open_wan([LINK], kind="tun"):
            pass


async def test_without_privilege_it_is_a_relay(monkeypatch):
    monkeypatch.setattr("aiops.lab.wan.door.why_not_tun", lambda: "no TUN")
    monkeypatch.setattr("aiops.lab.wan.door.why_not_spaces", lambda: "no network namespaces")
    async with open_wan([LINK]) as wan:
        assert wan.kind == "relay"


async def test_a_link_that_is_not_what_it_should_be_is_rejected(monkeypatch):
    near = LinkSpec(up_bits_s=20e6, down_bits_s=20e6, delay_s=0.001)
    async with open_wan([near], kind="relay") as wan:
        # As if it had been asked for ten times as fast, and much farther.
        wan.links = (LinkSpec(up_bits_s=200e6, down_bits_s=20e6, delay_s=0.01),)
        verdict = await examine(wan, transfer_s=0.2)
    assert not verdict.holds
    assert "worker 0's link up carries" in verdict.reasons[0]
    assert "instead of 200.00" in verdict.reasons[0]
    assert "a round trip of" in verdict.reasons[-1]
    assert (verdict.label, verdict.late_s, verdict.cores) == ("split TCP", None, None)


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_links_are_what_they_should_be():
    links = [LinkSpec(up_bits_s=10e6, down_bits_s=20e6, delay_s=0.02)] * 3
    async with open_wan(links, kind="relay") as wan:
        verdict = await examine(wan)
    rate, trip_s = worst(links, verdict.links)
    # The relay is in this loop, with what it is measured by, and others may be busy.
    assert abs(rate) < 0.1
    assert -0.002 <= trip_s < 0.01
