"""Which congestion control is in force, with a system that says what it has."""

import contextlib
import socket

import pytest

import aiops
from aiops.errors import ConfigError
from aiops.transport import congestion
from tests.transport.kit import OPTIONS, Inbox, TcpNet, until

pytestmark = pytest.mark.skipif(
    congestion._OPTION is None, reason="this system has no TCP_CONGESTION"
)


class Sock:
    """A socket of a system whose default and whose allowed congestion controls are given."""

    def __init__(self, default, allowed, peer="127.0.0.1"):
        self.name, self._allowed, self._peer = default.encode(), allowed, peer

    def getsockopt(self, level, option, size):
        return self.name + b"\0" * (size - len(self.name))

    def setsockopt(self, level, option, value):
        if value.decode() not in self._allowed:
            raise PermissionError
        self.name = value

    def getpeername(self):
        return (self._peer, 4711)


@pytest.mark.parametrize(
    ("default", "allowed", "peer", "wanted", "then"),
    [
        pytest.param("bbr", ["reno", "bbr"], "127.0.0.1", None, "reno", id="paced loopback"),
        pytest.param("bbr", ["reno", "bbr"], "::1", None, "reno", id="paced loopback of IPv6"),
        pytest.param(
            "bbr", ["reno", "bbr"], "10.0.0.1", None, "bbr", id="a real link is left alone"
        ),
        pytest.param("cubic", ["reno", "cubic"], "127.0.0.1", None, "cubic", id="unpaced is fine"),
        pytest.param("bbr", ["bbr"], "127.0.0.1", None, "bbr", id="nothing else is allowed"),
        pytest.param("bbr", ["reno", "bbr"], "127.0.0.1", "bbr", "bbr", id="asked for"),
        pytest.param("cubic", ["reno", "cubic"], "10.0.0.1", "reno", "reno", id="asked for afar"),
    ],
)
def test_the_fastest_one_is_chosen_on_loopback_and_the_one_asked_for_everywhere(
    default, allowed, peer, wanted, then
):
    sock = Sock(default, allowed, peer)
    congestion.choose(sock, wanted)
    assert congestion.in_force(sock) == then


def test_one_that_the_system_does_not_have_is_refused_by_name():
    with pytest.raises(ConfigError, match="congestion is 'warp', which is not among those"):
        congestion.check("warp")


@pytest.fixture
def others():
    """Return one that is not what loopback gets unless told, and what loopback gets."""
    with socket.socket() as sock:
        usual = congestion.in_force(sock)
    usual = congestion.UNPACED if usual in congestion.PACED else usual
    for name in ("reno", "cubic", "bbr"):
        with contextlib.suppress(ConfigError):
            congestion.check(name)
            if name != usual:
                return name, usual
    pytest.skip(f"this system allows {usual} alone")


async def test_both_ends_of_a_connection_use_what_was_asked_for(others):
    wanted, _ = others
    network, made = TcpNet(), []
    options = {**OPTIONS, "congestion": wanted}
    listener = await network.listen(Inbox, made=lambda *both: made.append(both[1]), **options)
    connection = await network.connect(Inbox, **options)
    await until(lambda: made)
    assert (connection.congestion, made[0].congestion) == (wanted, wanted)
    connection.abort()
    made[0].abort()
    await listener.close()


@pytest.mark.parametrize("told", ["server", "worker"])
async def test_each_end_uses_what_it_was_told_and_the_other_one_what_is_usual(others, told):
    wanted, usual = others
    options = {end: {"congestion": wanted} if end == told else {} for end in ("server", "worker")}
    async with (
        aiops.serve(shared_memory=False, **options["server"]) as server,
        aiops.connect(server.url, **options["worker"]) as ps,
    ):
        (peer,) = server.service.peers
        used = {
            "server": peer.connection.congestion,
            "worker": ps._link._line.connection.congestion,
        }
        assert used == {end: wanted if end == told else usual for end in used}


def test_both_doors_refuse_one_that_the_system_does_not_have_before_any_socket_opens():
    for door in (
        lambda: aiops.serve(congestion="warp"),
        lambda: aiops.connect("aiops://localhost", congestion="warp"),
    ):
        with pytest.raises(ConfigError, match="congestion is 'warp'"):
            door()


@pytest.mark.parametrize(("peer", "bounded"), [("127.0.0.1", True), ("10.0.0.1", False)])
def test_what_is_queued_is_bounded_on_loopback_alone(peer, bounded):
    sock, options = Sock("reno", [], peer), []
    sock.setsockopt = lambda level, option, value: options.append((option, value))
    congestion.bound_queue(sock)
    assert options == ([(socket.SO_SNDBUF, congestion.QUEUE_BYTES)] if bounded else [])


async def test_both_ends_of_a_connection_over_loopback_queue_no_more_than_that():
    # What the kernel makes of it.
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, congestion.QUEUE_BYTES)
        bounded = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    network, made = TcpNet(), []
    listener = await network.listen(Inbox, made=lambda *both: made.append(both[1]), **OPTIONS)
    connection = await network.connect(Inbox, **OPTIONS)
    await until(lambda: made)
    for end in (connection, made[0]):
        sock = end._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == bounded
        end.abort()
    await listener.close()
