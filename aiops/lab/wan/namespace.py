"""The network namespaces of an emulated WAN: made, set up, entered by commands, and emptied in the end.

They have no names, only descriptors: they are gone with the processes that hold them, so there is nothing to sweep up
after a crash.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiops.errors import ConfigError
from aiops.launch.netns import fresh, here, raise_interface

_NET = Path("/proc/sys/net")
_ALLOWED = _NET / "ipv4/tcp_allowed_congestion_control"

# How often a congestion control is chosen before another process is believed to forbid it for good.
ATTEMPTS = 5

# Both belong to util-linux; entering takes them 2 ms. `ip netns exec` wants a name and mounts /sys anew.
TOOLS = ("nsenter", "setpriv")

# A process that is killed while it forks leaves another: so often they are looked for.
ROUNDS = 50
ROUND_S = 0.02


def make(*, congestion: str | None, slow_start_after_idle: bool | None) -> int:
    """Make a namespace with loopback up.

    Args:
        congestion: TCP's congestion control there; None for the system's.
        slow_start_after_idle: Whether a connection that has been silent for long starts slowly anew; None for the
            system's way, which is to do so.

    Returns:
        Its descriptor, which the caller closes.

    Raises:
        ConfigError: The kernel has no such congestion control.
        OSError: There is no privilege to make one.
    """
    with fresh():
        raise_interface("lo")
        # No stray packets of IPv6's own on the links, where it exists.
        with contextlib.suppress(OSError):
            (_NET / "ipv6/conf/all/disable_ipv6").write_text("1")
        # Else a connection begins with what an earlier one to the same address ended with.
        (_NET / "ipv4/tcp_no_metrics_save").write_text("1")
        if slow_start_after_idle is not None:
            setting = _NET / "ipv4/tcp_slow_start_after_idle"
            setting.write_text(str(int(slow_start_after_idle)))
        # This descriptor goes on meaning the setting of this namespace.
        chosen = os.open(_NET / "ipv4/tcp_congestion_control", os.O_WRONLY)
        space = here()
    try:
        if congestion is not None:
            _choose(congestion, chosen)
    except BaseException:
        os.close(space)
        raise
    finally:
        os.close(chosen)
    return space


def congestion_here() -> str:
    """Return the default congestion control of the namespace this thread is in."""
    return (_NET / "ipv4/tcp_congestion_control").read_text().strip()


def prefix(descriptor: int) -> list[str]:
    """Return the command that runs the one behind it in a namespace of this process, and ends it with this process.

    Exactly: with the thread that starts it, which is the loop's for `launch.process.Child`.
    """
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    return ["nsenter", f"--net={path}", "setpriv", "--pdeathsig", "KILL"]


def missing_tools() -> list[str]:
    """Return the commands that :func:`prefix` needs and the system lacks."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def end_all(namespaces: Sequence[int]) -> None:
    """Kill whoever is in these namespaces, but for this process, and wait a moment for them to be gone.

    Args:
        namespaces: Descriptors of them.
    """
    numbers = {os.fstat(descriptor).st_ino for descriptor in namespaces}
    numbers.discard(Path("/proc/self/ns/net").stat().st_ino)
    for _ in range(ROUNDS):
        pids = _inhabitants(numbers)
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(ROUND_S)


def _inhabitants(numbers: set[int]) -> list[int]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        # One that has ended is in no namespace, and one that is gone has no entry.
        with contextlib.suppress(OSError):
            if (entry / "ns/net").stat().st_ino in numbers:
                pids.append(int(entry.name))
    return [pid for pid in pids if pid != os.getpid()]


def _choose(congestion: str, setting: int) -> None:
    for _ in range(ATTEMPTS):
        try:
            os.write(setting, congestion.encode())
        except FileNotFoundError:
            available = (_NET / "ipv4/tcp_available_congestion_control").read_text().split()
            raise ConfigError(
                f"congestion is {congestion!r}, this kernel has {', '.join(sorted(available))}"
            ) from None
        except PermissionError:
            with _allowed(congestion), contextlib.suppress(PermissionError):
                os.write(setting, congestion.encode())
                return
        else:
            return
    raise ConfigError(f"congestion is {congestion!r}, {_ALLOWED} does not allow it")


# A namespace may use what every user may: for the moment of choosing, this is among it. Another process that does the
# same may put the list back in between.
@contextlib.contextmanager
def _allowed(congestion: str) -> Iterator[None]:
    try:
        before = _ALLOWED.read_text()
        _ALLOWED.write_text(f"{before.strip()} {congestion}")
    except OSError as error:
        raise ConfigError(
            f"congestion is {congestion!r}, {_ALLOWED} does not allow it: {error.strerror}"
        ) from None
    try:
        yield
    finally:
        _ALLOWED.write_text(before)
