"""Which congestion control is in force, with a system that says what it has."""

import socket

import pytest

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


async def test_both_ends_of_a_connection_use_what_was_asked_for():
    with socket.socket() as sock:
        have = congestion.in_force(sock)
    wanted = "reno" if have != "reno" else "bbr"
    try:
        congestion.check(wanted)
    except ConfigError:
        pytest.skip(f"this system does not allow {wanted}")
    network, made = TcpNet(), []
    options = {**OPTIONS, "congestion": wanted}
    listener = await network.listen(Inbox, made=lambda *both: made.append(both[1]), **options)
    connection = await network.connect(Inbox, **options)
    await until(lambda: made)
    assert (connection.congestion, made[0].congestion) == (wanted, wanted)
    connection.abort()
    made[0].abort()
    await listener.close()


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
