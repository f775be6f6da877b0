"""From a stream into a buffer, and out of it in batches: the task that reads while the worker trains."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from aiops.errors import AiopsError, ConfigError
from aiops.stream.buffer import Buffer
from aiops.stream.decode import Sample, Samples

T = TypeVar("T")

# A source with much waiting never suspends its reader: after so many samples the others of the loop have a turn.
TURN = 64


class Intake(Generic[T]):
    """Fills a buffer from a stream, pausing the source while the buffer is full.

    ``run()`` is one task of the caller's TaskGroup, ``take()`` is called by the one who trains.

    Args:
        samples: What is read.
        buffer: Where it goes; its bytes are those of the records' values.

    Attributes:
        samples: The same.
        buffer: The same.
        ended: Whether the stream has, so that only what is held is left.
    """

    def __init__(self, samples: Samples[T], buffer: Buffer[Sample[T]]) -> None:
        self.samples = samples
        self.buffer = buffer
        self.ended = False
        self._failed: AiopsError | None = None
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Read until the stream ends; its errors are raised by `take`, once what was read before is taken."""
        source = self.samples.source
        n = 0
        try:
            async for sample in self.samples:
                self.buffer.at_rate(source.rate())
                self.buffer.add(sample, len(sample.record.value))
                self._press()
                self._changed.set()
                n += 1
                if n % TURN == 0:
                    await asyncio.sleep(0)
        except AiopsError as error:
            self._failed = error
        finally:
            self.ended = True
            self._changed.set()

    async def take(self, n_samples: int, *, within_s: float | None = None) -> list[Sample[T]]:
        """Wait for a batch and take it: the oldest samples that are held.

        Fewer are returned where the stream ends, where the time is over, or where the source waits because no more fit
        into the buffer; an empty list says that nothing came at all.

        Args:
            n_samples: How many, >= 1.
            within_s: How long to wait for them, in seconds; None for as long as it takes.

        Raises:
            ConfigError: n_samples is less than 1.
            AiopsError: The stream failed, and all that was read before is taken.
        """
        if n_samples < 1:
            raise ConfigError(f"n_samples is {n_samples!r}, it must be >= 1")
        self.buffer.want(n_samples)
        try:
            async with asyncio.timeout(within_s):
                while not (len(self.buffer) >= n_samples or self.ended or self.buffer.must_wait):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        batch = self.buffer.take(n_samples)
        self._press()
        if not batch and self._failed is not None:
            raise self._failed
        return batch

    async def ack(self, cursor: str) -> None:
        """Declare everything up to the record of that cursor done, what was dropped or kept out on the way too."""
        await self.samples.ack(cursor)

    def _press(self) -> None:
        if self.buffer.must_wait:
            self.samples.source.pause()
        else:
            self.samples.source.resume()
