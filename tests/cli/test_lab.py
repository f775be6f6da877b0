"""``aiops lab`` as a command: what is refused, what a campaign leaves, and that it runs again bit for bit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from aiops.bench.machine import fingerprint
from aiops.cli import main
from aiops.lab.record import Record
from aiops.lab.result import read_manifest, read_result
from aiops.lab.tune import Tuning

pytestmark = pytest.mark.timeout(60)

SMALL = """
name = "small"
target = 0.5
budget_s = 10.0
[data]
name = "digits"
n_train = 400
n_test = 100
batch = 8
[model]
hidden = [8]
[workers]
count = 2
step_s = 0.05
slowdown = [1, 2]
[link]
up_mbit = 1.0
delay_ms = 10.0
jitter_ms = 2.0
"""
METHODS = """
[[methods]]
label = "fedavg"
algorithm = "fedavg"
lr = 0.5
settings = { work = "fixed:{tau}" }
grid = { tau = [2, 5], lr = [0.5] }
[[methods]]
label = "nbsync"
algorithm = "nbsync"
lr = 0.5
settings = { merge = "partial:0.5" }
"""


def run(capsys, *arguments):
    code = main(["lab", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.fixture
def scenario(tmp_path):
    return write(tmp_path, SMALL + METHODS)


def write(tmp_path, text, name="small.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument 'SCENARIO'"),
        (["run", "{}", "--fast"], "No such option"),
        (["run", "/nowhere/s.toml"], "cannot read scenario /nowhere/s.toml: No such file"),
        (["run", "/nowhere/manifest.json"], "cannot read /nowhere/manifest.json: No such file"),
        (
            ["run", "{}", "--method", "asp"],
            "scenario 'small' has no method 'asp', only fedavg, nbsync",
        ),
        (["run", "{}", "--method", "nbsync", "--method", "nbsync"], "'nbsync' is asked for twice"),
        (
            ["run", "{}", "--seeds", "0,x"],
            "seeds are '0,x', they must be whole numbers with commas",
        ),
        (["run", "{}", "--seeds", "-1"], "seed -1 is negative"),
        (["run", "{}", "--seeds", "1,1"], "one of them stands there twice"),
        (["run", "{}", "--reference", "asp"], "reference is 'asp', the methods are fedavg, nbsync"),
        (["run", "{}", "--tuned", "/nowhere/t.json"], "cannot read /nowhere/t.json: No such file"),
        (["run", "{}", "--tuned", "{}"], "is no result of aiops lab tune"),
        (["run", "{}", "--lab", "dream"], "'dream' is not one of 'virtual', 'real'"),
        (
            ["run", "{}", "--emulator", "tun"],
            "emulator is 'tun', the virtual lab computes its links",
        ),
        (["run", "{}", "--processes", "0"], "processes is 0, it must be >= 1"),
        (["run", "{}", "--lab", "real", "--processes", "2"], "the real lab runs one at a time"),
        (["run", "{}", "--out", "/proc/x"], "cannot write results to /proc/x"),
        (["compare"], "Missing argument 'RESULTS...'"),
        (["compare", "/nowhere"], "cannot read /nowhere: No such file"),
        (["compare", "{}"], "line 1 is no record of aiops lab"),
        (["tune", "{}"], "Missing option '--out'"),
        (["tune", "{}", "--out", "/nowhere/t.json"], "cannot write /nowhere/t.json"),
        (
            ["tune", "{}", "--out", "{}.json", "--points", "1"],
            "the grid of 'fedavg' has 2 points, more than the 1 that each may have",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(capsys, scenario, arguments, message):
    arguments = [argument.replace("{}", str(scenario)) for argument in arguments]
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[link]\nspeed = 1", "Object contains unknown field `speed` - at `$.link`"),
        ("name = \n", "(at line 1, column"),
        ("[link]\nloss = 0.01\n[data]\nname='digits'", "use the real lab"),
        ("[data]\nname = 'mnist'", "no data set is called 'mnist'"),
        ("[data]\nname = 'digits'\nn_train = 9999", "n_train is 9999, digits has"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "tune"])
def test_a_scenario_that_makes_no_sense_is_refused_before_anything_runs(
    capsys, tmp_path, verb, text, message
):
    path = write(tmp_path, text, "s.toml")
    out = ["--out", tmp_path / "t.json"] if verb == "tune" else []
    code, out, err = run(capsys, verb, path, *out)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.slow
def test_a_campaign_leaves_everything_and_runs_again_bit_for_bit(capsys, scenario, tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    code, out, err = run(capsys, "run", scenario, "--seeds", "0,1", "--out", first)
    assert code == 0, err
    assert out.splitlines()[0].startswith("small: S/c ")
    assert "links: 2 of 1 Mbit/s, 10 +- 2 ms each way; no TCP (virtual)" in out
    assert "times as fast as fedavg, paired by seed" in out
    assert "[4/4] " in err
    assert sorted(path.name for path in first.iterdir()) == [
        "accuracy.png",
        "manifest.json",
        "records.jsonl",
        "summary.json",
        "timeline.png",
    ]
    manifest = read_manifest(first / "manifest.json")
    assert manifest.command == f"aiops lab run {scenario} --seeds 0,1 --out {first}"
    assert manifest.scenario.seeds == (0, 1)
    assert manifest.reference == "fedavg"
    arguments = ["run", first / "manifest.json", "--out", again, "--processes", "1"]
    code, _, err = run(capsys, *arguments, "--no-pictures")
    assert code == 0, err
    assert not (again / "accuracy.png").exists()

    def timeless(path):
        return [msgspec.structs.replace(r, took_s=0.0) for r in read_result(path).records]

    assert timeless(first) == timeless(again)
    assert [(r.method.label, r.seed) for r in timeless(first)] == [
        ("fedavg", 0),
        ("nbsync", 0),
        ("fedavg", 1),
        ("nbsync", 1),
    ]
    assert json.loads((first / "summary.json").read_text()) == json.loads(
        (again / "summary.json").read_text()
    )
    code, _, err = run(capsys, "run", scenario, "--out", first)
    assert (code, "holds results already" in err) == (2, True)


@pytest.mark.slow
def test_a_summary_for_programs(capsys, scenario):
    code, out, err = run(capsys, "run", scenario, "--json", "--reference", "nbsync")
    told = json.loads(out)
    assert code == 0
    assert told["reference"] == "nbsync"
    assert [method["label"] for method in told["methods"]] == ["fedavg", "nbsync"]
    assert "small: S/c" in err


@pytest.mark.slow
def test_a_target_that_no_seed_reaches_is_told_by_the_exit_code(capsys, tmp_path):
    text = SMALL.replace("0.5", "0.99", 1).replace("budget_s = 10.0", "budget_s = 1.0")
    path = write(tmp_path, text + METHODS)
    code, out, err = run(capsys, "run", path, "--method", "nbsync")
    assert code == 5
    assert "0 of 1" in out
    assert "aiops: no seed reached 99 % within 1 s: nbsync (at best" in err


@pytest.mark.slow
def test_tuned_numbers_are_found_and_used(capsys, scenario, tmp_path):
    tuned = tmp_path / "tuned.json"
    code, out, err = run(capsys, "tune", scenario, "--seeds", "100", "--out", tuned)
    assert code == 0, err
    assert "points: fedavg 2, nbsync 1; all on seed 100" in out
    assert "[3/3] nbsync: " in err
    found = msgspec.json.decode(tuned.read_bytes(), type=Tuning)
    best = found.methods[0].method.numbers()["tau"]
    assert f"tau {best:g}, lr 0.5  (tau at the edge)" in out
    assert len(found.methods[0].trials) == 2
    out = tmp_path / "out"
    code, _, err = run(
        capsys, "run", scenario, "--tuned", tuned, "--seeds", "100", "--out", out, "--no-pictures"
    )
    assert code == 0
    assert "warning: seed 100 is one that the numbers were tuned on" in err
    method = read_manifest(out / "manifest.json").scenario.chosen[0]
    assert method.spec()["work"] == f"fixed:{best}"
    # The same run as the one that won.
    (there,) = (r for r in read_result(out).records if r.method.label == "fedavg")
    assert there.reached_s == pytest.approx(found.methods[0].time_s)
    other = write(tmp_path, SMALL.replace("up_mbit = 1.0", "up_mbit = 2.0") + METHODS, "o.toml")
    _, _, err = run(capsys, "run", other, "--tuned", tuned, "--method", "nbsync")
    assert "warning: the numbers were tuned on another scenario, 'small'" in err


@pytest.mark.slow
def test_a_search_that_never_arrives_is_told_by_the_exit_code(capsys, tmp_path):
    text = SMALL.replace("0.5", "0.99", 1).replace("budget_s = 10.0", "budget_s = 1.0")
    path, tuned = write(tmp_path, text + METHODS), tmp_path / "tuned.json"
    code, _, err = run(capsys, "tune", path, "--seeds", "100", "--out", tuned)
    assert code == 5
    assert "no point of fedavg, nbsync reached 99 % within 1 s" in err
    code, _, err = run(capsys, "run", path, "--tuned", tuned, "--method", "nbsync")
    assert "warning: no point of nbsync reached its target when it was tuned" in err


@pytest.fixture
def campaigns(tmp_path):
    """Two made-up campaigns on different links."""
    from aiops.lab.result import Folder
    from tests.lab.kit import record, small
    from tests.lab.test_comparison import manifest

    made = []
    for name, mbit, fast_s in (("near", 10.0, 4.0), ("far", 0.5, 2.0)):
        ready = small(name=name, link=msgspec.structs.replace(small().link, up_mbit=mbit))
        with Folder(tmp_path / name, manifest(ready)) as folder:
            folder.add(record("slow", 0, 8.0, scenario=name))
            folder.add(record("fast", 0, fast_s, scenario=name))
        made.append(tmp_path / name)
    return made


def test_several_scenarios_become_a_matrix_and_a_picture(capsys, campaigns, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "compare", *campaigns)
    assert code == 0
    assert out.splitlines()[0].startswith("near (virtual): S/c ")
    lines = out.splitlines()
    at = lines.index("fast: times as fast as slow")
    assert [line.split()[-1] for line in lines[at + 2 : at + 4]] == ["2.00", "4.00"]
    assert err == "picture: speedup.png\n"
    assert (tmp_path / "speedup.png").exists()


def test_one_scenario_becomes_a_table_and_no_picture(capsys, campaigns, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "compare", campaigns[0] / "records.jsonl", "--reference", "fast")
    assert (code, err) == (0, "")
    assert "times as fast as fast" in out
    assert not (tmp_path / "speedup.png").exists()


def test_comparisons_for_programs(capsys, campaigns, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "compare", *campaigns, "--json")
    assert code == 0
    assert [one["setting"]["scenario"] for one in json.loads(out)] == ["near", "far"]
    assert not (tmp_path / "speedup.png").exists()


def test_the_same_results_twice_are_refused(capsys, campaigns):
    code, _, err = run(capsys, "compare", campaigns[0], campaigns[0])
    assert code == 2
    assert "two runs of 'slow' with seed 0" in err


def test_without_matplotlib_there_is_no_picture_but_a_word(capsys, campaigns, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiops.lab.picture", None)
    code, out, err = run(capsys, "compare", *campaigns)
    assert code == 0
    assert "times as fast" in out
    assert "no pictures: " in err
    assert "pip install 'aiops-ps[demo]'" in err


@pytest.mark.slow
def test_a_manifest_of_another_machine_is_warned_of(capsys, scenario, tmp_path):
    out = tmp_path / "out"
    run(capsys, "run", scenario, "--method", "nbsync", "--out", out, "--no-pictures")
    there = read_manifest(out / "manifest.json")
    machine = msgspec.structs.replace(fingerprint(), kernels="none")
    other = tmp_path / "manifest.json"
    other.write_bytes(msgspec.json.encode(msgspec.structs.replace(there, machine=machine)))
    code, _, err = run(capsys, "run", other)
    assert code == 0
    assert "warning: results may differ for kernels: none in the earlier run" in err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_campaign_keeps_what_it_has(tmp_path, number, code):
    text = "stop_at_target = false\n" + SMALL.replace("budget_s = 10.0", "budget_s = 3.0") + METHODS
    path, out = write(tmp_path, text), tmp_path / "out"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "aiops", "lab", "run", str(path), "--out", str(out)),
            *("--processes", "1", "--seeds", ",".join(map(str, range(200)))),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not process.stderr.readline().startswith("[3/400]"):
        assert process.poll() is None
    started = children(process.pid)
    process.send_signal(number)
    told, err = process.communicate(timeout=50)
    assert process.returncode == code
    assert "interrupted, all processes are ended; 400 runs were asked for" in err
    assert "times as fast as fedavg" in told
    assert started
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    found = read_result(out)
    assert all(isinstance(record, Record) for record in found.records)
    assert len(found.records) >= 3
    assert (out / "summary.json").exists()


def children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in text.read_text().split() if int(child) != os.getpid()]
