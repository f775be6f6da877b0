"""What is TLS's own: who accepts whom, which sentence both ends tell about it, and how a stream may end."""

import asyncio
import contextlib
import ssl
import warnings

import pytest

from aiops.errors import BadHandshake, ConnectFailed, ConnectionLost, Rejected
from aiops.transport import tcp
from aiops.transport.certificate import Tls, client_context, server_context
from aiops.transport.lane import Lane
from aiops.transport.tls import OWED_BYTES, RECEIVE_BYTES
from tests.certificates import Authority, contexts, expired
from tests.transport.kit import MIB, OPTIONS, Inbox, accepting, filled, ping, tensor, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("theirs"))


@contextlib.asynccontextmanager
async def pair(served, dialled, **options):
    """Connect over TLS; gives both inboxes and connections."""
    near = Inbox()
    async with accepting(tls=served) as (address, accepted):
        connection = await tcp.connect(
            [address], lambda: near, tls=dialled, **{**OPTIONS, **options}
        )
        await until(lambda: accepted)
        ((far, other),) = accepted
        try:
            yield near, connection, far, other
        finally:
            connection.abort()
            await near.lost()
            near.release()


async def refused(served, dialled):
    """Return how a connection that must not come about fails at the dialling end."""
    made = []
    async with accepting(tls=served) as (address, accepted):
        with pytest.raises((Rejected, BadHandshake, ConnectFailed)) as caught:
            await tcp.connect([address], lambda: made.append(1), tls=dialled, **OPTIONS)
        await asyncio.sleep(0.02)
        assert accepted == made == []
    assert str(caught.value).startswith(f"cannot connect to 127.0.0.1:{address[1]}: ")
    return caught.value


@contextlib.asynccontextmanager
async def impostor(answer, *, most=-1):
    """Listen as no server of ours; gives the address, and an event for when the dialler is gone."""
    gone = asyncio.Event()

    async def accept(reader, writer):
        writer.write(answer)
        with contextlib.suppress(ConnectionResetError):
            await reader.read(most)
        writer.close()
        gone.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname(), gone
        await gone.wait()
        await asyncio.sleep(0)


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "aiops.transport"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("mutual", [True, False])
async def test_bytes_of_every_size_arrive_whatever_the_version(authority, version, mutual):
    served = server_context(authority.server(mutual=mutual))
    dialled = client_context(authority.worker() if mutual else Tls(ca=authority.file))
    served.maximum_version = version
    async with pair(served, dialled) as (near, connection, far, other):
        sizes = [0, 1, 16_383, 16_384, 16_385, RECEIVE_BYTES, 3 * MIB + 1]
        for key, size in enumerate(sizes):
            await connection.send([tensor(key, filled(size, key))])
            await other.send([tensor(key, filled(size, key))])
        for inbox in (near, far):
            await inbox.received(len(sizes))
            assert inbox.payloads == [bytes(filled(size, key)) for key, size in enumerate(sizes)]
        engine = connection._transport.get_extra_info("ssl_object")
        assert engine.version() == {2: "TLSv1.2", 3: "TLSv1.3"}[version - 0x0301]


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        pytest.param(
            "expired", "its certificate is not accepted: certificate has expired", id="old"
        ),
        pytest.param(
            "elsewhere",
            "its certificate is not accepted: IP address mismatch, certificate is not valid for "
            "'127.0.0.1'",
            id="another host's",
        ),
        pytest.param(
            "stranger",
            "its certificate is not accepted: self-signed certificate in certificate chain",
            id="another authority's",
        ),
    ],
)
async def test_a_server_that_is_not_trusted_is_told_so_and_never_greeted(
    authority, stranger, caplog, server, sentence
):
    tls = {
        "expired": lambda: authority.server("old", **expired()),
        "elsewhere": lambda: authority.server("elsewhere", "example.org"),
        "stranger": lambda: stranger.server(),
    }[server]()
    error = await refused(server_context(tls), client_context(authority.worker()))
    assert isinstance(error, Rejected)
    assert str(error).endswith(sentence)
    (line,) = told(caplog)
    assert "is turned away: it refuses our certificate: " in line


@pytest.mark.parametrize(
    ("worker", "server_says", "worker_hears"),
    [
        pytest.param(
            "none", "it shows no certificate, and this", "certificate required", id="none"
        ),
        pytest.param("expired", "not accepted: certificate has expired", "expired", id="old"),
        pytest.param(
            "stranger", "not accepted: unable to get local iss", "unknown ca", id="theirs"
        ),
    ],
)
async def test_a_worker_that_is_not_trusted_hears_it_after_its_handshake(
    authority, stranger, caplog, worker, server_says, worker_hears
):
    own = {
        "none": lambda: Tls(ca=authority.file),
        "expired": lambda: authority.worker("late", **expired()),
        "stranger": lambda: Tls(cert=(w := stranger.worker()).cert, key=w.key, ca=authority.file),
    }[worker]()
    near = Inbox()
    async with accepting(tls=server_context(authority.server())) as (address, accepted):
        connection = await tcp.connect([address], lambda: near, tls=client_context(own), **OPTIONS)
        connection.post(ping(1))
        lost = await near.lost()
        assert isinstance(lost, Rejected)
        assert str(lost).startswith(f"{connection.peer} refuses our certificate: ")
        assert worker_hears in str(lost)
        assert accepted == []
    (line,) = told(caplog)
    assert server_says in line


