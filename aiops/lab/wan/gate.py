"""What a run must keep to be believed: links and steps as the scenario says, and nothing late.

Pure functions on what was measured; `aiops.lab.wan.probe` measures. Each check returns a sentence for what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aiops.lab.wan.counters import Counters
from aiops.lab.wan.link import LinkSpec
from aiops.sim.relay import LINE_OVERHEAD

# A rate or a step that is off by more would decide a comparison of algorithms by itself.
RELATIVE = 0.03

# A delay may be off by so much however short it is: a busy machine wakes a process that late.
DELAY_S = 0.001

# Packets that are later on average mean that the emulator was starved.
LATE_S = 0.0005


class LinkCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one worker's link.

    Attributes:
        worker: Whose link it is.
        up_bits_s: The rate to the server with headers, once TCP was warm.
        down_bits_s: The rate from the server.
        round_trip_s: The smallest of some small round trips.
    """

    worker: int
    up_bits_s: float
    down_bits_s: float
    round_trip_s: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether links are as they should be: stands beside every result.

    Attributes:
        label: How the links are made.
        congestion: TCP's congestion control in the run.
        probed_with: The one that the links were measured with: rates are the links', not those of a sender that a lost
            packet slows down.
        links: What was measured of each.
        own: The same with the run's own congestion control, where that is another; it is not judged.
        late_s: How late the emulator delivered, on average; None where nobody counts.
        cores: Processor time per second that the emulator used meanwhile; None likewise.
        reasons: Sentences for what is wrong; empty for a run that may be believed.
    """

    label: str
    congestion: str
    probed_with: str
    links: list[LinkCheck]
    own: list[LinkCheck]
    late_s: float | None
    cores: float | None
    reasons: list[str]

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.reasons


def line_rate(arrivals: Sequence[tuple[float, int]]) -> float:
    """Return the bits per second of the second half of a transfer, headers included; 0 if too little came.

    The first half is left to slow start.

    Args:
        arrivals: When how many bytes of payload were there, in seconds and all told.
    """
    if not arrivals:
        return 0.0
    middle_s = (arrivals[0][0] + arrivals[-1][0]) / 2
    half = [arrival for arrival in arrivals if arrival[0] >= middle_s]
    # A line through all of it: whoever measures may be late at either end.
    mean_s = sum(at_s for at_s, _ in half) / len(half)
    spread = sum((at_s - mean_s) ** 2 for at_s, _ in half)
    if not spread:
        return 0.0
    slope = sum((at_s - mean_s) * n_bytes for at_s, n_bytes in half) / spread
    return slope * LINE_OVERHEAD * 8


def check_rate(what: str, *, target_bits_s: float, bits_s: float) -> str | None:
    """Return why an achieved rate is not the one that is emulated, or None."""
    error = bits_s / target_bits_s - 1
    if abs(error) <= RELATIVE:
        return None
    return (
        f"{what} carries {bits_s / 1e6:.2f} Mbit/s instead of {target_bits_s / 1e6:.2f}, "
        f"{error:+.1%} where {RELATIVE:.0%} are allowed"
    )


def check_round_trip(
    what: str, *, target_s: float, round_trip_s: float, jitter_s: float
) -> str | None:
    """Return why a round trip is not the one that is emulated, or None; jitter both ways is allowed on top."""
    allowed_s = max(RELATIVE * target_s, DELAY_S) + 2 * jitter_s
    if abs(round_trip_s - target_s) <= allowed_s:
        return None
    return (
        f"{what} has a round trip of {round_trip_s * 1e3:.2f} ms instead of {target_s * 1e3:.2f}, "
        f"{allowed_s * 1e3:.2f} ms off are allowed"
    )


def check_step(target_s: float, mean_s: float) -> str | None:
    """Return why local steps were not as long as they are emulated to be, or None.

    Args:
        target_s: What a step is padded to, > 0.
        mean_s: The mean over a run.
    """
    error = mean_s / target_s - 1
    if abs(error) <= RELATIVE:
        return None
    return (
        f"steps took {mean_s * 1e3:.2f} ms instead of {target_s * 1e3:.2f}, "
        f"{error:+.1%} where {RELATIVE:.0%} are allowed"
    )


def check_lateness(late_s: float) -> str | None:
    """Return why the emulator was too late, or None."""
    if late_s <= LATE_S:
        return None
    return f"the emulator delivered {late_s * 1e3:.2f} ms late on average, {LATE_S * 1e3:g} ms are allowed"


def late_between(before: Counters, after: Counters) -> float:
    """Return how late packets were on average between two counts, in seconds."""
    packets = after.packets - before.packets
    if not packets:
        return 0.0
    return (after.late_s * after.packets - before.late_s * before.packets) / packets


def check_link(spec: LinkSpec, measured: LinkCheck) -> Iterator[str]:
    """Yield what is wrong with a link.

    Args:
        spec: What it should be like; its changes are not looked at.
        measured: What it is like.
    """
    name = f"worker {measured.worker}'s link"
    for way, bits_s in (("up", measured.up_bits_s), ("down", measured.down_bits_s)):
        target_bits_s = (spec.up_bits_s if way == "up" else spec.down_bits_s) * (1 - spec.loss)
        if reason := check_rate(f"{name} {way}", target_bits_s=target_bits_s, bits_s=bits_s):
            yield reason
    if reason := check_round_trip(
        name,
        target_s=spec.round_trip_s(),
        round_trip_s=measured.round_trip_s,
        jitter_s=spec.jitter_s,
    ):
        yield reason


def worst(specs: Sequence[LinkSpec], links: Sequence[LinkCheck]) -> tuple[float, float]:
    """Return the largest relative error of a rate and the largest error of a round trip in seconds, signed."""
    rates = [
        achieved / (rate * (1 - spec.loss)) - 1
        for spec, link in zip(specs, links, strict=True)
        for achieved, rate in (
            (link.up_bits_s, spec.up_bits_s),
            (link.down_bits_s, spec.down_bits_s),
        )
    ]
    trips = [
        link.round_trip_s - spec.round_trip_s() for spec, link in zip(specs, links, strict=True)
    ]
    return max(rates, key=abs), max(trips, key=abs)
