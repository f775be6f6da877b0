"""Binding and dialling TCP addresses: which is taken, which answers, and what is said if none does."""

import asyncio
import contextlib
import socket

import pytest

from aiops.errors import (
    ConfigError,
    ConnectFailed,
)
from aiops.transport import tcp
from tests.transport.kit import (
    OPTIONS,
    Inbox,
    accepting,
    ping,
    until,
)


async def test_a_taken_port_is_refused_by_host_and_port():
    async with accepting() as ((host, port), _):
        with pytest.raises(ConfigError) as caught:
            await tcp.listen(host, port, Inbox, made=lambda *_: None, **OPTIONS)
    assert str(caught.value) == (
        f"cannot bind {host}:{port}: Address already in use, is another server running there?"
    )


async def test_an_address_of_another_machine_cannot_be_bound():
    with pytest.raises(ConfigError, match=r"cannot bind 192\.0\.2\.1:80: "):
        await tcp.listen("192.0.2.1", 80, Inbox, made=lambda *_: None, **OPTIONS)


async def test_an_address_of_the_sixth_version_is_written_in_brackets():
    with pytest.raises(ConfigError, match=r"cannot bind \[2001:db8::1\]:80: "):
        await tcp.listen("2001:db8::1", 80, Inbox, made=lambda *_: None, **OPTIONS)
    with pytest.raises(ConnectFailed, match=r"cannot connect to \[::1\]:9: "):
        await tcp.connect([("::1", 9)], Inbox, **OPTIONS)


async def test_a_connection_names_its_peer():
    async with accepting() as ((host, port), accepted):
        inbox = Inbox()
        connection = await tcp.connect([(host, port)], lambda: inbox, **OPTIONS)
        assert connection.peer == f"127.0.0.1:{port}"
        await until(lambda: accepted)
        assert accepted[0][1].peer.startswith("127.0.0.1:")
        await connection.close()


async def test_the_first_address_that_answers_is_taken():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        async with accepting() as (address, _):
            connection = await tcp.connect([nobody.getsockname(), address], Inbox, **OPTIONS)
            assert connection.peer == f"127.0.0.1:{address[1]}"
            await connection.close()


async def test_every_address_of_a_name_is_tried(monkeypatch):
    async with accepting() as ((host, port), _):
        stands_for(monkeypatch, ["127.0.0.2", "127.0.0.3", host], port)
        made = []
        connection = await tcp.connect(
            [("server.example", port)], lambda: made.append(Inbox()) or made[-1], **OPTIONS
        )
        assert connection.peer == f"127.0.0.1:{port}"
        assert len(made) == 1
        await connection.close()


async def test_an_address_that_does_not_answer_costs_its_timeout_and_the_next_is_tried(monkeypatch):
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.2", 0), backlog=0) as deaf, contextlib.ExitStack() as stack:
        port = deaf.getsockname()[1]
        # With its queue full, a socket that nobody accepts from leaves further callers without an answer.
        for _ in range(3):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(deaf.getsockname())
        start = loop.time()
        stands_for(monkeypatch, ["127.0.0.2", "127.0.0.3"], port)
        with pytest.raises(ConnectFailed) as caught:
            await tcp.connect([("server.example", port)], Inbox, connect_timeout_s=0.1, **OPTIONS)
        assert 0.09 < loop.time() - start < 2.0
    assert str(caught.value) == (
        f"cannot connect to server.example:{port} at 127.0.0.2: no answer in 0.1 s; "
        f"server.example:{port} at 127.0.0.3: Connection refused"
    )


async def test_a_failure_to_connect_says_why_for_every_address():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        host, port = nobody.getsockname()
        made = []
        with pytest.raises(ConnectFailed) as caught:
            await tcp.connect([(host, port), (host, port)], made.append, **OPTIONS)
    refused = f"{host}:{port}: Connection refused"
    assert str(caught.value) == f"cannot connect to {refused}; {refused}"
    assert made == []


async def test_a_name_that_does_not_exist_is_a_failure_to_connect(monkeypatch):
    async def unknown(host, port, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    with pytest.raises(ConnectFailed, match="to moon:80: Name or service not known"):
        await tcp.connect([("moon", 80)], Inbox, **OPTIONS)


async def test_a_cancelled_connect_leaves_no_socket_behind(monkeypatch):
    opened, make = [], socket.socket

    def remember(*options, **more):
        opened.append(make(*options, **more))
        return opened[-1]

    async def never(sock, address):
        await asyncio.get_running_loop().create_future()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(socket, "socket", remember)
    monkeypatch.setattr(loop, "sock_connect", never)
    connecting = asyncio.create_task(tcp.connect([("127.0.0.1", 9)], Inbox, **OPTIONS))
    await until(lambda: opened)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert [sock.fileno() for sock in opened] == [-1]


async def test_a_receiver_that_cannot_be_made_leaves_no_socket_behind():
    def make():
        raise KeyError("a bug")

    async with accepting() as (address, accepted):
        with pytest.raises(KeyError, match="a bug"):
            await tcp.connect([address], make, **OPTIONS)
        await until(lambda: accepted)
        assert "between frames" in str(await accepted[0][0].lost())


async def test_many_workers_may_connect_at_once():
    async with accepting() as (address, accepted):
        connections = await asyncio.gather(
            *(tcp.connect([address], Inbox, **OPTIONS) for _ in range(100))
        )
        for number, connection in enumerate(connections):
            connection.post(ping(number))
        await until(lambda: len(accepted) == 100)
        for inbox, _ in accepted:
            await inbox.received(1)
        assert sorted(inbox.requests[0] for inbox, _ in accepted) == list(range(100))
        for connection in connections:
            await connection.close()


def stands_for(monkeypatch, hosts, port):
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def look_up(host, port, **options):
        if host != "server.example":
            return await resolve(host, port, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

    monkeypatch.setattr(loop, "getaddrinfo", look_up)
