"""When records arrive: schedules that are asked with the time, so that they run on any clock and never fall behind.

Nothing here waits, and no error of one interval goes into the next: record n is due at a time of its own.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from aiops.errors import ConfigError

# Clocks round: what is due within a microsecond has arrived.
SLACK_S = 1e-6


class Arrivals(Protocol):
    """A schedule of records 0, 1, 2, ..., with a pace that may change."""

    def start(self, now: float, first: int) -> None:
        """Begin at ``now``, in seconds, with record ``first``."""

    def arrived(self, now: float) -> int:
        """Return how many records have arrived, counting those before the first."""

    def due(self, index: int) -> float:
        """Return when a record that is not taken out yet arrives, in seconds; infinity where nothing moves."""

    def event_time(self, index: int) -> float:
        """Return when a record happened, in seconds of its own clock."""

    def set_pace(self, now: float, pace: float) -> None:
        """Change the pace from ``now`` on; 0 stops."""

    def taken(self, index: int) -> None:
        """Hear that nobody will ask about this record and those before it again."""


class Progress:
    """A reading that grows in straight pieces, and the times at which it passes a value."""

    __slots__ = ("_pieces",)

    def __init__(self, now: float, value: float, pace: float) -> None:
        # (from when, from which value, how fast); the last goes on.
        self._pieces: deque[tuple[float, float, float]] = deque([(now, value, pace)])

    def at(self, now: float) -> float:
        """Return the reading now, at or after the last change."""
        since, value, pace = self._pieces[-1]
        return value + max(0.0, now - since) * pace

    def when(self, target: float) -> float:
        """Return when the reading gets to ``target``; infinity where it never does."""
        since, value, pace = self._pieces[0]
        for following in islice(self._pieces, 1, None):
            if target <= following[1]:
                break
            since, value, pace = following
        if target <= value:
            return since
        return since + (target - value) / pace if pace > 0 else math.inf

    def set_pace(self, now: float, pace: float) -> None:
        """Go on at another pace from ``now`` on."""
        self._pieces.append((now, self.at(now), pace))

    def forget(self, value: float) -> None:
        """Drop the pieces that end at or before a value."""
        while len(self._pieces) > 1 and self._pieces[1][1] <= value:
            self._pieces.popleft()


def check_pace(what: str, pace: float) -> None:
    """Refuse what is no pace.

    Raises:
        ConfigError: It is not finite and >= 0.
    """
    if not (math.isfinite(pace) and pace >= 0):
        raise ConfigError(f"{what} is {pace!r}, it must be finite and >= 0")


class Steady:
    """A token bucket: record n arrives (n + 1) / rate seconds after the start, whoever reads late finds it waiting.

    Args:
        rate: Records/s, >= 0.

    Raises:
        ConfigError: It is not.
    """

    def __init__(self, rate: float) -> None:
        check_pace("rate", rate)
        self._rate = rate
        self._begun = 0.0
        self._progress = Progress(0.0, 0.0, rate)

    def start(self, now: float, first: int) -> None:
        """Begin."""
        self._begun = now
        self._progress = Progress(now, float(first), self._rate)

    def arrived(self, now: float) -> int:
        """Return how many have arrived."""
        return math.floor(self._progress.at(now + SLACK_S))

    def due(self, index: int) -> float:
        """Return when a record arrives."""
        return self._progress.when(index + 1)

    def event_time(self, index: int) -> float:
        """Return when it arrived, in seconds since the start."""
        return self.due(index) - self._begun

    def set_pace(self, now: float, pace: float) -> None:
        """Change the rate."""
        check_pace("rate", pace)
        self._progress.set_pace(now, pace)

    def taken(self, index: int) -> None:
        """Forget the rates before it."""
        self._progress.forget(index + 1)


class Stamped:
    """Records with times of their own, replayed some times faster.

    Args:
        times: When each happened, in seconds, never falling; at least one.
        speed: Seconds of theirs that go by in a second of ours, >= 0.

    Raises:
        ConfigError: The times fall, or the speed is not as said.
    """

    def __init__(self, times: Sequence[float], speed: float) -> None:
        check_pace("speed", speed)
        if not times:
            raise ConfigError("there are no records to replay")
        for index in range(1, len(times)):
            if not times[index - 1] <= times[index]:
                raise ConfigError(
                    f"time stamp {index} is {times[index]!r}, the one before it {times[index - 1]!r}: "
                    "sort them first"
                )
        self._times = times
        self._speed = speed
        self._progress = Progress(0.0, 0.0, speed)

    def start(self, now: float, first: int) -> None:
        """Begin, with the time of the first record."""
        at = self._times[min(first, len(self._times) - 1)]
        self._progress = Progress(now, at, self._speed)

    def arrived(self, now: float) -> int:
        """Return how many have arrived."""
        return bisect_right(self._times, self._progress.at(now + SLACK_S))

    def due(self, index: int) -> float:
        """Return when a record arrives."""
        return self._progress.when(self._times[index])

    def event_time(self, index: int) -> float:
        """Return its time stamp."""
        return self._times[index]

    def set_pace(self, now: float, pace: float) -> None:
        """Change the speed."""
        check_pace("speed", pace)
        self._progress.set_pace(now, pace)

    def taken(self, index: int) -> None:
        """Forget the speeds before it."""
        self._progress.forget(self._times[index])
