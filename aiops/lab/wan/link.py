"""What a wide-area link is like: numbers, how they change over time, and what follows from them by formula."""

from __future__ import annotations

import itertools
import math
from typing import Literal

import msgspec

from aiops.errors import ConfigError
from aiops.sim.relay import LINE_OVERHEAD

# Seen from the worker: up is to the server.
Way = Literal["up", "down"]
WAYS: tuple[Way, Way] = ("up", "down")

# What the Ethernet header adds to an IP packet on the line, as `tc tbf` counts it too.
ETHERNET_BYTES = 14

# An IP packet with one byte of payload: 20 bytes of IP, 32 of TCP with timestamps.
SMALL_PACKET_BYTES = 53

# A router holds at least some dozen full packets, however slow its line is.
LEAST_QUEUE_BYTES = 64 * 1024

# A queue that takes no full packet lets nothing through.
PACKET_BYTES = 1514


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers that a link takes on at a moment; what is None stays as it is.

    Attributes:
        at_s: Seconds since the schedule began.
        up_bits_s: As in :class:`LinkSpec`, and so are the others.
        down_bits_s: Likewise.
        delay_s: Likewise.
        jitter_s: Likewise.
        loss: Likewise.
        queue_bytes: Likewise.
    """

    at_s: float
    up_bits_s: float | None = None
    down_bits_s: float | None = None
    delay_s: float | None = None
    jitter_s: float | None = None
    loss: float | None = None
    queue_bytes: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.at_s) and self.at_s > 0):
            raise ConfigError(f"a change is at {self.at_s!r} s, it must be > 0 and finite")


class LinkSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link between one worker and the server.

    Attributes:
        up_bits_s: Bits per second to the server, headers down to Ethernet's included.
        down_bits_s: Bits per second from the server.
        delay_s: One-way delay, the same both ways.
        jitter_s: Each packet takes up to so much less or more, uniformly, without overtaking another; at most the
            delay.
        loss: Probability that a packet is lost, each way; a link with 1 is cut.
        queue_bytes: What the router before the line holds, each way; further packets are dropped. None: twice the
            bandwidth-delay product of that way, and at least 64 KiB. One product keeps a line busy while a loss halves
            reno's window, and bursts of several senders want as much again; more is only delay ("bufferbloat").
        changes: In the order of time.
    """

    up_bits_s: float
    down_bits_s: float
    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    queue_bytes: int | None = None
    changes: tuple[Change, ...] = ()

    def __post_init__(self) -> None:
        _check(self)
        for at_s, following_s in itertools.pairwise(change.at_s for change in self.changes):
            if following_s <= at_s:
                raise ConfigError(f"a change at {following_s:g} s stands behind one at {at_s:g} s")
        self.states()

    def states(self) -> list[tuple[float, LinkSpec]]:
        """Return what the link is like from which second on, the first from 0; none of these changes any more."""
        if not self.changes:
            return [(0.0, self)]
        states = [(0.0, msgspec.structs.replace(self, changes=()))]
        for change in self.changes:
            given = {name: getattr(change, name) for name in _NUMBERS}
            changed = {name: value for name, value in given.items() if value is not None}
            states.append((change.at_s, msgspec.structs.replace(states[-1][1], **changed)))
        return states

    def at(self, t_s: float) -> LinkSpec:
        """Return what the link is like at a moment, in seconds since the schedule began."""
        return [state for at_s, state in self.states() if at_s <= max(0.0, t_s)][-1]

    def rate(self, way: Way) -> float:
        """Return the bits per second of one way."""
        return self.up_bits_s if way == "up" else self.down_bits_s

    def queue(self, way: Way) -> int:
        """Return what the router of one way holds, in bytes."""
        if self.queue_bytes is not None:
            return self.queue_bytes
        return max(LEAST_QUEUE_BYTES, int(2 * self.rate(way) * 2 * self.delay_s / 8))

    def takes_trains(self) -> bool:
        """Return whether packets that TCP sends together may be treated as one, which costs a quarter at 100 Mbit/s.

        Not where single packets are lost, or where a queue holds no more than some.
        """
        return not any(
            state.loss or state.queue(way) < LEAST_QUEUE_BYTES
            for _, state in self.states()
            for way in WAYS
        )

    def ideal_transfer_s(self, n_bytes: int, way: Way) -> float:
        """Return how long a message takes once TCP is warm: its bytes with headers at the rate, and the delay."""
        return n_bytes * LINE_OVERHEAD * 8 / self.rate(way) + self.delay_s

    def round_trip_s(self) -> float:
        """Return how long one byte takes to the server and back on an idle link."""
        bits = (SMALL_PACKET_BYTES + ETHERNET_BYTES) * 8
        return 2 * self.delay_s + bits / self.up_bits_s + bits / self.down_bits_s


_NUMBERS = ("up_bits_s", "down_bits_s", "delay_s", "jitter_s", "loss", "queue_bytes")


def _check(spec: LinkSpec) -> None:
    for name in ("up_bits_s", "down_bits_s"):
        if not (math.isfinite(rate := getattr(spec, name)) and rate > 0):
            raise ConfigError(f"{name} is {rate!r}, it must be > 0 and finite")
    if not (math.isfinite(spec.delay_s) and spec.delay_s >= 0):
        raise ConfigError(f"delay_s is {spec.delay_s!r}, it must be >= 0 and finite")
    if not 0 <= spec.jitter_s <= spec.delay_s:
        raise ConfigError(
            f"jitter_s is {spec.jitter_s!r}, it must be in [0, {spec.delay_s!r}], the delay"
        )
    if not 0 <= spec.loss <= 1:
        raise ConfigError(f"loss is {spec.loss!r}, it must be in [0, 1]")
    if spec.queue_bytes is not None and spec.queue_bytes < PACKET_BYTES:
        raise ConfigError(f"queue_bytes is {spec.queue_bytes}, a full packet takes {PACKET_BYTES}")
