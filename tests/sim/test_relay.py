"""The emulated WAN link: bytes arrive whole and in order, as late as the rate and the delay say."""

import asyncio
import contextlib

import pytest

from aiops.errors import ConfigError
from aiops.sim.relay import LINE_OVERHEAD, Relay, WanLink


@contextlib.asynccontextmanager
async def echo():
    """Serve connections that get back what they send."""
    writers = []

    async def serve(reader, writer):
        writers.append(writer)
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


async def round_trip(port, data):
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    start = loop.time()
    writer.write(data)
    await writer.drain()
    got = await reader.readexactly(len(data))
    took = loop.time() - start
    writer.close()
    await writer.wait_closed()
    return got, took


async def test_bytes_come_back_whole_and_no_sooner_than_the_link_allows():
    data = bytes(range(256)) * 400
    link = WanLink(20e6, 0.02)
    async with echo() as port, Relay("127.0.0.1", port, link) as relay:
        got, took = await round_trip(relay.port, data)
    assert got == data
    assert relay.carried_bytes == 2 * len(data)
    # Both ways are in use at the same time, so less than two transfers but more than one and a delay.
    assert took >= link.transfer_s(len(data)) + link.delay_s


async def test_connections_through_one_relay_share_its_line():
    data = bytes(60_000)
    link = WanLink(20e6, 0.0)
    async with echo() as port, Relay("127.0.0.1", port, link) as relay:
        took = [
            took
            for _, took in await asyncio.gather(*(round_trip(relay.port, data) for _ in range(2)))
        ]
    assert max(took) >= link.transfer_s(2 * len(data))


async def test_the_end_of_one_side_reaches_the_other():
    async with echo() as port, Relay("127.0.0.1", port, WanLink(1e9, 0.001)) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"last words")
        writer.write_eof()
        assert await reader.read() == b"last words"
        writer.close()
        await writer.wait_closed()


async def test_a_target_that_is_down_ends_the_connection():
    async with echo() as port:
        pass
    async with Relay("127.0.0.1", port, WanLink(1e6, 0.0)) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_leaving_the_relay_cuts_what_is_open():
    async with echo() as port:
        async with Relay("127.0.0.1", port, WanLink(1e6, 0.0)) as relay:
            reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_each_way_has_a_rate_of_its_own():
    data = bytes(100_000)
    link = WanLink(80e6, 0.0, down_bits_s=8e6)
    async with echo() as port, Relay("127.0.0.1", port, link) as relay:
        _, took = await round_trip(relay.port, data)
    assert took >= 0.1 * LINE_OVERHEAD


async def test_a_link_that_changes_is_asked_what_it_is_like():
    data, links = bytes(20_000), [WanLink(1e9, 0.0)]
    async with echo() as port, Relay("127.0.0.1", port, lambda: links[0]) as relay:
        _, before = await round_trip(relay.port, data)
        links[0] = WanLink(1e9, 0.1)
        _, after = await round_trip(relay.port, data)
    assert before < 0.1
    assert after >= 0.2


def test_the_time_of_a_transfer_is_rate_and_delay():
    assert WanLink(8e6, 0.5).transfer_s(1_000_000) == pytest.approx(LINE_OVERHEAD + 0.5)
    slow_down = WanLink(8e6, 0.5, down_bits_s=4e6)
    assert slow_down.transfer_s(1_000_000, "up") == pytest.approx(LINE_OVERHEAD + 0.5)
    assert slow_down.transfer_s(1_000_000, "down") == pytest.approx(2 * LINE_OVERHEAD + 0.5)


@pytest.mark.parametrize(
    ("rate", "delay", "message"),
    [
        (0, 0, "rate is 0 bit/s, it must be > 0"),
        (float("nan"), 0, "rate is nan bit/s"),
        (1, -1, "delay is -1 s, it must be >= 0"),
    ],
)
def test_a_link_that_cannot_be_is_refused(rate, delay, message):
    with pytest.raises(ConfigError, match=message):
        WanLink(rate, delay)


def test_a_rate_down_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="rate is -1 bit/s, it must be > 0"):
        WanLink(1e6, 0.0, down_bits_s=-1)
