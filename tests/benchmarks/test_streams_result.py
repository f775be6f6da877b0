"""What rows, learning rates and sentences say of trainings whose numbers are made up."""

import pytest

from benchmarks.streams_clock import RESNET152, Span
from benchmarks.streams_method import Method, Setting, Task
from benchmarks.streams_result import BASELINE, OURS, best, piles, rows
from benchmarks.streams_training import Result
from benchmarks.streams_view import skew
from benchmarks.trainings import arrival


def result(label, rises_at, *, seed=0, lr=0.1, step_s=2.0, setting="S1' IID, 10 devices", top=0.9):
    looks = list(range(0, 55, 5))
    return Result(
        setting=setting,
        label=label,
        lr=lr,
        seed=seed,
        slowest=20.0 + seed,
        looks=looks,
        accuracy=[top if step >= rises_at else 0.1 for step in looks],
        seconds=[step * step_s for step in looks],
        spans=Span(5.0, 75.0, 20.0),
        samples=640.0,
        compressed=0.0,
        megabytes=450.0,
        injected_bytes=0.0,
        held=0.0,
        most=1000.0,
        dropped=0.0,
    )


def test_the_target_is_reached_with_the_fifth_look_above_it():
    assert arrival([0.1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9], 0.85) == 5
    assert arrival([0.9, 0.9, 0.9, 0.9], 0.85) is None
    assert arrival([0.9, 0.1, 0.9, 0.9, 0.9, 0.9], 0.85) is None


def test_a_ratio_is_of_the_times_of_each_seed():
    found = rows(
        [
            # At the target with the looks at 25 and 45, and at 25 twice: 4 and 5 s a step.
            result(BASELINE, 5, seed=0, step_s=4.0),
            result(BASELINE, 25, seed=1, step_s=4.0),
            result(OURS, 5, seed=0, step_s=2.0),
            result(OURS, 5, seed=1, step_s=2.0),
        ],
        0.85,
    )
    theirs, ours = found
    assert theirs.ratio.mean == 1.0
    assert ours.ratio.mean == pytest.approx((100 / 50 * 180 / 50) ** 0.5)
    assert ours.ratios == [(20.0, 2.0), (21.0, 3.6)]
    assert (theirs.steps, ours.steps) == (35, 25)
    assert ours.seconds.mean == pytest.approx(50)
    assert (ours.wait_s, ours.compute_s, ours.exchange_s) == pytest.approx((0.1, 1.5, 0.4))
    assert ours.buffer_megabytes == pytest.approx(3.072)


def test_there_is_no_ratio_over_a_baseline_that_never_came():
    theirs, ours = rows([result(BASELINE, 99), result(OURS, 5)], 0.85)
    assert theirs.ratio is None
    assert theirs.seconds is None
    assert (theirs.reached, ours.reached, ours.ratio) == (0, 1, None)


def test_the_learning_rate_is_the_soonest_and_without_any_the_best():
    assert best([result(OURS, 25, lr=0.1), result(OURS, 5, lr=0.2)], 0.85).lr == 0.2
    late = [result(OURS, 99, lr=0.1), result(OURS, 5, lr=0.2, top=0.5)]
    chosen = best(late, 0.85)
    assert chosen.lr == 0.2
    assert chosen.seconds == {"0.1": None, "0.2": None}
    assert chosen.accuracy == {"0.1": 0.1, "0.2": 0.5}


def test_skewed_streams_are_measured_by_ours_on_even_ones():
    skewed = "S1' one label each, 10 devices"
    found = rows([result(BASELINE, 5), result(OURS, 5)], 0.85)
    found += rows(
        [
            result(BASELINE, 5, setting=skewed, top=0.15),
            result(OURS, 5, setting=skewed, top=0.88),
            result("without injection", 5, setting=skewed, top=0.2),
        ],
        0.85,
    )
    lines = list(skew(found))
    assert "0.9000" in lines[0]
    assert lines[1:] == ["  ScaDLES: 2.0", "  without injection: 70.0", "  DDL: 75.0"]


def test_buffers_are_those_of_equal_steps():
    setting = Setting("S2'", 10, False, RESNET152)
    found = piles(setting, [result(BASELINE, 5), result(OURS, 5)])
    rates = setting.drawn(0)
    # Each step of DDL takes 1.2 + 0.4 s.
    grown = sum((1.6 * rate - 64) * 999 for rate in rates)
    assert found[0].baseline == pytest.approx(grown, rel=0.01)
    assert found[1].baseline == pytest.approx(10 * found[0].baseline, rel=0.01)
    assert [one.truncated for one in found] == [found[0].truncated] * 3
    assert found[0].truncated == pytest.approx(sum(rates), abs=10)


def test_a_learning_rate_falls_at_its_milestones():
    task = Task(steps=100, milestones=(0.6, 0.8), decay=0.2)
    assert [task.lr(1.0, step) for step in (0, 59, 60, 80)] == pytest.approx([1, 1, 0.2, 0.04])


def test_parts_are_what_a_method_says():
    assert Method("x").config.weights == "by_samples"
    assert Method("x", weighs=False).config.weights == "uniform"
    assert Method("x", compresses=False).config.collectives == ("dense_ring",)
    assert Method("x", sparse="allgather_ring").config.collectives[1] == "allgather_ring"
    assert Method("x", batches="fixed").rule.samples == 64
