"""The demo: what it measures, what it shows, and that it leaves nothing behind."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest

from aiops.cli.demo_view import View, rows, verdict
from aiops.data import load
from aiops.errors import ConfigError
from aiops.launch.demo import _job, _time_to, accuracy_of
from aiops.launch.demo_job import Job, Outcome, Point, Report, Result, Span
from aiops.launch.demo_settings import DemoSettings, Progress
from aiops.sim.relay import WanLink


def settings(**changes):
    given = {
        "data": "digits",
        "data_root": None,
        "cache": None,
        "n_workers": 2,
        "link": WanLink(20e6, 0.025),
        "step_s": 0.02,
        "slowdown": (1.0, 4.0),
        "hidden": 8,
        "batch": 8,
        "lr": 0.1,
        "fedavg_steps": 5,
        "merge": "reset",
        "alpha": 0.3,
        "target": 0.8,
        "budget_s": 10.0,
        "seed": 0,
    }
    return DemoSettings(**{**given, **changes})


def outcome(name, reached, *, overlap=0.0):
    spans = [Span("compute", 0.0, 0.5), Span("wait", 0.5, 1.5), Span("sync", 0.5, 1.5)]
    worker = Result(
        index=0,
        n_steps=10,
        rounds=3,
        waits=2,
        wait_s=1.0,
        overlap_ratio=overlap,
        utilisation=0.5,
        step_s=0.02,
        steps_per_round=[5, 5],
        spans=spans,
    )
    curve = [Point(0.0, 0, 0.1), Point(4.0, 2, 0.7), Point(10.2, 3, 0.85)]
    return Outcome(
        algorithm=name,
        settings="",
        time_to_target_s=reached,
        final_accuracy=0.85,
        best_accuracy=0.85,
        rounds=3,
        n_bytes=2_500_000,
        overlap_ratio=overlap,
        utilisation=0.5,
        curve=curve,
        workers=[worker],
    )


def report(first=8.0, last=4.0):
    outcomes = [outcome("FedAvg", first), outcome("NBSync", last, overlap=1.0)]
    return Report(
        data="digits",
        target=0.8,
        budget_s=10.0,
        rate_mbit=20.0,
        delay_ms=25.0,
        step_ms=[20.0],
        n_values=100,
        sync_s=0.1,
        speedup=None if first is None or last is None else first / last,
        outcomes=outcomes,
    )


@pytest.mark.parametrize(
    ("accuracies", "reached"),
    [
        pytest.param([0.1, 0.8, 0.9], 1.0, id="the first of two in a row"),
        pytest.param([0.1, 0.9, 0.7, 0.8, 0.8], 3.0, id="one lucky evaluation is no arrival"),
        pytest.param([0.1, 0.7, 0.8], None, id="the last one is not confirmed"),
        pytest.param([0.1], None, id="never"),
    ],
)
def test_the_target_is_reached_when_the_next_evaluation_agrees(accuracies, reached):
    curve = [Point(float(i), i, accuracy) for i, accuracy in enumerate(accuracies)]
    assert _time_to(0.8, curve) == reached


def test_accuracy_is_that_of_the_perceptron():
    rng = np.random.default_rng(0)
    w1, b1 = rng.normal(size=(5, 4)).astype("f4"), rng.normal(size=5).astype("f4")
    w2, b2 = rng.normal(size=(3, 5)).astype("f4"), rng.normal(size=3).astype("f4")
    images = rng.normal(size=(20, 4)).astype("f4")
    scores = [w2 @ np.maximum(w1 @ image + b1, 0) + b2 for image in images]
    labels = np.argmax(scores, axis=1)
    model = {"1.weight": w1, "1.bias": b1, "3.weight": w2, "3.bias": b2}
    assert accuracy_of(model, images, labels) == 1.0
    labels[:5] = (labels[:5] + 1) % 3
    assert accuracy_of(model, images, labels) == 0.75


def test_the_table_has_a_row_for_everything_that_was_promised():
    table = dict(rows(report()))
    assert table["accuracy after 5 s"] == ["70.0%", "70.0%"]
    assert table["accuracy after 10 s"] == ["85.0%", "85.0%"]
    assert table["time to 80%"] == ["8.0 s", "4.0 s"]
    assert table["rounds"] == ["3", "3"]
    assert table["local steps per worker"] == ["10", "10"]
    assert table["overlap ratio"] == ["0.00", "1.00"]
    assert table["utilisation"] == ["50%", "50%"]
    assert table["bytes over the links"] == ["2 MB", "2 MB"]


@pytest.mark.parametrize(
    ("first", "last", "sentence"),
    [
        (8.0, 4.0, "NBSync reached 80% 2.0x sooner than FedAvg."),
        (None, 4.0, "NBSync reached 80% after 4.0 s, FedAvg not at all."),
        (8.0, None, "NBSync did not reach 80%: give it more time (--budget-s)."),
    ],
)
def test_the_verdict_says_what_the_numbers_say(first, last, sentence):
    assert verdict(report(first, last)) == sentence


def test_progress_is_a_line_every_few_seconds_and_one_at_the_end(capsys):
    view = View(settings(), sys.stdout)
    for at in (0.0, 0.5, 4.9, 5.1, 9.0, 10.0):
        view.tell(Progress("FedAvg", at, 10.0, 3, 0.5, (1, 2)))
    view.tell(Progress("NBSync", 0.0, 10.0, 0, None, ()))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["FedAvg", "0.0"],
        ["FedAvg", "5.1"],
        ["FedAvg", "10.0"],
        ["NBSync", "0.0"],
    ]
    assert "accuracy  50.0%  steps 1/2" in lines[0]


def test_the_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    from aiops.launch.demo_picture import draw

    for name, made in {
        "both": report(),
        "one": report(first=None),
        "none": report(last=None),
    }.items():
        path = tmp_path / f"{name}.png"
        draw(made, path)
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slowdown": (1.0, 0.5)}, "every factor must be >= 1"),
        ({"budget_s": 0.0}, "budget_s is 0.0, it must be > 0"),
        ({"merge": "x"}, "unknown merge 'x'"),
    ],
)
def test_senseless_settings_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        settings(**change)


@pytest.mark.parametrize("where", [None, pathlib.Path("/some/where")])
def test_a_job_reaches_its_worker_as_it_was_sent(where):
    given = settings(data_root=where, cache=where)
    data = load("digits")
    job = _job(given, data, 1, "aiops://localhost:1")
    again = msgspec.json.decode(msgspec.json.encode(job), type=Job)
    assert again == job
    assert again.step_s == pytest.approx(0.08)


def start(*arguments, cwd):
    return subprocess.Popen(
        [sys.executable, "-m", "aiops", "demo", "--quick", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_quick_trains_for_real_and_nbsync_is_sooner(tmp_path):
    pytest.importorskip("torch")
    process = start("--json", cwd=tmp_path)
    out, err = process.communicate()
    assert process.returncode == 0, err
    told = json.loads(out)
    fedavg, nbsync = told["outcomes"]
    assert (fedavg["algorithm"], nbsync["algorithm"]) == ("FedAvg", "NBSync")
    assert nbsync["time_to_target_s"] is not None
    assert fedavg["time_to_target_s"] is None or told["speedup"] > 1
    assert fedavg["overlap_ratio"] == 0.0
    assert nbsync["overlap_ratio"] > 0.8
    assert sum(worker["waits"] for worker in nbsync["workers"]) == 0
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert "NBSync" in err


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_killed_demo_takes_its_processes_along(tmp_path):
    pytest.importorskip("torch")
    process = start("--budget-s", "100", cwd=tmp_path)
    for line in process.stdout:
        if line.startswith("FedAvg"):
            break
    children = _children(process.pid)
    process.kill()
    process.communicate(timeout=20)
    deadline = time.monotonic() + 20
    while any(map(_alive, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in children if _alive(pid)]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_demo_and_every_process_of_it(tmp_path, number):
    pytest.importorskip("torch")
    process = start("--budget-s", "100", cwd=tmp_path)
    for line in process.stdout:
        if line.startswith("FedAvg"):
            break
    children = _children(process.pid)
    assert len(children) == 5
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number, err
    assert "interrupted, all processes are ended" in out
    assert "Traceback" not in err
    assert not [pid for pid in children if _alive(pid)]


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
