"""What is TCP's own: strangers at the port, resets, the kernel's buffers, and the habits of the two loops."""

import asyncio
import contextlib
import errno
import os
import random
import socket
import struct
import sys

import pytest

from aiops.errors import (
    BadHandshake,
    ConnectionLost,
    DeadlineExceeded,
    RemoteProtocolError,
)
from aiops.transport import tcp
from aiops.transport.segment import STAGED_BYTES
from aiops.wire.frame import MAGIC, TLS_ALERT
from tests.transport.kit import (
    MIB,
    OPTIONS,
    Inbox,
    accepting,
    bulk,
    filled,
    ping,
    stalled,
    tensor,
    until,
)


@contextlib.asynccontextmanager
async def raw_peer(**options):
    """Connect one of ours to a bare socket; gives our inbox and connection, and the socket."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        # Set on the listening socket, a small buffer holds from the first packet on.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        inbox = Inbox()
        connection, (peer, _) = await asyncio.gather(
            tcp.connect([server.getsockname()], lambda: inbox, **{**OPTIONS, **options}),
            loop.sock_accept(server),
        )
        with peer:
            yield inbox, connection, peer
            connection.abort()
            await inbox.lost()
            inbox.release()
            assert inbox.pool.outstanding == 0


@pytest.mark.parametrize(
    ("noise", "hint"),
    [
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS", id="tls hello"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "starts with b'SS'", id="ssh"),
        pytest.param(random.Random(1).randbytes(100_000), "starts with b'", id="random"),
        pytest.param(MAGIC + random.Random(2).randbytes(9_000), "peer speaks", id="our magic"),
    ],
)
async def test_a_stranger_at_the_port_is_named_and_hung_up_on(noise, hint):
    loop = asyncio.get_running_loop()
    async with accepting() as (address, accepted):
        with socket.socket() as stranger:
            stranger.setblocking(False)
            await loop.sock_connect(stranger, address)
            await loop.sock_sendall(stranger, noise)
            with contextlib.suppress(ConnectionResetError):
                # Whoever speaks TLS is answered in TLS.
                assert await loop.sock_recv(stranger, 100) == (TLS_ALERT if hint == "TLS" else b"")
            ((inbox, connection),) = accepted
            lost = await inbox.lost()
            assert isinstance(lost, RemoteProtocolError)
            assert hint in str(lost)
            assert connection.closed
            assert (inbox.frames, inbox.placed) == ([], [])


async def test_a_stranger_who_waits_for_us_after_two_bytes_is_told_at_once():
    async with accepting() as (address, accepted):
        with socket.create_connection(address) as stranger:
            stranger.send(b"GE")
            await until(lambda: accepted)
            assert isinstance(await accepted[0][0].lost(), BadHandshake)


@pytest.mark.parametrize(
    ("sent", "where"),
    [(b"", "between frames"), (tensor(1, filled(1000, 1))[0], "in the middle of a frame")],
    ids=["between frames", "mid frame"],
)
async def test_a_reset_says_where_in_the_stream_it_came(sent, where):
    async with raw_peer() as (inbox, connection, peer):
        peer.send(sent)
        await until(lambda: connection.received_bytes == len(sent))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        lost = await inbox.lost()
        assert isinstance(lost, ConnectionLost)
        assert str(lost) == (
            f"connection to {connection.peer} was lost {where}: {os.strerror(errno.ECONNRESET)}"
        )


async def test_a_peer_that_ends_its_stream_ends_the_connection_even_if_it_reads_nothing():
    async with raw_peer() as (inbox, connection, peer):
        sending = asyncio.create_task(connection.send([bulk(1)]))
        await stalled(connection)
        connection.post(ping(1))
        peer.shutdown(socket.SHUT_WR)
        assert "closed the connection between frames" in str(await inbox.lost())
        with pytest.raises(ConnectionLost, match="closed the connection"):
            await sending


async def test_a_slow_peer_that_moves_is_not_given_up():
    loop = asyncio.get_running_loop()
    async with raw_peer(idle_timeout_s=0.3) as (_, connection, peer):
        peer.setblocking(False)
        sending = asyncio.create_task(connection.send([bulk(1)]))
        await stalled(connection)
        # The kernel has room again after megabytes; at this pace that takes several idle timeouts.
        start = loop.time()
        while loop.time() - start < 0.8:
            with contextlib.suppress(BlockingIOError):
                peer.recv(32 * 1024)
            await asyncio.sleep(0.02)
        assert not connection.closed
        # And as soon as it stands still, it is given up.
        with pytest.raises(DeadlineExceeded):
            await sending


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell what is on its way")
async def test_what_the_kernel_delivers_is_progress_before_it_takes_any_more():
    async with raw_peer() as (_, connection, peer):
        sending = asyncio.create_task(connection.send([bulk(1)]))
        await stalled(connection)
        # The loop does not turn meanwhile, so nothing more can be written.
        written, before = connection.sent_bytes, connection._backlog()
        peer.settimeout(5.0)
        taken = 0
        while taken < 256 * 1024:
            taken += len(peer.recv(64 * 1024))
        assert connection.sent_bytes == written
        assert connection._backlog() < before
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


async def test_what_is_overwritten_after_a_raw_write_is_torn_so_that_the_tear_test_can_fail():
    source = filled(32 * MIB, 1)
    keeps_views = sys.version_info >= (3, 12) or not isinstance(
        asyncio.get_running_loop(), asyncio.SelectorEventLoop
    )
    async with raw_peer() as (_, connection, peer):
        connection._transport.write(memoryview(source))
        source[:] = 2
        assert (2 in await read_all(peer, len(source))) == keeps_views


async def test_memory_may_be_overwritten_after_a_send_to_a_peer_that_reads_in_sips():
    # What is left for the last write of a frame is less than loops buffer on their own account.
    sizes, got = [STAGED_BYTES + step for step in range(2000, 60_000, 2000)], bytearray()

    async def send():
        for value, size in enumerate(sizes):
            source = filled(size, value)
            await connection.send([tensor(value, source)])
            source[:] = 255

    async with raw_peer() as (_, connection, peer):
        peer.setblocking(False)
        sock = connection._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        sending = asyncio.create_task(send())
        while not sending.done():
            with contextlib.suppress(BlockingIOError):
                got += peer.recv(4 * 1024)
            await asyncio.sleep(0)
        got += await read_all(peer, sum(sizes) + 32 * len(sizes) - len(got))
        for value, size in enumerate(sizes):
            assert set(got[32 : 32 + size]) == {value}
            del got[: 32 + size]


async def test_memory_may_be_overwritten_once_a_cancelled_send_has_raised():
    size, got = 3 * MIB, bytearray()
    source = filled(size, 1)

    def drain(most):
        with contextlib.suppress(BlockingIOError):
            while len(got) < most and (data := peer.recv(16 * 1024)):
                got.extend(data)

    async def send():
        try:
            await connection.send([tensor(1, source)])
        finally:
            # In the same turn of the loop others have the memory, and the kernel has room.
            source[:] = 2
            drain(2 * size)

    async with raw_peer() as (inbox, connection, peer):
        peer.setblocking(False)
        sock = connection._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        sending = asyncio.create_task(send())
        # To the last segment of the frame, of which the kernel has taken only a part.
        while connection.sent_bytes < size or not connection._paused:
            drain(len(got) + 1)
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await inbox.lost()
        got += await read_all(peer, 2 * size)
        assert set(got[32:]) == {1}
        assert len(got) < 32 + size


async def read_all(peer, size):
    loop, got = asyncio.get_running_loop(), bytearray()
    peer.setblocking(False)
    while len(got) < size:
        data = await loop.sock_recv(peer, MIB)
        if not data:
            break
        got += data
    return got
