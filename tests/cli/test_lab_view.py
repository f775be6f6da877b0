"""What is shown of a campaign while it runs."""

import io
import sys

import pytest

from aiops.cli.lab_view import Bars, View, make_view, news
from tests.lab.kit import record

REACHED = record("fedavg", 0, 2.5, points=[(2.5, 3, 0.81, 1.0)])
MISSED = record("nbsync", 1, None, points=[(2.5, 3, 0.71, 1.0)])


@pytest.mark.parametrize(
    ("there", "text"),
    [
        (REACHED, "seed 0: target after 2.5 s, accuracy 81.0%"),
        (MISSED, "seed 1: not reached in 10 s, accuracy 71.0%"),
        (record("a", 0, None, failed="training diverged"), "seed 0: training diverged"),
        (record("a", 0, 1.0, rejected=("late", "slow")), "seed 0: rejected: late"),
    ],
)
def test_how_a_run_ended_is_told_in_a_few_words(there, text):
    assert news(there) == text


def test_lines_count_the_runs():
    stream = io.StringIO()
    with View({"fedavg": 1, "nbsync": 4}, stream) as view:
        view.told(REACHED)
        view.told(MISSED, "lr 0.2")
        view.seen("nbsync", 2, 1.0, 0.5)
        view.closed("nbsync")
        view.told(MISSED)
        view.warn("the links are not what they should be")
    assert stream.getvalue().splitlines() == [
        "[1/5] fedavg: seed 0: target after 2.5 s, accuracy 81.0%",
        "[2/5] nbsync: lr 0.2, seed 1: not reached in 10 s, accuracy 71.0%",
        "[3/2] nbsync: seed 1: not reached in 10 s, accuracy 71.0%",
        "warning: the links are not what they should be",
    ]


def test_bars_count_the_runs_of_each_method():
    pytest.importorskip("rich")
    stream = io.StringIO()
    with Bars({"fed[avg]": 2, "nbsync": 4}, stream) as view:
        view.told(record("fed[avg]", 0, 2.5, points=[(2.5, 3, 0.81, 1.0)]))
        view.seen("nbsync", 2, 1.0, 0.5)
        view.told(MISSED)
        view.closed("nbsync")
        view.line("a [line] that stays")
    shown = stream.getvalue()
    assert "a [line] that stays" in shown
    assert "1/2" in shown
    assert "1/1" in shown
    assert "fed[avg]" in shown
    assert "not reached in 10 s, accuracy 71.0%" in shown


def test_no_bars_without_a_terminal_under_ci_or_without_rich(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("CI", raising=False)
    assert type(make_view({})) is View
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert type(make_view({})) is Bars
    monkeypatch.setenv("CI", "1")
    assert type(make_view({})) is View
    monkeypatch.delenv("CI")
    monkeypatch.setitem(sys.modules, "rich", None)
    assert type(make_view({})) is View
