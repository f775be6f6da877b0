"""Links that the kernel emulates: veth pairs with netem. Not tried on a kernel that has netem: only its commands are.

The server's end of worker k's pair is ``wan<k>``, the worker's ``wan0``; each end delays what it sends.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
from collections.abc import Iterator, Sequence

from aiops.errors import ConfigError
from aiops.lab.wan.address import PREFIX_BITS, address
from aiops.lab.wan.link import PACKET_BYTES, LinkSpec, Way
from aiops.lab.wan.tun import NAME
from aiops.launch.netns import fresh, inside


def available() -> bool:
    """Return whether this kernel has netem and veth, and lets us use them."""
    probe = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    with contextlib.suppress(OSError), fresh():
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    return False


def check(links: Sequence[LinkSpec]) -> None:
    """Refuse what these links cannot do.

    Raises:
        ConfigError: A link changes over time.
    """
    for worker, link in enumerate(links):
        if link.changes:
            raise ConfigError(
                f"the link of worker {worker} changes over time, which kind netem does not"
            )


def qdisc(link: LinkSpec, way: Way, device: str) -> list[str]:
    """Return the command that makes a device send like one way of a link.

    netem counts in its limit what is on its way besides what waits.
    """
    flying_bytes = link.rate(way) * link.delay_s / 8
    limit = math.ceil((link.queue(way) + flying_bytes) / PACKET_BYTES)
    command = ["tc", "qdisc", "add", "dev", device, "root", "netem", "limit", str(limit)]
    command += ["rate", f"{link.rate(way):.0f}bit", "delay", f"{link.delay_s * 1e6:.0f}us"]
    if link.jitter_s:
        command.append(f"{link.jitter_s * 1e6:.0f}us")
    if link.loss:
        command += ["loss", f"{link.loss * 100:.6f}%"]
    return command


def server_commands(worker: int, link: LinkSpec, peer: str) -> list[list[str]]:
    """Return what is run in the server's namespace for one worker.

    Args:
        worker: Its index.
        link: What its link is like.
        peer: Path of its namespace.
    """
    near = f"wan{worker}"
    # Packets of one line each: netem would lose, delay and count what is segmented later as one.
    plain = ["mtu", "1500", "gso_max_segs", "1"]
    return [
        [
            "ip",
            "link",
            "add",
            near,
            *plain,
            "type",
            "veth",
            "peer",
            "name",
            NAME,
            *plain,
            "netns",
            peer,
        ],
        ["ip", "address", "add", f"{address('server')}/32", "dev", near],
        ["ip", "link", "set", near, "up"],
        ["ip", "route", "add", address(worker), "dev", near],
        qdisc(link, "down", near),
    ]


def worker_commands(worker: int, link: LinkSpec) -> list[list[str]]:
    """Return what is run in a worker's namespace."""
    return [
        ["ip", "address", "add", f"{address(worker)}/{PREFIX_BITS}", "dev", NAME],
        ["ip", "link", "set", NAME, "up"],
        qdisc(link, "up", NAME),
    ]


def commands(spaces: Sequence[int], links: Sequence[LinkSpec]) -> Iterator[tuple[int, list[str]]]:
    """Yield what makes the links: in which namespace which command is run.

    Args:
        spaces: Descriptors of the namespaces, the server's first.
        links: What each worker's link is like.
    """
    server, *workers = spaces
    for worker, (space, link) in enumerate(zip(workers, links, strict=True)):
        peer = f"/proc/{os.getpid()}/fd/{space}"
        for command in server_commands(worker, link, peer):
            yield server, command
        for command in worker_commands(worker, link):
            yield space, command


def run(space: int, command: list[str]) -> None:
    """Run one of them.

    Raises:
        ConfigError: It failed.
    """
    with inside(space):
        done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode:
        raise ConfigError(f"{' '.join(command)} failed: {done.stderr.strip()}")
