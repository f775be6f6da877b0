"""What people read of results."""

import msgspec
import pytest

from aiops.bench.machine import fingerprint
from aiops.lab.comparison import compare, setting_of
from aiops.lab.method import Method
from aiops.lab.scenario import Change, Link, Workers
from aiops.lab.table import (
    about,
    links,
    matrix,
    percent,
    remarks,
    table,
    tuned_table,
    where,
)
from aiops.lab.tune import Trial, Tuned
from tests.lab.kit import record, small

SETTING = setting_of(small(), "virtual", 1000)
RUNS = {
    "slow": [record("slow", 0, 10.0), record("slow", 1, 40.0)],
    "fast": [record("fast", 0, 5.0), record("fast", 1, 10.0)],
    "half": [record("half", 0, 5.0), record("half", 1, None)],
    "wrong": [record("wrong", seed, 1.0, rejected=("steps 9 % late",)) for seed in (0, 1)],
    "none": [],
}


def test_a_table_has_a_line_per_method():
    head, slow, fast, half, wrong, none, _, foot = table(compare(SETTING, RUNS, "slow"))
    assert head.split()[:3] == ["s", "to", "60"]
    assert slow.split()[:6] == ["slow", "20.0", "(10.0-40.0)", "1", "2", "of"]
    assert fast.split()[:5] == ["fast", "7.07", "(5.00-10.0)", "2.83", "(2.00-4.00)"]
    assert half.split()[1:6] == ["-", "-", "1", "of", "2"]
    assert wrong == "wrong         all 2 runs rejected"
    assert none == "none          no run yet"
    assert foot == (
        "geometric means over seeds 0, 1 with 95 % bootstrap intervals; "
        "times as fast as slow, paired by seed"
    )
    assert max(map(len, (head, slow, fast, half))) <= 120
    # Columns stand under their heads.
    assert head.index("reached") + len("reached") == slow.index("2 of 2") + len("2 of 2")


def test_rejected_runs_are_counted_beside_the_others():
    runs = {"slow": [*RUNS["slow"], record("slow", 2, 1.0, rejected=("steps 9 % late",))]}
    assert list(table(compare(SETTING, runs, "slow")))[1].endswith("%  1 rejected")


def test_a_table_of_one_seed_has_no_intervals():
    runs = {label: records[:1] for label, records in RUNS.items()}
    lines = list(table(compare(SETTING, runs, "slow")))
    assert lines[2].split()[:3] == ["fast", "5.00", "2.00"]
    assert lines[-1] == "one run with seed 0; times as fast as slow"


def test_what_is_run_is_said_in_short():
    first, second = about(small(), SETTING)
    assert first.startswith("small: S/c 1.7")
    assert first.endswith("a step of 50 ms), 2 workers, the slowest 2 times slower")
    assert second == (
        "1,000 values, digits, label skew 0.3, target 60 %, at most 4 s; "
        "links: 2 of 1 Mbit/s, 10 ms each way; no TCP (virtual)"
    )


def test_links_are_told_by_kind():
    scenario = small(
        workers=Workers(count=3),
        links={"1": Link(up_mbit=5.0, down_mbit=20.0, jitter_ms=5.0, loss=0.001)},
        changes=(Change(at_s=1.0, loss=0.1),),
    )
    assert links(scenario, "real") == (
        "links: 2 of 1 Mbit/s, 10 ms each way; 1 of 5/20 Mbit/s, 25 +- 5 ms each way, 0.10% lost; "
        "congestion control bbr, 1 change on the way"
    )


def test_an_even_deal_is_said():
    scenario = small(data=msgspec.structs.replace(small().data, alpha="iid"))
    assert "digits, evenly dealt, target" in list(about(scenario, SETTING))[1]


@pytest.mark.parametrize(("lab", "words"), [("virtual", "virtual time"), ("real", "padded")])
def test_where_it_ran_is_one_line(lab, words):
    line = where(fingerprint(), lab)
    assert words in line
    assert "cores" in line
    assert "\n" not in line


def test_what_does_not_count_is_told_with_its_reason():
    failed = msgspec.structs.replace(RUNS["slow"][0], failed="training diverged: nan")
    assert list(remarks([failed, RUNS["wrong"][1], RUNS["fast"][0]])) == [
        "failed: slow, seed 0: training diverged: nan",
        "rejected: wrong, seed 1: steps 9 % late",
    ]


def test_a_matrix_has_a_cell_per_scenario():
    def one(ratio, heterogeneity, fast_s):
        setting = msgspec.structs.replace(SETTING, ratio=ratio, heterogeneity=heterogeneity)
        runs = {"slow": RUNS["slow"][:1], "fast": [record("fast", 0, fast_s)]}
        return compare(setting, runs, "slow")

    title, head, ten, forty = matrix([one(10, 1, 5.0), one(40, 1, 2.5), one(40, 4, None)], "fast")
    assert title == "fast: times as fast as slow"
    assert head.split() == ["S/c", "slowest", "1x", "slowest", "4x"]
    assert ten.split() == ["10", "2.00"]
    assert forty.split() == ["40", "4.00", "not", "reached"]


def test_tuned_numbers_are_told_with_their_edges():
    method = Method(
        label="f",
        algorithm="fedavg",
        settings={"work": "fixed:{tau}"},
        grid={"tau": (5, 10, 20), "lr": (0.1, 0.2)},
    )
    trial = Trial(numbers={"tau": 10, "lr": 0.2}, times_s={100: 5.0})
    best = Tuned(method=method.at(trial.numbers), reached=True, trials=(trial,), best=0)
    plain = Tuned(
        method=Method(label="g", algorithm="ssgd"),
        reached=False,
        trials=(Trial(numbers={}, times_s={100: None}),),
        best=0,
    )
    lines = list(tuned_table([best, plain], [100, 101]))
    assert lines[1].split() == [
        "f",
        "1",
        "5.00",
        "tau",
        "10,",
        "lr",
        "0.2",
        "(lr",
        "at",
        "the",
        "edge)",
    ]
    assert lines[2].split() == ["g", "1", "not", "reached", "no", "grid"]
    assert lines[-2:] == [
        "geometric means over seeds 100, 101",
        "at the edge: a wider grid may hold a better number",
    ]


@pytest.mark.parametrize(
    ("share", "text"), [(0.9, "90 %"), (0.925, "92.5 %"), (0.12345, "12.35 %")]
)
def test_shares_have_as_many_digits_as_they_need(share, text):
    assert percent(share) == text
