"""Runs on the virtual clock: the same each time, and what a scenario says happens when it says so."""

import gc
import itertools

import msgspec
import pytest

from aiops.errors import ConfigError
from aiops.lab import virtual
from aiops.lab.method import Method, get
from aiops.lab.problem import Problem
from aiops.lab.scenario import LINE_OVERHEAD, Change, Data, Link, Workers
from aiops.lab.training import SHOWN_ROUNDS
from tests.lab.kit import small

FEDAVG = Method(label="f", algorithm="fedavg", lr=0.5, settings={"work": "fixed:5"})


def run(scenario, method=FEDAVG, seed=0, **given):
    return virtual.run(scenario, method, seed, **given)


def timeless(record):
    return msgspec.structs.replace(record, took_s=0.0)


def rounds(record):
    """When each version but the last came in at worker 0, from its lanes."""
    return [lane.stop for lane in record.workers[0].lanes if lane.name == "sync"]


@pytest.mark.parametrize("algorithm", ["ssgd", "fedavg", "nbsync", "asp"])
@pytest.mark.parametrize("jitter_ms", [0.0, 20.0])
def test_a_run_repeats_bit_for_bit(algorithm, jitter_ms):
    scenario = small(link=Link(up_mbit=1.0, jitter_ms=jitter_ms), budget_s=4.0)
    first, second = (run(scenario, get(algorithm)) for _ in range(2))
    assert timeless(first) == timeless(second)
    assert len(first.points) > 1
    # The n-th look is at n times eval_s, and the last one at the end.
    assert {point.at % 0.25 for point in first.points} == {0.0}


def test_seeds_differ():
    assert run(small(), seed=0).points != run(small(), seed=1).points


def test_a_round_takes_its_steps_and_its_link():
    scenario = small(stop_at_target=False, budget_s=2.0)
    record = run(scenario)
    n_bytes = 4 * record.n_values
    # Five steps of the slow worker, its push, and the model back; the line carries a few hundred bytes more.
    expected = 5 * 0.1 + 2 * (n_bytes * 8 * LINE_OVERHEAD / 1e6 + 0.01)
    first = rounds(record)[0]
    assert first == pytest.approx(expected, rel=0.1)
    assert first > expected
    assert scenario.sync_s(record.n_values) == pytest.approx(expected - 0.5)


def test_workers_take_as_long_as_they_are_told():
    record = run(small(stop_at_target=False))
    assert [w.step_s for w in record.workers] == pytest.approx([0.05, 0.1])
    assert [w.target_step_s for w in record.workers] == [0.05, 0.1]


def test_step_jitter_leaves_the_mean_alone():
    jittery = Workers(count=2, step_s=0.02, jitter=0.3)
    record = run(small(workers=jittery, budget_s=30.0, stop_at_target=False), get("nbsync"))
    steps = [lane for lane in record.workers[0].lanes if lane.name == "compute"]
    assert len({round(lane.stop - lane.start, 6) for lane in steps}) > len(steps) / 2
    assert record.workers[0].step_s == pytest.approx(0.02, rel=0.05)


def test_a_slowdown_takes_effect_at_its_moment():
    change = Change(at_s=1.0, workers=(0,), slowdown=4.0)
    scenario = small(changes=(change,), stop_at_target=False, budget_s=3.0)
    record = run(scenario, get("nbsync"))
    steps = [lane for lane in record.workers[0].lanes if lane.name == "compute"]
    before = [lane.stop - lane.start for lane in steps if lane.start < 1.0 - 1e-6]
    after = [lane.stop - lane.start for lane in steps if lane.start >= 1.0 - 1e-6]
    assert before == pytest.approx([0.05] * len(before))
    assert after == pytest.approx([0.2] * len(after))
    assert before
    assert after
    # The other one goes on as it was; a mean step time of two speeds is no target.
    assert record.workers[1].step_s == pytest.approx(0.1)
    assert [w.target_step_s for w in record.workers] == [0.0, 0.1]


def test_a_rate_and_a_delay_take_effect_at_their_moment():
    scenario = small(stop_at_target=False, budget_s=6.0)
    plain = rounds(run(scenario))
    slower = rounds(
        run(msgspec.structs.replace(scenario, changes=(Change(at_s=2.0, up_mbit=0.1),)))
    )
    unaffected = sum(stop < 2.0 for stop in plain)
    assert unaffected >= 2
    assert slower[:unaffected] == plain[:unaffected]
    assert slower[unaffected + 1] > plain[unaffected + 1] + 0.1
    later = rounds(
        run(msgspec.structs.replace(scenario, changes=(Change(at_s=2.0, delay_ms=60.0),)))
    )
    lengths = [b - a for a, b in itertools.pairwise(plain)]
    longer = [b - a for a, b in itertools.pairwise(later)]
    # Each way is 50 ms longer.
    assert longer[-1] == pytest.approx(lengths[-1] + 0.1, abs=1e-6)


