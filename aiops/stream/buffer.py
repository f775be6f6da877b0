"""What a worker holds of its stream, and when the stream has to wait: the two storage policies of ScaDLES.

Pure bookkeeping; :mod:`aiops.stream.intake` moves samples in and out of it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Generic, Protocol, TypeVar

from aiops.errors import ConfigError

T = TypeVar("T")

RESUME_SHARE = 0.5


class Buffer(Protocol[T]):
    """Samples in the order in which they came, bounded in bytes.

    Attributes:
        n_bytes: Bytes held.
        most_samples: The most samples ever held.
        most_bytes: The most bytes ever held.
        dropped: Samples thrown away so far.
    """

    n_bytes: int
    most_samples: int
    most_bytes: int
    dropped: int

    def __len__(self) -> int:
        """Return how many samples are held."""

    def add(self, sample: T, n_bytes: int) -> None:
        """Take a sample in."""

    def take(self, n_samples: int) -> list[T]:
        """Give out the oldest samples, as many as are asked for or held."""

    def at_rate(self, rate: float) -> None:
        """Hear how fast the stream is, in records/s."""

    def want(self, n_samples: int) -> None:
        """Hear how large the batch is that is waited for."""

    @property
    def must_wait(self) -> bool:
        """Whether the source has to wait: from the byte limit on, until half of it (``resume_share``) is reached."""


class Persistence(Generic[T]):
    """Keeps every sample (ScaDLES, Tyagi and Swany, 2022); where memory is full the stream waits at its source.

    A sample that is offered is never refused, so at most ``limit_bytes`` and one sample are held.

    Args:
        limit_bytes: From how many bytes on the source has to wait, >= 1.
        resume_share: At what share of them it may go on, in [0, 1): apart, so that it is not stopped and started for
            every sample.

    Raises:
        ConfigError: A number is not as said.
    """

    def __init__(self, limit_bytes: int, *, resume_share: float = RESUME_SHARE) -> None:
        if limit_bytes < 1:
            raise ConfigError(f"limit_bytes is {limit_bytes!r}, it must be >= 1")
        if not 0 <= resume_share < 1:
            raise ConfigError(f"resume_share is {resume_share!r}, it must be in [0, 1)")
        self.n_bytes = 0
        self.most_samples = 0
        self.most_bytes = 0
        self.dropped = 0
        self._limit = limit_bytes
        self._resume = resume_share * limit_bytes
        self._held: deque[tuple[T, int]] = deque()
        self._waits = False

    def __len__(self) -> int:
        """Return how many samples are held."""
        return len(self._held)

    def add(self, sample: T, n_bytes: int) -> None:
        """Take a sample in."""
        self._held.append((sample, n_bytes))
        self.n_bytes += n_bytes
        self._settle()

    def take(self, n_samples: int) -> list[T]:
        """Give out the oldest samples."""
        taken = [self._out() for _ in range(min(n_samples, len(self._held)))]
        self._settle()
        return taken

    def at_rate(self, rate: float) -> None:
        """Do nothing: everything is kept at any rate."""

    def want(self, n_samples: int) -> None:
        """Do nothing: everything is kept for any batch."""

    @property
    def must_wait(self) -> bool:
        """Whether the source has to wait."""
        return self._waits

    def _out(self) -> T:
        sample, n_bytes = self._held.popleft()
        self.n_bytes -= n_bytes
        return sample

    def _settle(self) -> None:
        self.most_samples = max(self.most_samples, len(self._held))
        self.most_bytes = max(self.most_bytes, self.n_bytes)
        # An empty buffer never keeps a source waiting, not even with a resume_share of 0.
        self._waits = self.n_bytes >= self._limit or (self._waits and self.n_bytes > self._resume)


class Truncation(Persistence[T]):
    """Keeps a second's worth of the newest samples, and drops the older ones (ScaDLES, Tyagi and Swany, 2022).

    A second's worth is the measured rate S, rounded up, and at least the batch that is waited for. Where that many do
    not fit into ``limit_bytes``, the source has to wait as with :class:`Persistence`, and what comes next is older than
    it need be: leave room for the fastest second.

    Args:
        limit_bytes: As for `Persistence`.
        resume_share: As for `Persistence`.
        window_s: Seconds' worth that are kept, > 0.

    Raises:
        ConfigError: A number is not as said.
    """

    def __init__(
        self, limit_bytes: int, *, resume_share: float = RESUME_SHARE, window_s: float = 1.0
    ) -> None:
        super().__init__(limit_bytes, resume_share=resume_share)
        if not (math.isfinite(window_s) and window_s > 0):
            raise ConfigError(f"window_s is {window_s!r}, it must be finite and > 0")
        self._window_s = window_s
        self._worth: int | None = None  # all, until a rate is known
        self._wanted = 1

    def at_rate(self, rate: float) -> None:
        """Keep this rate's worth from now on; a stream that stands still leaves what is held as it is."""
        if rate > 0:
            self._worth = math.ceil(rate * self._window_s)
            self._settle()

    def want(self, n_samples: int) -> None:
        """Keep at least so many from now on."""
        self._wanted = n_samples

    def _settle(self) -> None:
        while self._worth is not None and len(self._held) > max(self._worth, self._wanted):
            self._out()
            self.dropped += 1
        super()._settle()