async def test_a_worker_that_is_not_trusted_hears_it_in_its_handshake_under_tls_1_2(authority):
    served = server_context(authority.server())
    served.maximum_version = ssl.TLSVersion.TLSv1_2
    error = await refused(served, client_context(Tls(ca=authority.file)))
    assert isinstance(error, Rejected)
    assert "it refuses our greeting: " in str(error)


async def test_a_version_that_is_too_old_is_refused(authority, caplog):
    dialled = client_context(authority.worker())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        dialled.minimum_version = dialled.maximum_version = ssl.TLSVersion.TLSv1_1
    dialled.set_ciphers("ALL:@SECLEVEL=0")
    error = await refused(server_context(authority.server()), dialled)
    assert "protocol version" in str(error)
    assert "unsupported protocol" in told(caplog)[0]


async def test_tls_to_a_port_without_it_is_told_at_once(authority):
    inbox = Inbox()
    async with accepting() as (address, accepted):
        with pytest.raises(BadHandshake, match=r"does not speak TLS, its url begins with aiops://"):
            await tcp.connect(
                [address], lambda: inbox, tls=client_context(authority.worker()), **OPTIONS
            )
        await until(lambda: accepted)
        lost = await accepted[0][0].lost()
        assert isinstance(lost, BadHandshake)
        assert "this looks like TLS on a plain port" in str(lost)


