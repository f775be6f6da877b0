"""``aiops bench`` as a command: what is refused, and what becomes of a run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from aiops.bench.machine import fingerprint
from aiops.bench.peers.table import peer
from aiops.bench.result import Head, encode, row
from aiops.bench.suites import peers, round, wire
from aiops.cli import main


def run(capsys, *arguments):
    code = main(["bench", *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.fixture
def measured(monkeypatch):
    """A suite that measures nothing and finds a ratio of 2."""

    async def suite(bench):
        bench.view.say("wire: nothing: pass 1 of 3")
        bench.put(row("wire", "nothing", "aiops", [1.0, 1.0], ratios=[1.0, 1.0]))
        bench.put(row("wire", "nothing", "struct", [2.0, 2.0], ratios=[2.0, 2.0]))

    monkeypatch.setattr(wire, "run", suite)


def earlier(tmp_path, ratio):
    path = tmp_path / "earlier.jsonl"
    path.write_text(encode(row("wire", "nothing", "struct", [1.0], ratios=[ratio])))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["round-trip"], "'round-trip' is not one of 'kernels', 'wire', 'round', 'peers', 'all'"),
        (["wire", "--against", "/nowhere/a.jsonl"], "cannot read /nowhere/a.jsonl"),
        (["wire", "--against", __file__], "is no line of bench --json"),
        (["wire", "--peer", "ray"], "peer 'ray' is unknown, known are ours, readme"),
        (["kernels", "--peer", "gloo"], "kernels has none"),
        (["wire", "--pictures", "/nowhere"], "cannot write pictures to /nowhere"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert message in " ".join(err.split())
    assert out == ""


def test_the_table_goes_to_stdout_and_progress_to_stderr(capsys, measured, tmp_path):
    code, out, err = run(capsys, "wire", "--pictures", str(tmp_path))
    assert code == 0
    assert "congestion control" in out.splitlines()[1]
    assert "  struct" in out
    assert "wire: nothing\n" in err
    assert f"picture: {tmp_path}/bench-wire.png" in err


def test_json_is_one_line_per_result(capsys, measured, tmp_path):
    code, out, _ = run(capsys, "wire", "--json", "--pictures", str(tmp_path))
    head, ours, struct = map(json.loads, out.splitlines())
    assert code == 0
    assert head["type"] == "machine"
    assert (ours["peer"], struct["peer"], struct["ratio"]) == ("aiops", "struct", 2.0)


def test_a_directory_that_cannot_be_written_to_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    code, out, err = run(capsys, "wire", "--pictures", str(tmp_path))
    assert (code, out) == (2, "")
    assert err == f"aiops: cannot write pictures to {tmp_path}: permission denied\n"


def test_pictures_come_unasked_only_to_people(capsys, measured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "wire", "--json")[0] == 0
    assert list(tmp_path.iterdir()) == []
    assert run(capsys, "wire")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["bench-wire.png"]


def test_a_picture_that_cannot_be_written_takes_nothing_else_away(
    capsys, measured, tmp_path, monkeypatch
):
    (tmp_path / "bench-wire.png").mkdir()
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "wire", "--against", earlier(tmp_path, 3.0))
    assert code == 5
    assert "LOST   wire: nothing" in out
    told = err.splitlines()
    assert "no pictures: cannot write bench-wire.png: Is a directory" in told
    assert told[-1] == "aiops: 1 of the ratios fell below 0.7 of what they were"


@pytest.mark.parametrize("chosen", ["wire", "all"])
def test_what_is_asked_for_reaches_the_suite(capsys, monkeypatch, tmp_path, chosen):
    asked = []

    async def suite(bench):
        asked.append((bench.quick, bench.available("wire", ["ours", "sockets", "loop", "streams"])))

    for each in (wire, round, peers):
        monkeypatch.setattr(each, "run", suite)
    monkeypatch.setattr(type(peer("sockets")), "versions", lambda self: "cc")
    arguments = [chosen, "--pictures", str(tmp_path)]
    assert run(capsys, *arguments, "--quick", "--peer", "loop", "--peer", "zmq")[0] == 0
    # With peers asked for there are no kernels in "all".
    assert asked == [(True, ["ours", "sockets", "loop"])] * (3 if chosen == "all" else 1)
    asked.clear()
    if chosen == "wire":
        assert run(capsys, *arguments)[0] == 0
        assert asked == [(False, ["ours", "sockets", "loop", "streams"])]


def test_without_matplotlib_there_are_no_pictures_but_a_word(
    capsys, measured, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "aiops.bench.picture", None)
    code, _, err = run(capsys, "wire", "--pictures", str(tmp_path))
    assert code == 0
    assert "no pictures" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ratio", "code", "message"),
    [
        (2.0, 0, "nothing changed beyond the quartiles"),
        (1.5, 0, "better wire: nothing, against struct: 1.50 (1.50-1.50) -> 2.00 (2.00-2.00)"),
        (2.5, 0, "worse  wire: nothing"),
        (3.0, 5, "1 of the ratios fell below 0.7 of what they were"),
    ],
)
def test_an_earlier_run_is_compared(capsys, measured, tmp_path, ratio, code, message):
    arguments = ("wire", "--against", earlier(tmp_path, ratio), "--pictures", str(tmp_path))
    found, out, err = run(capsys, *arguments)
    assert (found, message in out + err) == (code, True), out + err


def write(tmp_path, *lines):
    path = tmp_path / "earlier.jsonl"
    path.write_text("".join(encode(line) + "\n" for line in lines))
    return str(path)


def test_an_earlier_run_of_something_else_is_refused_before_anything_is_measured(
    capsys, measured, tmp_path
):
    path = write(tmp_path, row("peers", "nothing", "struct", [1.0], ratios=[2.0]))
    code, out, err = run(capsys, "wire", "--against", path, "--pictures", str(tmp_path))
    assert (code, out, err) == (2, "", "aiops: the earlier run has no rows of wire\n")


def test_how_many_ratios_were_compared_is_told(capsys, measured, tmp_path):
    path = write(
        tmp_path,
        row("wire", "nothing", "aiops", [1.0], ratios=[1.0]),
        row("wire", "nothing", "struct", [1.0], ratios=[2.0]),
        row("wire", "something", "struct", [1.0], ratios=[2.0]),
    )
    _, out, _ = run(capsys, "wire", "--against", path, "--pictures", str(tmp_path))
    assert "1 of 1 ratios are in the earlier run" in out


def test_an_earlier_run_without_any_of_these_ratios_is_no_success(capsys, measured, tmp_path):
    path = write(
        tmp_path,
        row("wire", "nothing", "aiops", [1.0], ratios=[1.0]),
        row("wire", "renamed", "struct", [1.0], ratios=[2.0]),
    )
    code, out, err = run(capsys, "wire", "--against", path, "--pictures", str(tmp_path))
    assert code == 2
    assert "  struct" in out
    assert err.splitlines()[-1] == "aiops: none of the 1 ratios of this run is in the earlier one"
    assert (tmp_path / "bench-wire.png").exists()


def test_an_earlier_run_of_another_machine_is_warned_of(capsys, measured, tmp_path):
    here = fingerprint()
    there = msgspec.structs.replace(here, congestion="cubic", cores=96, load=(9.0, 9.0, 9.0))
    compared = row("wire", "nothing", "struct", [1.0], ratios=[2.0])
    for machine, warned in ((there, True), (here, False)):
        path = write(tmp_path, Head(machine=machine), compared)
        code, _, err = run(capsys, "wire", "--against", path, "--pictures", str(tmp_path))
        assert code == 0
        expected = [
            f"warning: ratios may differ for cores: 96 in the earlier run, {here.cores} here",
            "warning: ratios may differ for congestion control: cubic in the earlier run, "
            f"{here.congestion} here",
        ]
        assert [line for line in err.splitlines() if "differ" in line] == expected * warned


def test_what_changed_does_not_stand_among_the_lines_of_json(capsys, measured, tmp_path):
    arguments = ("wire", "--against", earlier(tmp_path, 1.0), "--pictures", str(tmp_path))
    _, out, err = run(capsys, *arguments, "--json")
    assert "better wire: nothing" in err
    assert all(json.loads(line) for line in out.splitlines())


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("suite", "first", "number", "code"),
    [
        ("round", "round: 16 MB", signal.SIGINT, 130),
        ("round", "round: 16 MB", signal.SIGTERM, 143),
        ("kernels", "kernels: select_topk 0.001", signal.SIGINT, 130),
    ],
)
def test_an_interrupted_run_leaves_nothing_and_shows_what_it_has(
    tmp_path, suite, first, number, code
):
    process = subprocess.Popen(
        [sys.executable, "-m", "aiops", "bench", suite, "--quick", "--pictures", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stderr.readline().startswith(first)
    while not (started := children(process.pid)):
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert "interrupted after" in err
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    assert list(tmp_path.iterdir()) == []


def children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in text.read_text().split() if int(child) != os.getpid()]
