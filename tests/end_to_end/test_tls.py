"""Servers and workers over mutual TLS, on both loops, through the two doors and the command line's."""

import asyncio
import ssl
import time

import numpy as np
import pytest

import aiops
from aiops.errors import BadHandshake, ConfigError, ConnectFailed, Rejected
from tests.certificates import Authority

START = {"w": np.zeros(600_000, np.float32), "b": np.zeros(3, np.float32)}
ONES = {name: np.ones_like(value) for name, value in START.items()}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


async def test_workers_with_a_certificate_train_over_mutual_tls(authority):
    async with aiops.serve(
        tls=authority.server(), sync="bulk", min_workers=2, shards=2, work="fixed:1"
    ) as server:
        assert server.url.startswith("aiops+tls://127.0.0.1:")
        tls = authority.worker()
        async with (
            aiops.connect(server.url, name="a", tls=tls) as a,
            aiops.connect(server.url.replace("127.0.0.1", "localhost"), name="b", tls=tls) as b,
        ):
            for worker in (a, b):
                await worker.init(START)
            for round_ in (1, 2):
                async with asyncio.TaskGroup() as tasks:
                    results = [tasks.create_task(pushed(worker)) for worker in (a, b)]
                for result in results:
                    for name, value in result.result().items():
                        np.testing.assert_array_equal(value, np.full_like(START[name], round_))


async def pushed(worker):
    return await worker.sync(ONES)


async def test_a_cut_connection_is_made_anew_over_tls(authority):
    async with (
        aiops.serve(tls=authority.server(), work="fixed:1") as server,
        aiops.connect(server.url, tls=authority.worker()) as ps,
    ):
        await ps.init(START)
        ps._link.cut()
        params = await ps.sync(ONES)
        assert (params["w"] == 1).all()
        assert ps._link.connections == 2


async def test_contexts_of_ones_own_are_used(authority):
    served, dialled = (
        ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    own = authority.server(mutual=False)
    served.load_cert_chain(own.cert, own.key)
    dialled.load_verify_locations(authority.file)
    async with aiops.serve(tls=served) as server, aiops.connect(server.url, tls=dialled) as ps:
        await ps.init(START)


async def test_the_token_is_asked_for_under_tls_too(authority):
    tls = aiops.Tls(ca=authority.file)
    async with aiops.serve(tls=authority.server(mutual=False), token="secret") as server:
        with pytest.raises(Rejected, match="this server asks for a token"):
            await aiops.connect(server.url, tls=tls).__aenter__()
        async with aiops.connect(server.url.replace("//", "//secret@"), tls=tls) as ps:
            assert ps.worker == 0


@pytest.mark.parametrize(
    ("mutual", "tls", "scheme", "kind", "sentence"),
    [
        pytest.param(
            True, "no certificate", "aiops+tls", Rejected, "refuses our certificate", id="no cert"
        ),
        pytest.param(
            False,
            "system",
            "aiops+tls",
            Rejected,
            "its certificate is not accepted",
            id="untrusted",
        ),
        pytest.param(
            False, None, "aiops", BadHandshake, r"whose url begins with aiops\+tls", id="plain"
        ),
    ],
)
async def test_a_worker_that_cannot_get_in_is_told_at_once_and_does_not_dial_again(
    authority, mutual, tls, scheme, kind, sentence
):
    given = {"no certificate": aiops.Tls(ca=authority.file), "system": aiops.Tls(), None: None}
    async with aiops.serve(tls=authority.server(mutual=mutual)) as server:
        url = scheme + server.url.removeprefix("aiops+tls")
        start = time.perf_counter()
        with pytest.raises(kind, match=sentence):
            await aiops.connect(url, tls=given[tls]).__aenter__()
        assert time.perf_counter() - start < 5


async def test_tls_to_a_server_without_it_is_told_at_once(authority):
    async with aiops.serve() as server:
        url = server.url.replace("aiops://", "aiops+tls://")
        with pytest.raises(BadHandshake, match="its url begins with aiops://"):
            await aiops.connect(url, tls=authority.worker()).__aenter__()


async def test_a_server_that_hangs_up_without_a_word_may_not_have_liked_the_certificate(authority):
    from aiops.transport.certificate import server_context

    async def accept(reader, writer):
        writer.transport.abort()

    context = server_context(authority.server())
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    async with server:
        host, port = server.sockets[0].getsockname()
        worker = aiops.connect(
            f"aiops+tls://{host}:{port}", tls=authority.worker(), connect_timeout_s=0.3
        )
        with pytest.raises(
            ConnectFailed, match=r"before its welcome.*where our certificate is not accepted"
        ):
            await worker.__aenter__()


def test_what_does_not_go_together_is_refused_before_any_socket_opens(authority):
    with pytest.raises(ConfigError, match=r"the url is aiops://, which goes without"):
        aiops.connect("aiops://localhost", tls=authority.worker())
    with pytest.raises(ConfigError, match=r"cannot read the authorities /nowhere/ca\.pem"):
        aiops.connect("aiops+tls://localhost", tls=aiops.Tls(ca="/nowhere/ca.pem"))
    with pytest.raises(ConfigError, match="a server needs one to show"):
        aiops.serve(tls=aiops.Tls(ca=authority.file))
