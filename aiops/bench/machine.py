"""Where a result was measured, and who else was busy there meanwhile."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import subprocess
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import msgspec

# What decides a number, in the order of the table's head.
PACKAGES = ("numpy", "uvloop", "msgspec", "torch", "scipy", "grpcio", "pyzmq", "hivemind")
TCP = Path("/proc/sys/net/ipv4")
_TICKS = os.sysconf("SC_CLK_TCK")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The fingerprint of a run.

    Attributes:
        processor: Model of the processor.
        cores: Cores this process may use.
        memory_gb: Memory of the machine, in 10^9 bytes.
        system: Kernel and its release.
        congestion: The system's default TCP congestion control.
        load: Load averages over 1, 5 and 15 minutes, before the run.
        python: Version of Python.
        packages: Versions of what is measured, by name.
        kernels: Which of our kernels run here.
        commit: The commit measured, with "+" where files differ from it; "" outside a clone.
    """

    processor: str
    cores: int
    memory_gb: float
    system: str
    congestion: str
    load: tuple[float, float, float]
    python: str
    packages: dict[str, str]
    kernels: str
    commit: str

    def lines(self) -> list[str]:
        """Return it for people."""
        packages = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        load = " ".join(f"{value:.2f}" for value in self.load)
        return [
            f"{self.processor}, {self.cores} cores, {self.memory_gb:.0f} GB, {self.system}, load {load}",
            f"congestion control {self.congestion}; kernels on {self.kernels}; Python {self.python}",
            f"{packages}; commit {self.commit or 'unknown'}",
        ]


def differences(then: Machine, now: Machine) -> list[str]:
    """Return in what two machines differ that changes ratios, for people."""
    decisive = {
        "processor": "processor",
        "cores": "cores",
        "congestion": "congestion control",
        "kernels": "kernels",
    }
    return [
        f"{name}: {getattr(then, field)} in the earlier run, {getattr(now, field)} here"
        for field, name in decisive.items()
        if getattr(then, field) != getattr(now, field)
    ]


def fingerprint() -> Machine:
    """Return the fingerprint of this machine and of what is installed on it."""
    from aiops import kernels

    return Machine(
        processor=processor(),
        cores=_cores(),
        memory_gb=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9,
        system=f"{platform.system()} {platform.release()}",
        congestion=congestion(),
        load=os.getloadavg(),
        python=platform.python_version(),
        packages=dict(_installed(PACKAGES)),
        kernels=kernels.simd_level(),
        commit=commit(),
    )


def processor() -> str:
    """Return the model of the processor."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/cpuinfo", encoding="utf-8") as f:
        return next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    return platform.machine()


def commit() -> str:
    """Return the commit of the code that runs, with "+" if files differ from it."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--exclude=*"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False, text=True).stdout.strip()
    return ""


def congestion() -> str:
    """Return the default congestion control of the network this thread is in."""
    try:
        return (TCP / "tcp_congestion_control").read_text().strip()
    except OSError:
        return "unknown"


def congestions() -> list[str]:
    """Return the congestion controls that an ordinary process may ask for."""
    try:
        return (TCP / "tcp_allowed_congestion_control").read_text().split()
    except OSError:
        return []


def available_bytes() -> int:
    """Return how much memory can be taken without swapping."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo", encoding="utf-8") as f:
        return 1024 * next(int(line.split()[1]) for line in f if line.startswith("MemAvailable"))
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cpu_s(sessions: Iterable[int]) -> tuple[float, float]:
    """Return the user and system time so far of all processes of these sessions, in seconds."""
    leaders, user, system = set(sessions), 0, 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) in leaders:
                user, system = user + int(fields[11]), system + int(fields[12])
    return user / _TICKS, system / _TICKS


def memory_bytes(pid: int, field: str) -> int:
    """Return a field of a process's status in bytes: "VmRSS" now, "VmHWM" at its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def forget_peak(pid: int) -> None:
    """Let "VmHWM" of a process start anew at what it has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


class Watch:
    """Counts the processor time that others took while we measured.

    Args:
        sessions: Leaders of the sessions of our processes, all alive now; this process counts by itself.
    """

    def __init__(self, sessions: Iterable[int] = ()) -> None:
        self._sessions = list(sessions)
        self._start = time.perf_counter()
        self._others = self._busy_s() - self._own_s()

    def foreign_cores(self) -> float:
        """Return how many cores others used since, on average; 0 where the system does not say.

        The system counts in ticks, so that on either end one may be missing: in a case of 20 ms that is a core.
        """
        others = self._busy_s() - self._own_s() - self._others - 2 / _TICKS
        return max(0.0, others / (time.perf_counter() - self._start))

    def _own_s(self) -> float:
        # A process that has failed meanwhile moves from the living to the children waited for.
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used) + sum(cpu_s(self._sessions))

    # Everything but idle and waiting for disks; time stolen by the host's other guests counts.
    @staticmethod
    def _busy_s() -> float:
        try:
            with open("/proc/stat", encoding="utf-8") as lines:
                user, nice, system, _, _, irq, soft, steal = map(int, lines.readline().split()[1:9])
        except OSError:
            return 0.0
        return (user + nice + system + irq + soft + steal) / _TICKS


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _installed(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)
