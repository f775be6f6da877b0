"""Results: rows and figures, as lines of JSON and back, and what changed between two of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from aiops.bench.harness import Spread
from aiops.bench.machine import Machine
from aiops.errors import ConfigError

# A ratio below this share of an earlier one is a loss, whatever the noise.
LOSS = 0.7


class Row(msgspec.Struct, frozen=True, kw_only=True, tag="row"):
    """One contender in one case.

    Attributes:
        bench: The suite.
        case: What was done.
        peer: Who did it.
        ratio: How many times as long as ours it took: the median of the passes' ratios. Above 1 ours is faster.
        ratio_q25: Their first quartile.
        ratio_q75: Their third quartile.
        bound_ratio: How many times as long as the bound it took; None in a case without one.
        median_s: Seconds, the median over passes.
        q25_s: First quartile.
        q75_s: Third quartile.
        n: Passes.
        cpu_s_per_gb: Processor time of all its processes per 10^9 bytes moved; None where that is not the question.
        network: The congestion control in force; "" where nothing is sent.
        goal: What the ratio should be, for people; in a row of ours, what the bound's should be. "" for none.
        cpu_goal: What the processor time should be, for people; "" for none.
    """

    bench: str
    case: str
    peer: str
    ratio: float | None
    ratio_q25: float | None
    ratio_q75: float | None
    bound_ratio: float | None
    median_s: float
    q25_s: float
    q75_s: float
    n: int
    cpu_s_per_gb: float | None = None
    network: str = ""
    goal: str = ""
    cpu_goal: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two rows of two runs the same."""
        return self.bench, self.case, self.peer, self.network


class Figure(msgspec.Struct, frozen=True, kw_only=True, tag="figure"):
    """One number that is no time.

    Attributes:
        bench: The suite.
        case: What it is.
        value: The number.
        unit: Its unit.
        goal: What it should be, for people; "" for none.
    """

    bench: str
    case: str
    value: float
    unit: str
    goal: str = ""


class Miss(msgspec.Struct, frozen=True, kw_only=True, tag="miss"):
    """Something that was not measured, and why."""

    bench: str
    case: str
    peer: str
    reason: str


class Head(msgspec.Struct, frozen=True, kw_only=True, tag="machine"):
    """The first line: where it was measured."""

    machine: Machine


Line: TypeAlias = Head | Row | Figure | Miss
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def row(
    bench: str,
    case: str,
    peer: str,
    samples: Sequence[float],
    *,
    ratios: Sequence[float],
    bound_ratios: Sequence[float] = (),
    cpu_s_per_gb: float | None = None,
    network: str = "",
    goal: str = "",
    cpu_goal: str = "",
) -> Row:
    """Return a row of samples in seconds, at least one, and of ratios formed pass by pass, if any."""
    time, ratio = Spread.of(samples), Spread.of(ratios) if ratios else None
    return Row(
        bench=bench,
        case=case,
        peer=peer,
        ratio=ratio.median if ratio else None,
        ratio_q25=ratio.q25 if ratio else None,
        ratio_q75=ratio.q75 if ratio else None,
        bound_ratio=Spread.of(bound_ratios).median if bound_ratios else None,
        median_s=time.median,
        q25_s=time.q25,
        q75_s=time.q75,
        n=len(samples),
        cpu_s_per_gb=cpu_s_per_gb,
        network=network,
        goal=goal,
        cpu_goal=cpu_goal,
    )


def encode(line: Line) -> str:
    """Return a line of JSON."""
    return msgspec.json.encode(line).decode()


def read(path: Path) -> list[Line]:
    """Return the lines of a file that ``aiops bench --json`` has written.

    Raises:
        ConfigError: It cannot be read, or is something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path}:{number} is no line of bench --json: {error}") from None
    if not any(isinstance(line, Row) for line in found):
        raise ConfigError(f"{path} holds no rows of bench --json")
    return found


@dataclass(frozen=True, slots=True)
class Change:
    """A ratio that is not what it was.

    Attributes:
        before: The earlier row.
        after: The row of this run.
        lost: Whether it fell below ``LOSS`` of what it was.
    """

    before: Row
    after: Row
    lost: bool

    def __str__(self) -> str:
        sense = (
            "LOST"
            if self.lost
            else ("better" if _ratio(self.after) > _ratio(self.before) else "worse")
        )
        where = ", ".join(part for part in (self.after.case, self.after.network) if part)
        return (
            f"{sense:<6} {self.after.bench}: {where}, against {self.after.peer}: "
            f"{_shown(self.before)} -> {_shown(self.after)}"
        )


def matches(before: Iterable[Line], after: Iterable[Line]) -> int:
    """Return how many ratios of a run an earlier one has as well, but for ours to itself, which are 1 in both."""
    return sum(not then.ratio == now.ratio == 1 for then, now in _pairs(before, after))


def changes(before: Iterable[Line], after: Iterable[Line]) -> list[Change]:
    """Return the ratios whose quartile ranges lie apart, and those that were lost.

    A ratio is what another one's time is in ours, so it falls when ours gets slower. Rows that only one side has tell
    nothing.
    """
    found = []
    for then, now in _pairs(before, after):
        lost = _ratio(now) < LOSS * _ratio(then)
        if lost or _low(now) > _high(then) or _high(now) < _low(then):
            found.append(Change(then, now, lost))
    return found


def _pairs(before: Iterable[Line], after: Iterable[Line]) -> list[tuple[Row, Row]]:
    earlier = {line.key: line for line in _compared(before)}
    return [(earlier[now.key], now) for now in _compared(after) if now.key in earlier]


def _compared(lines: Iterable[Line]) -> Iterator[Row]:
    return (line for line in lines if isinstance(line, Row) and line.ratio is not None)


def _ratio(of: Row) -> float:
    return math.nan if of.ratio is None else of.ratio


def _low(of: Row) -> float:
    return _ratio(of) if of.ratio_q25 is None else of.ratio_q25


def _high(of: Row) -> float:
    return _ratio(of) if of.ratio_q75 is None else of.ratio_q75


def _shown(of: Row) -> str:
    return f"{_ratio(of):.2f} ({_low(of):.2f}-{_high(of):.2f})"
