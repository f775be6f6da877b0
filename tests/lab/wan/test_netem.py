"""Links by the kernel's netem: the commands it would take, since few kernels have it."""

import pytest

from aiops.errors import ConfigError
from aiops.lab.wan import netem
from aiops.lab.wan.link import Change, LinkSpec

LINK = LinkSpec(up_bits_s=20e6, down_bits_s=50e6, delay_s=0.025)


@pytest.mark.parametrize(
    ("link", "way", "words"),
    [
        # What waits, two products of 125 kB, and what flies, half of one, in packets of 1514 bytes.
        (LINK, "up", "limit 207 rate 20000000bit delay 25000us"),
        (LINK, "down", "limit 517 rate 50000000bit delay 25000us"),
        (
            LinkSpec(
                up_bits_s=1e6, down_bits_s=1e6, delay_s=0.1, jitter_s=0.01, loss=0.001,
                queue_bytes=15140,
            ),
            "up",
            "limit 19 rate 1000000bit delay 100000us 10000us loss 0.100000%",
        ),
    ],
)  # fmt: skip
def test_one_way_of_a_link_is_a_queue_of_the_sending_end(link, way, words):
    command = netem.qdisc(link, way, "wan0")
    assert " ".join(command) == f"tc qdisc add dev wan0 root netem {words}"


def test_a_worker_and_the_server_get_an_end_each():
    commands = [(space, " ".join(words)) for space, words in netem.commands([3, 4, 5], [LINK] * 2)]
    assert len(commands) == 16
    first = [words for space, words in commands[:5] if space == 3]
    assert first[0].startswith("ip link add wan0 mtu 1500 gso_max_segs 1 type veth peer name wan0 ")
    assert first[0].endswith("/fd/4")
    assert first[1:4] == [
        "ip address add 10.77.0.1/32 dev wan0",
        "ip link set wan0 up",
        "ip route add 10.77.0.10 dev wan0",
    ]
    assert first[4].startswith("tc qdisc add dev wan0 root netem limit 517 ")
    assert [space for space, _ in commands[5:8]] == [4] * 3
    assert [words for space, words in commands if space == 5][:2] == [
        "ip address add 10.77.0.11/24 dev wan0",
        "ip link set wan0 up",
    ]


def test_a_link_that_changes_is_refused():
    changing = LinkSpec(up_bits_s=1e6, down_bits_s=1e6, changes=(Change(at_s=1, loss=0.1),))
    with pytest.raises(ConfigError, match="link of worker 1 changes over time"):
        netem.check([LINK, changing])
