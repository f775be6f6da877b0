"""When the steps of devices on streams begin and end, in virtual seconds, and what waits before each device.

By the recurrences of "ScaDLES: Scalable Deep Learning over Streaming data at the Edge" (Tyagi and Swany, 2022),
:mod:`aiops.stream.queueing`, which tests compare with the real streams, buffers and intakes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from aiops.policy.exchange import Network
from aiops.stream.queueing import persist, truncate

# "3 KB images", ScaDLES: 32 x 32 x 3 bytes.
RECORD_BYTES = 3072
# What two servers of its cluster are apart is not published; this is a local network's.
LATENCY_S, GBIT_S = 1e-3, 5.0
# By then every device either waits in each step or never again.
SETTLED = 2_000


class Machine(msgspec.Struct, frozen=True):
    """A device that trains a model of the paper.

    Attributes:
        name: The model's.
        n: Values of its gradient.
        fixed_s: Seconds of a step whatever its batch.
        sample_s: Seconds that each sample adds.
    """

    name: str
    n: int
    fixed_s: float
    sample_s: float

    def compute_s(self, batch: int) -> float:
        """Return the seconds of a step without wait and exchange."""
        return self.fixed_s + batch * self.sample_s

    def link(self, n: int) -> Network:
        """Return what a link is like for messages of a gradient of ``n`` values that stands for the full one."""
        return Network(LATENCY_S, self.n / n * 8e-9 / GBIT_S)


# ScaDLES, Table II: 1.2 s and 1.6 s an iteration of 64 samples. Which part grows with the batch it does not say: half.
RESNET152 = Machine("ResNet152", 60_200_000, 0.6, 0.6 / 64)
VGG19 = Machine("VGG19", 143_700_000, 0.8, 0.8 / 64)


def shipping(shares: Sequence[int]) -> tuple[float, int]:
    """Return what it takes that every rank has the records that some give to all.

    They pass round a ring, as an all-gather of Gloo does.

    Args:
        shares: How many each rank gives to each other.

    Returns:
        Seconds, and bytes through the busiest link.
    """
    n_bytes = sum(shares) * RECORD_BYTES
    if not n_bytes:
        return 0.0, 0
    return (len(shares) - 1) * LATENCY_S + n_bytes * 8e-9 / GBIT_S, n_bytes


class Span(msgspec.Struct, frozen=True):
    """A step, as the device saw it on which all others waited: the last to be done with computing.

    Attributes:
        wait_s: For its batch.
        compute_s: For its gradient.
        exchange_s: From then on.
    """

    wait_s: float
    compute_s: float
    exchange_s: float


class Clock:
    """Devices that wait for their batches, compute, and exchange all at once.

    Args:
        rates: Of their streams, in samples/s, > 0.
        truncates: Whether what a step leaves is thrown away; it is kept otherwise.

    Attributes:
        now: Virtual seconds.
        held: Samples that each device has waiting, behind those that it trains on.
        most: The most samples that each had waiting, those of its next step among them.
        dropped: Samples that each threw away.
    """

    def __init__(self, rates: Sequence[float], *, truncates: bool) -> None:
        self._rates = rates
        self._truncates = truncates
        self._last_s = [0.0] * len(rates)
        self._next = [0.0] * len(rates)
        self._waits = [0.0] * len(rates)
        self.now = 0.0
        self.held = [0.0] * len(rates)
        self.most = [0.0] * len(rates)
        self.dropped = [0.0] * len(rates)

    def take(self, batches: Sequence[int]) -> list[int]:
        """Let every device wait for its batch, and return which records they are: the place of each one's first."""
        begins = []
        for at, (rate, batch, last_s) in enumerate(
            zip(self._rates, batches, self._last_s, strict=True)
        ):
            waiting = rate * last_s + self.held[at]
            if self._truncates:
                turn = truncate(rate=rate, last_step_s=last_s, batch=batch)
                old = max(0.0, waiting - batch)
                self.dropped[at] += old
                self._next[at] += old
                # A buffer keeps a second's worth while its device is busy.
                waiting = min(waiting, max(math.ceil(rate), batch))
            else:
                turn = persist(rate=rate, last_step_s=last_s, batch=batch, held=self.held[at])
            self.most[at] = max(self.most[at], waiting, batch)
            self.held[at] = turn.held
            self._waits[at] = turn.wait_s
            begins.append(round(self._next[at]))
            self._next[at] += batch
        return begins

    def step(self, compute_s: Sequence[float], exchange_s: float) -> Span:
        """Let all compute, and exchange when the last is done.

        Args:
            compute_s: Seconds of each.
            exchange_s: Seconds of all.
        """
        done = [wait + each for wait, each in zip(self._waits, compute_s, strict=True)]
        last = max(range(len(done)), key=done.__getitem__)
        end = done[last] + exchange_s
        # What came while a device waited is in its batch: the rest of the step counts.
        self._last_s = [end - wait for wait in self._waits]
        self.now += end
        return Span(self._waits[last], compute_s[last], exchange_s)


def pile(
    rates: Sequence[float],
    batches: Sequence[int],
    compute_s: Sequence[float],
    exchange_s: float,
    iterations: int,
    *,
    truncates: bool,
) -> float:
    """Return the most samples that all devices together had waiting before the last of so many equal steps.

    What comes after the first :data:`SETTLED` steps grows as in the last of them.
    """
    clock = Clock(rates, truncates=truncates)
    most = [0.0]
    for _ in range(min(iterations, SETTLED)):
        clock.take(batches)
        clock.step(compute_s, exchange_s)
        most.append(sum(clock.most))
    return most[-1] + (iterations - len(most) + 1) * (most[-1] - most[-2])
