"""A scenario is checked whole before anything runs, and the sentence names the place."""

import msgspec
import pytest

from aiops.errors import ConfigError
from aiops.lab.scenario import (
    LINE_OVERHEAD,
    Change,
    Link,
    Scenario,
    Workers,
    heterogeneity,
    only,
    read,
    speed_ratio,
)


def write(tmp_path, text):
    path = tmp_path / "s.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds = [0]\nname = x", r"s\.toml: Invalid value \(at line 2, column 8\)"),
        ("colour = 1", "unknown field `colour`"),
        ("[link]\nspeed = 1", r"unknown field `speed` - at `\$\.link`"),
        ("[link]\nup_mbit = 0", r"> 0.* - at `\$\.link\.up_mbit`"),
        ("[link]\nup_mbit = nan", r"> 0.*up_mbit|up_mbit is nan, it must be a finite number"),
        ("[link]\ndelay_ms = -1.0", r"at `\$\.link\.delay_ms`"),
        ("[link]\njitter_ms = 30", "jitter_ms is 30, it must be at most delay_ms, 25"),
        ("[link]\nloss = 1.0", r"< 1.*at `\$\.link\.loss`"),
        (
            "[workers]\nstep_s = inf",
            r"step_s is inf, it must be a finite number - at `\$\.workers`",
        ),
        ("[workers]\ncount = 0", r"at `\$\.workers\.count`"),
        ("[workers]\nslowdown = [0.5]", r"at `\$\.workers\.slowdown\[0\]`"),
        ("[workers]\ncount = 1\nslowdown = [1, 2]", "slowdown names 2 workers, there are 1"),
        ("[data]\nn_train = 0", r"at `\$\.data\.n_train`"),
        ("[data]\nalpha = 0.0", r"at `\$\.data\.alpha`"),
        ("[data]\nalpha = 'even'", r"'even' - at `\$\.data\.alpha`"),
        ("[data]\nsplit_seed = -1", r"at `\$\.data\.split_seed`"),
        ("[model]\nname = 'rnn'", r"'rnn' - at `\$\.model\.name`"),
        ("[model]\nhidden = [0]", r"at `\$\.model\.hidden\[0\]`"),
        ("[links.6]\nup_mbit = 1", "worker '6' has a link or a change, workers are 0 to 5"),
        ("[links.01]\nup_mbit = 1", "worker '01' has a link or a change"),
        ("[links.x]\nup_mbit = 1", "worker 'x' has a link or a change"),
        ("[[changes]]\nat_s = 1\nworkers = [9]\nslowdown = 2", "worker '9' has a link or a change"),
        ("[[changes]]\nslowdown = 2", r"missing required field `at_s` - at `\$\.changes\[0\]`"),
        ("[[changes]]\nat_s = 1", "change at 1 s changes nothing, it may set delay_ms, down_mbit"),
        ("[[changes]]\nat_s = 1\nslowdown = 0.5", r"at `\$\.changes\[0\]\.slowdown`"),
        (
            "[[changes]]\nat_s = 2\nslowdown = 2\n[[changes]]\nat_s = 1\nslowdown = 1",
            "change at 1 s stands behind one at 2 s, they must be in order of time",
        ),
        ("eval_s = 5\nbudget_s = 4", "eval_s is 5, budget_s only 4"),
        ("target = 1.0", r"at `\$\.target`"),
        ("budget_s = 0", r"at `\$\.budget_s`"),
        ("seeds = []", "at least one seed and one method"),
        ("seeds = [-1]", r"at `\$\.seeds\[0\]`"),
        ("seeds = [1, 2, 1]", "seed 1 stands there twice"),
        ("methods = []", "at least one seed and one method"),
        ("methods = ['fedavg', 'fedavg']", "two methods are called 'fedavg'"),
        ("methods = ['fedavgg']", "'fedavgg'"),
        ("[[methods]]\nlabel = 'a'\nalgorithm = 'fedavgg'", r"'fedavgg'.*at `\$\.methods\[0\]`"),
        ("[[methods]]\nlabel = 'a'", r"missing required field `algorithm` - at `\$\.methods\[0\]`"),
        (
            "[[methods]]\nlabel = 'a'\nalgorithm = 'fedavg'\nsettings = { work = 'fixed:0' }",
            r"method 'a': fixed's steps is 0.*at `\$\.methods\[0\]`",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read(write(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read scenario .*no\.toml: No such file"):
        read(tmp_path / "no.toml")


def test_a_whole_scenario_is_read(tmp_path):
    text = """
    name = "whole"
    seeds = [0, 1]
    methods = ["ssgd", { label = "f", algorithm = "fedavg", lr = 0.2 }]
    [workers]
    count = 3
    slowdown = [1, 4]
    [link]
    up_mbit = 10
    [links.2]
    up_mbit = 5
    down_mbit = 20
    """
    scenario = read(write(tmp_path, text))
    assert [method.label for method in scenario.chosen] == ["ssgd", "f"]
    assert [scenario.slowdown_of(worker) for worker in range(3)] == [1.0, 4.0, 1.0]
    assert scenario.link_of(0).rates_mbit == (10.0, 10.0)
    assert scenario.link_of(2).rates_mbit == (5.0, 20.0)


@pytest.mark.parametrize(("alpha", "skew"), [("0.5", 0.5), ("1", 1.0), ("'iid'", None)])
def test_labels_are_skewed_or_dealt_evenly(tmp_path, alpha, skew):
    assert read(write(tmp_path, f"[data]\nalpha = {alpha}")).data.skew == skew


def test_a_scenario_survives_json():
    scenario = Scenario(changes=(Change(at_s=1.0, slowdown=2.0),), links={"0": Link(up_mbit=1.0)})
    assert msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario) == scenario


def test_only_some_methods_in_the_order_asked_for():
    scenario = Scenario(methods=("fedavg", "nbsync", "ssgd"))
    assert [m.label for m in only(scenario, ["ssgd", "fedavg"]).chosen] == ["ssgd", "fedavg"]
    assert only(scenario, []) is scenario
    with pytest.raises(ConfigError, match="no method 'asp', only fedavg, nbsync, ssgd"):
        only(scenario, ["asp"])


def test_sync_over_step_time_by_hand():
    # 10^6 values are 32 Mbit: 3.2 s up and 1.6 s down, stretched by the headers, and 0.1 s of delay.
    scenario = Scenario(
        workers=Workers(count=2, step_s=0.1, slowdown=(2.0, 3.0)),
        link=Link(up_mbit=100.0, delay_ms=1.0),
        links={"1": Link(up_mbit=10.0, down_mbit=20.0, delay_ms=50.0)},
    )
    sync_s = 4.8 * LINE_OVERHEAD + 0.1
    assert scenario.sync_s(1_000_000) == pytest.approx(sync_s)
    assert speed_ratio(scenario, 1_000_000) == pytest.approx(sync_s / 0.2)
    assert heterogeneity(scenario) == 1.5


def test_a_change_without_workers_is_for_everybody():
    everybody, one = Change(at_s=0, slowdown=2.0), Change(at_s=0, workers=(1,), slowdown=2.0)
    assert [everybody.applies_to(w) for w in (0, 1)] == [True, True]
    assert [one.applies_to(w) for w in (0, 1)] == [False, True]
