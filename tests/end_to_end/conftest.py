"""A relay between a worker and its server that cuts, stalls and swallows."""

import asyncio

import pytest


class Chaos:
    """Relays TCP connections to a server until it is told to do worse.

    Attributes:
        url: What a worker connects to instead.
        cut_after: Bytes after which the next connection ends, by way ("up" is to the server); each is used once.
        accepted: Connections taken so far.
    """

    def __init__(self, server_url):
        self.host, _, port = server_url.removeprefix("aiops://").rpartition(":")
        self.port = int(port)
        self.cut_after = {}
        self.accepted = 0
        self.open = set()
        self._relays = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.url = f"aiops://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exception):
        self._server.close()
        self.cut()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def cut(self):
        for writer in self.open:
            writer.transport.abort()

    async def _relay(self, near_reader, near):
        self.accepted += 1
        self._relays.append(asyncio.current_task())
        try:
            far_reader, far = await asyncio.open_connection(self.host, self.port)
        except OSError:
            near.transport.abort()
            return
        self.open |= {near, far}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._carry(near_reader, far, "up"))
                tasks.create_task(self._carry(far_reader, near, "down"))
        except* (OSError, EOFError):
            pass
        finally:
            near.transport.abort()
            far.transport.abort()
            self.open -= {near, far}

    async def _carry(self, reader, writer, way):
        while True:
            data = await reader.read(65536)
            if not data:
                raise EOFError
            left = self.cut_after.get(way)
            if left is not None:
                # What is sent before the cut arrives: a reset would take it along.
                writer.write(data[:left])
                self.cut_after[way] = left - len(data)
                if left <= len(data):
                    del self.cut_after[way]
                    await writer.drain()
                    writer.close()
                    raise EOFError
            else:
                writer.write(data)
            await writer.drain()


@pytest.fixture
def chaos():
    """Make a relay to a server by its url, to be entered with ``async with``."""
    return Chaos
