"""Pictures are drawn from whatever a campaign may leave; what they look like is for people."""

import pytest

pytest.importorskip("matplotlib")

import msgspec

from aiops.lab import picture
from aiops.lab.comparison import compare, setting_of
from aiops.lab.record import Lane
from aiops.lab.scenario import Change
from tests.lab.kit import record, small

POINTS = [(1.0, 1, 0.5, 1.0), (2.0, 2, 0.7, 0.8), (3.0, 4, 0.65, 0.9)]


def full(label, seed, reached_s=2.0, workers=2):
    there = record(label, seed, reached_s, points=POINTS)
    lanes = (Lane("compute", 0.0, 1.0), Lane("sync", 1.0, 2.0), Lane("wait", 1.0, 2.0))
    worker = msgspec.structs.replace(there.workers[0], lanes=lanes)
    return msgspec.structs.replace(there, workers=(worker,) * workers)


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


def test_accuracy_of_any_number_of_seeds_and_methods(tmp_path):
    runs = {f"m{n}": [full(f"m{n}", seed) for seed in range(n % 3 + 1)] for n in range(9)}
    runs["never"] = [full("never", 0, None), full("never", 1, 2.0)]
    runs["nothing"] = [record("nothing", 0, None)]
    changes = (Change(at_s=1.0, slowdown=2.0), Change(at_s=2.0, workers=(1,), up_mbit=0.5))
    picture.accuracy(runs, small(changes=changes), tmp_path / "a.png", title="a\nb")
    assert is_picture(tmp_path / "a.png")


def test_a_timeline_of_few_and_of_many_workers(tmp_path):
    runs = {"few": [full("few", 0)], "many": [full("many", 0, workers=40)]}
    picture.timeline(runs, tmp_path / "t.png", title="here")
    assert is_picture(tmp_path / "t.png")


def test_a_timeline_of_nothing_is_not_drawn(tmp_path):
    picture.timeline({"none": [record("none", 0, None)], "no": []}, tmp_path / "t.png")
    assert not (tmp_path / "t.png").exists()


@pytest.mark.parametrize("count", [2, 41])
def test_the_first_and_the_last_worker_are_shown(count):
    shown = picture._some(count)
    assert (shown[0], shown[-1]) == (0, count - 1)
    assert len(shown) == min(count, picture.SHOWN_WORKERS)


def comparison(ratio, heterogeneity, fast_s, reference="slow"):
    setting = msgspec.structs.replace(
        setting_of(small(), "virtual", 1000), ratio=ratio, heterogeneity=heterogeneity
    )
    runs = {"slow": [full("slow", 0, 8.0)], "fast": [full("fast", 0, fast_s)]}
    return compare(setting, runs, reference)


def test_a_map_of_speedups(tmp_path):
    found = [comparison(10, 1, 0.1), comparison(40, 1, 16.0), comparison(40, 4, None)]
    assert picture.speedups(found, tmp_path / "s.png")
    assert is_picture(tmp_path / "s.png")


def test_a_map_without_another_method_is_not_drawn(tmp_path):
    one = comparison(10, 1, 2.0)
    alone = msgspec.structs.replace(one, methods=one.methods[:1])
    assert not picture.speedups([alone, alone], tmp_path / "s.png")
    assert not (tmp_path / "s.png").exists()
