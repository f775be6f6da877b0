"""What ranks tell each other survives being added up."""

import numpy as np
import pytest

from aiops.collective import tail
from aiops.collective.tail import Directive, Report


def report(**change):
    said = {
        "bad": False,
        "seconds": 0.0,
        "latency_s": 0.0,
        "compute_s": 0.0,
        "sent": 0.0,
        "energy": 0.0,
    }
    return Report(**{**said, **change})


def tally(*reports, trials=0):
    ranks = len(reports)
    rows = [
        tail.pack(each, rank=rank, ranks=ranks, trials=trials) for rank, each in enumerate(reports)
    ]
    assert all(row.shape == (tail.size(ranks, trials),) for row in rows)
    return tail.read(np.sum(rows, axis=0), ranks=ranks)


def test_it_tells_who_is_bad_who_is_slow_and_what_was_sent():
    seen = tally(
        report(seconds=0.5, latency_s=0.25, compute_s=2.0, sent=1.0, energy=4.0),
        report(bad=True, seconds=0.25, compute_s=1.0),
        report(latency_s=0.125, sent=1.0, energy=4.0),
    )
    assert seen.bad == (1,)
    assert (seen.seconds, seen.latency_s, seen.compute_s, seen.gain) == (0.25, 0.25, 2.0, 0.25)
    assert seen.directive is None


@pytest.mark.parametrize("density", [0.001, 0.1, 1 / 3, 1.0, 1e-9])
@pytest.mark.parametrize("collective", [0, 6])
def test_a_directive_arrives_bit_for_bit(density, collective):
    told = Directive(collective, density)
    assert tally(report(directive=told), report(), report()).directive == told


@pytest.mark.parametrize("directive", [None, Directive(2, 1 / 3)])
def test_what_is_to_be_tried_arrives_beside_a_directive(directive):
    said = report(trials=(0, 6, 0), directive=directive, sent=1.0, energy=2.0)
    seen = tally(said, report(), trials=3)
    assert (seen.trials, seen.directive, seen.gain) == ((0, 6, 0), directive, 0.5)
    assert tally(report(directive=directive), report(), trials=3).trials == ()
    assert tally(report(directive=directive), report()).trials == ()


def test_nothing_said_is_nothing_known():
    seen = tally(report(), report())
    assert (seen.seconds, seen.latency_s, seen.gain) == (0.0, 0.0, 1.0)


def test_energies_beyond_float32_stay_finite():
    assert tally(report(sent=1e300, energy=1e300), report(sent=1e300, energy=1e300)).gain == 1.0


def test_votes_are_counted_whoever_gives_them():
    assert tally(report(), report(vote=True), report(vote=True)).votes == 2
    assert tally(report(bad=True)).votes == 0
