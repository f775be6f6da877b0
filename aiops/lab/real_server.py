"""The real lab's server process: the shipped server, which its parent may look into over a pipe."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from aiops.api.serving import Server, serve
from aiops.lab.talk import Look, Seen, Serve, Serving
from aiops.launch.process import say
from aiops.sync.thread import loop_factory


async def work(job: Serve) -> None:
    """Serve one run until stdin ends."""
    config = job.method.config(job.n_workers)
    # The first worker brings the parameters, which all make from the same seed.
    async with serve(job.host, config=config, shared_memory=False) as server:
        port = int(server.url.rsplit(":", 1)[1])
        say(Serving(port=port))
        decoder = msgspec.json.Decoder(Look)
        while line := await asyncio.to_thread(sys.stdin.readline):
            say(_seen(server, decoder.decode(line).version))


def _seen(server: Server, version: int) -> Seen:
    newer = server.version > version
    connections = [peer.connection for peer in server.service.peers]
    return Seen(
        version=server.version,
        flat=server.service.store.vector().astype("<f4").tobytes() if newer else None,
        up_bytes=sum(connection.received_bytes for connection in connections),
        down_bytes=sum(connection.sent_bytes for connection in connections),
    )


def main() -> None:
    """Do the one job on stdin."""
    job = msgspec.json.decode(sys.stdin.readline(), type=Serve)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work(job))


if __name__ == "__main__":
    main()
