"""Lines of JSON, and what changed between two runs."""

import json
import math

import pytest

from aiops.bench.machine import fingerprint
from aiops.bench.result import Figure, Head, Miss, changes, encode, read, row
from aiops.bench.run import Bench
from aiops.errors import ConfigError


def a_row(ratios, *, bench="peers", case="16 MB, 1 worker", peer="pyzmq", network="reno"):
    return row(bench, case, peer, [0.002, 0.001, 0.003], ratios=ratios, network=network)


def test_a_row_has_the_fields_that_programs_read():
    line = row("peers", "1 MB", "pyzmq", [2.0, 1.0, 3.0], ratios=[2, 4, 3], bound_ratios=[6, 5, 7])
    told = json.loads(encode(line))
    assert told["type"] == "row"
    assert {name: told[name] for name in ("bench", "case", "peer")} == {
        "bench": "peers",
        "case": "1 MB",
        "peer": "pyzmq",
    }
    assert (told["ratio"], told["ratio_q25"], told["ratio_q75"]) == (3, 2.5, 3.5)
    assert (told["median_s"], told["q25_s"], told["q75_s"], told["n"]) == (2.0, 1.5, 2.5, 3)
    assert told["bound_ratio"] == 6


def test_a_row_without_ours_or_a_bound_has_none():
    line = row("peers", "1 MB", "pyzmq", [1.0], ratios=[])
    assert (line.ratio, line.bound_ratio, line.n) == (None, None, 1)


def test_lines_come_back_as_they_were_written(tmp_path):
    lines = [
        Head(machine=fingerprint()),
        a_row([1, 2, 3]),
        Figure(bench="round", case="memory", value=1.2, unit="times the push"),
        Miss(bench="peers", case="", peer="pyzmq", reason="pyzmq is not installed"),
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(encode(line) + "\n" for line in lines))
    assert read(path) == lines


def test_a_figure_that_is_no_number_was_not_measured_and_the_file_can_be_read(tmp_path):
    lines = [a_row([1, 2, 3])]
    Bench(None, lines.append, scratch="").figure("round", "161 tensors", math.nan, "times as long")
    assert isinstance(lines[1], Miss)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(encode(line) + "\n" for line in lines))
    assert read(path) == lines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read"),
        ("", "holds no rows"),
        ("{}", ":1 is no line of bench --json"),
        ('{"type": "row"}', ":1 is no line of bench --json"),
        ("hello", ":1 is no line of bench --json"),
        (b"\xff\xfe", "cannot read"),
    ],
)
def test_a_file_that_is_something_else_is_refused(tmp_path, text, message):
    path = tmp_path / "a.jsonl"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param([2, 2.1, 2.2], [2.05, 2.15, 2.3], [], id="ranges overlap"),
        pytest.param([2, 2.1, 2.2], [3, 3.1, 3.2], [("better", False)], id="faster than before"),
        pytest.param([2, 2.1, 2.2], [1.8, 1.85, 1.9], [("worse", False)], id="a little slower"),
        pytest.param([2, 2.1, 2.2], [1.3, 1.4, 1.5], [("LOST", True)], id="below 0.7 of it"),
        pytest.param([1, 4, 9], [1, 2.5, 9], [("LOST", True)], id="lost, though ranges overlap"),
    ],
)
def test_changes_are_those_beyond_both_quartile_ranges(before, after, told):
    found = changes([a_row(before)], [a_row(after)])
    assert [(str(change).split()[0], change.lost) for change in found] == told


@pytest.mark.parametrize("other", ["bench", "case", "peer", "network"])
def test_rows_of_different_cases_are_not_compared(other):
    assert changes([a_row([4, 4, 4])], [a_row([1, 1, 1], **{other: "other"})]) == []


def test_rows_without_a_ratio_are_not_compared():
    assert changes([a_row([])], [a_row([1, 1, 1])]) == []


def test_a_change_names_the_case_and_both_ratios():
    (change,) = changes([a_row([4, 4, 4])], [a_row([1, 1, 1])])
    assert str(change) == (
        "LOST   peers: 16 MB, 1 worker, reno, against pyzmq: 4.00 (4.00-4.00) -> 1.00 (1.00-1.00)"
    )