async def test_a_worker_without_tls_is_told_what_its_url_lacks(authority, caplog):
    inbox = Inbox()
    async with accepting(tls=server_context(authority.server())) as (address, accepted):
        connection = await tcp.connect([address], lambda: inbox, **OPTIONS)
        connection.post(ping(1))
        lost = await inbox.lost()
        assert isinstance(lost, BadHandshake)
        assert "a port with TLS, whose url begins with aiops+tls://" in str(lost)
        assert accepted == []
    (line,) = told(caplog)
    assert "it speaks without TLS, its url must begin with aiops+tls://" in line


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x00\x05hello", id="a record of nonsense"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x28", id="an alert"),
        pytest.param(b"\x16", id="one byte"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_a_stranger_at_a_port_with_tls_is_turned_away(authority, caplog, noise):
    async with accepting(tls=server_context(authority.server())) as (address, accepted):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(noise)
        writer.write_eof()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        await until(lambda: told(caplog))
        assert accepted == []


async def test_a_server_that_says_something_else_is_no_server_of_ours():
    async with impostor(b"SSH-2.0-OpenSSH_9.6\r\n") as (address, _):
        with pytest.raises(BadHandshake, match="does not speak TLS"):
            await tcp.connect([address], Inbox, tls=contexts()[1], **OPTIONS)


@pytest.mark.parametrize(
    ("most", "timeout_s", "sentence"),
    [
        pytest.param(-1, 0.1, r"127.0.0.1:\d+: no TLS handshake in 0.1 s", id="says nothing"),
        pytest.param(5000, 5.0, r"127.0.0.1:\d+: it hung up during the TLS hand", id="hangs up"),
    ],
)
async def test_a_server_that_does_not_shake_hands_may_be_tried_again(most, timeout_s, sentence):
    options = {**OPTIONS, "tls": contexts()[1], "connect_timeout_s": timeout_s}
    async with impostor(b"", most=most) as (address, _):
        with pytest.raises(ConnectFailed, match=sentence):
            await tcp.connect([address], Inbox, **options)


async def test_the_next_host_is_tried_and_one_that_may_answer_later_is_worth_a_retry(
    authority, stranger
):
    dialled = client_context(authority.worker())
    inbox, nobody = Inbox(), ("127.0.0.1", 1)
    async with (
        accepting(tls=server_context(stranger.server())) as (theirs, _),
        accepting(tls=server_context(authority.server())) as (ours, _),
    ):
        with pytest.raises(ConnectFailed, match=r"not accepted.*; 127.0.0.1:1: Connection refused"):
            await tcp.connect([theirs, nobody], Inbox, tls=dialled, **OPTIONS)
        connection = await tcp.connect([theirs, ours], lambda: inbox, tls=dialled, **OPTIONS)
        assert connection.peer.endswith(str(ours[1]))
        await connection.close()


async def test_a_dial_that_is_cancelled_in_its_handshake_leaves_nothing_behind():
    async with impostor(b"") as (address, gone):
        dialling = asyncio.create_task(tcp.connect([address], Inbox, tls=contexts()[1], **OPTIONS))
        await asyncio.sleep(0.05)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await gone.wait()


async def test_a_listener_that_closes_drops_who_is_still_shaking_hands():
    listener = await tcp.listen(
        "127.0.0.1", 0, Inbox, made=lambda *_: None, tls=contexts()[0], **OPTIONS
    )
    reader, writer = await asyncio.open_connection(*listener.addresses[0])
    await asyncio.sleep(0.02)
    await listener.close()
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


async def test_who_does_not_finish_the_handshake_is_dropped(monkeypatch, caplog):
    monkeypatch.setattr("aiops.transport.secure.HANDSHAKE_S", 0.1)
    async with accepting(tls=contexts()[0]) as (address, accepted):
        reader, writer = await asyncio.open_connection(*address)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert accepted == []
    assert "is turned away: no TLS handshake in 0.1 s" in told(caplog)[0]


async def test_a_stream_that_is_cut_off_is_not_taken_for_one_that_was_ended():
    served, dialled = contexts()
    async with pair(served, dialled) as (near, connection, far, other):
        other.post(ping(1))
        await near.received(1)
        other._transport._beneath.abort()
        lost = await near.lost()
        assert isinstance(lost, ConnectionLost)
        assert str(lost) == (
            f"connection to {connection.peer} was lost between frames: "
            "the stream ended without TLS's goodbye"
        )
        await far.lost()


async def test_a_connection_that_ends_before_the_first_byte_may_be_a_certificate_refused():
    served, dialled = contexts()
    async with pair(served, dialled) as (near, _, far, other):
        other._transport._beneath.abort()
        assert "where our certificate is not accepted" in str(await near.lost())
        await far.lost()


async def test_ciphertext_that_was_changed_on_its_way_ends_the_connection():
    served, dialled = contexts()
    async with pair(served, dialled) as (near, connection, far, other):
        other.post(ping(1))
        await near.received(1)
        # A record of the right form that the other end never made.
        connection._transport._beneath.write(b"\x17\x03\x03\x00\x20" + bytes(32))
        lost = await far.lost()
        assert isinstance(lost, ConnectionLost)
        assert "TLS failed, decryption failed or bad record mac" in str(lost)
        # The one that sent it is told, or finds the stream cut off.
        assert isinstance(await near.lost(), ConnectionLost)


async def test_a_reader_that_pauses_inside_what_has_come_gets_the_rest_when_it_resumes():
    async def send(connection):
        await connection.send([(ping(number), ()) for number in range(5)])
        await connection.send([tensor(number, filled(100_000, 1)) for number in range(5)])
        await connection.close()

    served, dialled = contexts()
    async with pair(served, dialled) as (near, connection, _, other), asyncio.TaskGroup() as tasks:
        near.on_frame = lambda frame: connection.pause_reading()
        tasks.create_task(send(other))
        pauses = 0
        while not near.losses:
            await asyncio.sleep(0.002)
            pauses += not connection._transport.is_reading()
            connection.resume_reading()
        assert pauses > 3
        assert "closed the connection between frames" in str(await near.lost())
        assert len(near.frames) == 10


async def test_no_connection_under_tls_uses_a_lane():
    served, dialled = contexts()
    lane = Lane("unused")
    async with pair(served, dialled, lanes=(lane,)) as (_, connection, far, _other):
        await connection.send([tensor(1, filled(4 * MIB, 1))])
        await far.received(1)
        assert lane._thread is None


class Owing:
    """An engine that has something to answer to whatever it reads, as to a key update."""

    def __init__(self, stream):
        self._tls, self._outgoing = stream._tls, stream._outgoing

    def __getattr__(self, name):
        return getattr(self._tls, name)

    def read(self, *args):
        got = self._tls.read(*args)
        self._outgoing.write(bytes(64 * 1024))
        return got


async def test_a_peer_that_asks_for_answers_and_reads_none_is_owed_no_more_than_a_limit():
    served, dialled = contexts()
    async with pair(served, dialled) as (near, connection, far, other):
        connection._transport._beneath.pause_reading()
        stream = other._transport
        stream._tls = Owing(stream)
        owed = 0
        while not far.losses and owed < 2 * OWED_BYTES:
            owed = max(owed, stream.get_write_buffer_size())
            connection.post(ping(1))
            await asyncio.sleep(0.001)
        assert OWED_BYTES // 2 < owed <= OWED_BYTES
        assert "TLS failed: the peer does not read" in str(await far.lost())
        connection._transport._beneath.resume_reading()
        await near.lost()


@pytest.mark.parametrize("how", ["abort", "cancel", "idle timeout"])
async def test_a_goodbye_that_the_peer_does_not_read_ends_all_the_same(how):
    served, dialled = contexts()
    idle_s = 0.2 if how == "idle timeout" else 30.0
    async with pair(served, dialled, idle_timeout_s=idle_s) as (near, connection, _, other):
        other._transport._beneath.pause_reading()
        while not connection._paused:
            connection.send_now([(bytes(60_000), ())])
            await asyncio.sleep(0)
        # As where the kernel has taken all of it and has no room for a goodbye.
        connection._paused = False
        async with asyncio.timeout(5):
            closing = asyncio.ensure_future(connection.close())
            if how != "idle timeout":
                await asyncio.wait([closing], timeout=0.05)
                assert not closing.done()
                (connection.abort if how == "abort" else closing.cancel)()
            await asyncio.wait([closing])
            assert closing.cancelled() == (how == "cancel")
            assert await near.lost() is None