def test_link_jitter_spreads_the_rounds_and_may_begin_later():
    scenario = small(stop_at_target=False, budget_s=6.0)
    calm, shaken, shaken_later = (
        rounds(run(msgspec.structs.replace(scenario, **changes)))
        for changes in (
            {},
            {"link": Link(up_mbit=1.0, delay_ms=10.0, jitter_ms=8.0)},
            {"changes": (Change(at_s=2.0, jitter_ms=8.0),)},
        )
    )
    unaffected = sum(stop < 2.0 for stop in calm)
    assert len({round(b - a, 5) for a, b in itertools.pairwise(calm)}) <= 2
    assert len({round(b - a, 5) for a, b in itertools.pairwise(shaken)}) > 3
    assert shaken_later[:unaffected] == calm[:unaffected]
    assert shaken_later[unaffected + 1 :] != calm[unaffected + 1 :]


def test_links_of_single_workers():
    scenario = small(links={"1": Link(up_mbit=0.2, delay_ms=10.0)}, stop_at_target=False)
    assert rounds(run(scenario))[0] > rounds(run(small(stop_at_target=False)))[0] + 0.05


def test_bytes_are_those_of_the_rounds():
    record = run(small(stop_at_target=False, budget_s=2.0))
    n_bytes = 4 * record.n_values
    # The last round may be on its way in part; messages add some hundred bytes each.
    assert record.up_bytes == pytest.approx(2 * n_bytes * (record.rounds + 0.5), rel=0.25)
    assert record.down_bytes == pytest.approx(2 * n_bytes * (record.rounds + 0.5), rel=0.25)


def test_a_run_stops_at_its_target_and_only_then():
    stopped, whole = run(small(target=0.2)), run(small(target=0.2, stop_at_target=False))
    assert stopped.reached_s == whole.reached_s
    assert stopped.ended_s < whole.ended_s == pytest.approx(4.0)
    assert stopped.points == whole.points[: len(stopped.points)]


def test_a_run_is_given_up_unless_its_target_waits_to_be_confirmed():
    # Rounds of more than a second: the version that confirms comes long after the one at the target.
    scenario = small(link=Link(up_mbit=0.2), target=0.3, budget_s=20.0)
    reached = run(scenario)
    at = reached.reached_s
    assert reached.ended_s > at + 0.5
    assert run(scenario, give_up_s=at + 0.1).reached_s == at
    early = run(scenario, give_up_s=at - 0.1)
    assert (early.reached_s, early.ended_s <= at) == (None, True)


def test_a_run_may_end_after_so_many_rounds():
    scenario = small(stop_at_target=False, budget_s=20.0)
    record = run(scenario, rounds=3)
    assert record.rounds == 3
    # At the first look that sees it.
    assert record.ended_s == pytest.approx(0.25 * -(-rounds(run(scenario))[2] // 0.25))
    assert all(worker.rounds == 3 for worker in record.workers)


def test_a_run_leaves_the_collector_as_it_was():
    # What was collected is frozen for the whole session.
    gc.unfreeze()
    try:
        run(small())
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()
    run(small())
    assert gc.get_freeze_count() > 0


def test_the_lanes_are_those_of_the_first_rounds():
    record = run(small(stop_at_target=False, budget_s=20.0), get("nbsync"))
    for worker in record.workers:
        assert worker.rounds > SHOWN_ROUNDS
        syncs = [lane for lane in worker.lanes if lane.name == "sync"]
        assert len(syncs) == SHOWN_ROUNDS
        assert max(lane.stop for lane in worker.lanes) == syncs[-1].stop
        assert min(lane.start for lane in worker.lanes) == 0.0


def test_news_is_told_as_it_comes():
    heard = []
    record = run(small(), tell=heard.append)
    assert tuple(heard) == record.points


@pytest.mark.parametrize("algorithm", ["fedavg", "nbsync"])
def test_a_run_that_diverges_is_a_run_that_does_not_arrive(algorithm):
    record = run(small(), Method(label="x", algorithm=algorithm, lr=1e30))
    assert record.reached_s is None
    assert record.failed.startswith("training diverged: update holds ")
    assert record.ended_s < 4.0
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


def test_lossy_links_are_refused():
    for lossy in (
        small(link=Link(loss=0.01)),
        small(links={"1": Link(loss=0.01)}),
        small(changes=(Change(at_s=1.0, loss=0.01),)),
    ):
        with pytest.raises(ConfigError, match=r"lose 0\.01 of their packets.*use the real lab"):
            run(lossy)


def test_more_samples_than_there_are_are_refused():
    with pytest.raises(ConfigError, match="n_train is 5000, digits has"):
        Problem(small(data=Data(name="digits", n_train=5000)))
    with pytest.raises(ConfigError, match="n_test is 5000, digits has"):
        Problem(small(data=Data(name="digits", n_test=5000)))


def test_an_even_deal_gives_every_worker_every_label():
    even = Problem(small(data=msgspec.structs.replace(small().data, alpha="iid")))
    assert [len(set(even._y[share])) for share in even.shares] == [10, 10]
    assert [len(share) for share in even.shares] == [200, 200]


def test_batches_repeat_and_stay_in_the_workers_share():
    problem = Problem(small())
    (images, labels), (again, _) = (problem.sampler(1, 3).draw() for _ in range(2))
    assert (images == again).all()
    assert set(labels) <= set(problem._y[problem.shares[1]])
    assert sum(map(len, problem.shares)) == 400
