"""What people see of results."""

import pytest

from aiops.bench.result import Figure, Miss, row
from aiops.bench.table import seconds, table


def test_the_table_has_a_block_per_case_and_what_was_not_measured():
    lines = [
        row("peers", "1 MB", "aiops", [1e-3] * 3, ratios=[1.0] * 3, network="reno"),
        row("peers", "1 MB", "pyzmq", [3e-3] * 3, ratios=[3.0] * 3, network="reno"),
        row("peers", "1 MB", "aiops", [1e-3] * 3, ratios=[1.0] * 3, network="system's bbr"),
        Figure(bench="round", case="memory", value=1.25, unit="times the push", goal="<= 1.15"),
        Miss(bench="peers", case="", peer="hivemind", reason="hivemind is not installed"),
    ]
    text = list(table(lines))
    assert text[3:8] == [
        "peers: 1 MB (reno)",
        text[4],
        text[5],
        "peers: 1 MB (system's bbr)",
        text[7],
    ]
    assert text[5].split() == ["pyzmq", "3", "ms", "3.00", "(3.00-3.00)", "-", "-", "3"]
    assert "round: memory: 1.25 times the push (goal <= 1.15)" in text
    assert text[-1] == "not measured: peers: hivemind: hivemind is not installed"
    assert max(map(len, text)) <= 120


def test_a_goal_stands_behind_its_row():
    text = list(
        table(
            [
                row("k", "a", "aiops", [1.0], ratios=[1.0], goal="<= 1.2"),
                row("k", "a", "numpy", [2.0], ratios=[2.0], goal=">= 3"),
                row("k", "b", "aiops", [1.0], ratios=[1.0], cpu_goal="<= 0.28"),
                row("k", "b", "numpy", [2.0], ratios=[2.0]),
            ]
        )
    )
    assert text[2].endswith("  goal")
    ends = [line.rpartition("   1")[2] for line in text[3:] if line.startswith("  ")]
    assert ends == ["  <= 1.2 of bound", "  >= 3", "  CPU <= 0.28", ""]


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2 s"), (0.0123, "12.3 ms"), (1.5e-5, "15 us"), (2e-7, "200 ns"), (0.0, "0 ns")],
)
def test_times_are_shown_in_their_unit(value, text):
    assert seconds(value) == text


def test_the_picture_is_written_if_there_is_anything_to_draw(tmp_path):
    pytest.importorskip("matplotlib")
    from aiops.bench.picture import draw

    lines = [
        row("peers", "1 MB", name, [1e-3] * 3, ratios=[ratio] * 3, bound_ratios=[ratio * 2] * 3)
        for name, ratio in (("aiops", 1.0), ("C sockets", 0.5), ("pyzmq", 3.0))
    ]
    path = tmp_path / "bench.png"
    assert draw(lines, "peers", path, "a machine")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert not draw(lines, "wire", tmp_path / "none.png", "a machine")
    assert not (tmp_path / "none.png").exists()
