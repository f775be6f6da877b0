"""A network namespace with a congestion control of our choice: the same for peers that would not ask for one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from aiops.bench.machine import TCP, congestion
from aiops.launch.netns import fresh, raise_interface

DEFAULT = "default"

# What everybody gets for a fair comparison: every Linux has it, and it does not pace loopback as bbr does (a third of
# its rate, at three times the processor time).
SAME = "reno"


@contextlib.contextmanager
def network(name: str) -> Iterator[str]:
    """Put the processes that are started inside into a network of their own, with loopback alone.

    Only this thread moves, and comes back at the end; the network lives as long as a process in it. It takes the
    privilege to make one (CAP_SYS_ADMIN); without it everything stays in the system's network.

    Args:
        name: The congestion control to set there; ``DEFAULT`` stays in the system's network.

    Yields:
        What is in force: "reno", or "system's bbr".
    """
    with contextlib.ExitStack() as stack:
        own = False
        if name != DEFAULT:
            with contextlib.suppress(OSError, AttributeError):
                stack.enter_context(_own(name))
                own = True
        yield congestion() if own else f"system's {congestion()}"


def possible(name: str) -> bool:
    """Return whether this process may make networks with this congestion control."""
    with network(name) as in_force:
        return in_force == name


@contextlib.contextmanager
def _own(name: str) -> Iterator[None]:
    with fresh():
        raise_interface("lo")
        (TCP / "tcp_congestion_control").write_text(name)
        yield
