"""A target counts once the next version that is looked at confirms it; records survive JSON."""

import sys

import msgspec
import pytest

from aiops.lab.record import Curve, Point, Record
from tests.lab.kit import record


@pytest.mark.parametrize(
    ("accuracies", "reached"),
    [
        ([], None),
        ([0.9], None),
        ([0.7, 0.9], None),
        ([0.8, 0.8], 0),
        ([0.7, 0.9, 0.79, 0.8, 0.81], 3),
        ([0.9, 0.9, 0.1], 0),
        ([0.9, 0.7, 0.9, 0.7], None),
    ],
)
def test_a_crossing_counts_from_where_the_next_one_confirms_it(accuracies, reached):
    curve = Curve(0.8)
    for at, accuracy in enumerate(accuracies):
        curve.add(Point(float(at), at + 1, accuracy, 0.0))
    assert (curve.reached and curve.reached.at) == reached
    assert len(curve.points) == len(accuracies)


def test_a_curve_waits_while_a_crossing_is_unconfirmed():
    curve, waiting = Curve(0.8), []
    for at, accuracy in enumerate([0.7, 0.9, 0.7, 0.9, 0.9]):
        curve.add(Point(float(at), at, accuracy, 0.0))
        waiting.append(curve.is_waiting)
    assert waiting == [False, True, False, True, False]


def test_a_record_survives_json():
    there = record("a", 0, 2.5, points=[(1.0, 1, 0.5, sys.float_info.max)])
    assert msgspec.json.decode(msgspec.json.encode(there), type=Record) == there


def test_accuracies_of_a_run_without_any_are_zero():
    there = record("a", 0, None)
    assert (there.final_accuracy, there.best_accuracy, there.n_steps) == (0.0, 0.0, 100)
