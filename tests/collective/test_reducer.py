"""Exchanges of gradients among ranks in lockstep: nothing is lost, and nobody differs."""

import numpy as np
import pytest

from aiops.errors import ConfigError, NotFinite
from tests.collective.kit import RANKS, gradients, reduce, reducers

SPARSE = [
    "allgather_ring", "allgather_direct", "artopk_ring", "artopk_tree", "artopk_direct", "var_ring", "var_direct",
    "vote_ring", "vote_tree",
]  # fmt: skip


def residuals(group):
    return np.sum([each.memory.residual.astype(np.float64) for each in group], axis=0)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("collective", [*SPARSE, "dense_ring"])
@pytest.mark.parametrize("values", ["fp32", "bf16", "fp16", "int8"])
def test_what_is_sent_and_what_is_left_are_all_gradients(ranks, collective, values):
    group = reducers(ranks, 1000, density=0.05, collectives=collective, values=values)
    given, sent = np.zeros(1000), np.zeros(1000)
    for step in range(2 * ranks + 1):
        rows = gradients(ranks, 1000, step=step)
        given += rows.sum(axis=0, dtype=np.float64)
        reduce(group, rows)
        sent += rows[0].astype(np.float64) * ranks
    scale = np.abs(given).max()
    np.testing.assert_allclose(sent + residuals(group), given, rtol=0, atol=3e-6 * scale)


@pytest.mark.parametrize("positions", ["raw", "elias", "packed", "rice"])
@pytest.mark.parametrize("collective", ["allgather_ring", "artopk_ring", "vote_ring"])
def test_how_positions_are_written_changes_nothing(positions, collective):
    results = []
    for code in ("raw", positions):
        group = reducers(3, 5000, density=0.02, collectives=collective, positions=code)
        for step in range(4):
            rows = gradients(3, 5000, step=step)
            reduce(group, rows)
        results.append(rows[0])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("collective", [*SPARSE, "dense_ring", "dense_tree", "dense_direct"])
@pytest.mark.parametrize("values", ["fp32", "int8"])
def test_every_rank_gets_the_same_bits(ranks, collective, values):
    group = reducers(ranks, 777, density=0.03, collectives=collective, values=values)
    for step in range(3):
        rows = gradients(ranks, 777, step=step)
        reduce(group, rows)
        assert (rows == rows[0]).all()


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("collective", ["artopk_ring", "var_ring"])
def test_at_density_1_it_is_the_dense_sum(ranks, collective):
    ours = reducers(ranks, 500, density=1.0, collectives=collective)
    dense = reducers(ranks, 500, density=1.0, collectives="dense_ring")
    for step in range(3):
        rows, plain = gradients(ranks, 500, step=step), gradients(ranks, 500, step=step)
        reduce(ours, rows)
        reduce(dense, plain)
        np.testing.assert_array_equal(rows, plain)
        np.testing.assert_array_equal(
            rows[0], gradients(ranks, 500, step=step).sum(0) * np.float32(1 / ranks)
        )


def test_leaders_take_turns():
    group = reducers(3, 100, density=0.02, collectives="artopk_ring")
    for step in range(4):
        rows = gradients(3, 100, step=step)
        whole = rows[step % 3] + group[step % 3].memory.residual
        largest = np.sort(np.argsort(-np.abs(whole))[:2])
        reduce(group, rows)
        np.testing.assert_array_equal(np.flatnonzero(rows[0]), largest)


def test_the_leader_is_whose_largest_hold_most_energy():
    group = reducers(3, 100, density=0.02, collectives="var_ring")
    rows = gradients(3, 100)
    rows[1] *= 100
    largest = np.sort(np.argsort(-np.abs(rows[1]))[:2])
    reduce(group, rows)
    np.testing.assert_array_equal(np.flatnonzero(rows[0]), largest)


def test_each_rank_votes_for_its_share():
    group = reducers(4, 100, density=0.08, collectives="vote_ring")
    rows = gradients(4, 100)
    wanted = {int(at) for row in rows for at in np.argsort(-np.abs(row))[:2]}
    reduce(group, rows)
    assert set(np.flatnonzero(rows[0]).tolist()) == wanted


@pytest.mark.parametrize("collective", [*SPARSE, "dense_ring"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_is_refused_by_all_and_leaves_no_trace(collective, bad):
    group = reducers(3, 200, density=0.05, collectives=collective, momentum=0.5)
    fresh = reducers(3, 200, density=0.05, collectives=collective, momentum=0.5)
    for each in (group, fresh):
        reduce(each, gradients(3, 200, step=0))
    rows = gradients(3, 200, step=1)
    rows[1, 17] = bad
    kept = rows.copy()
    with pytest.raises(NotFinite, match="gradient of rank 1 is not finite"):
        reduce(group, rows)
    np.testing.assert_array_equal(rows, kept)
    ours, theirs = gradients(3, 200, step=2), gradients(3, 200, step=2)
    reduce(group, ours)
    reduce(fresh, theirs)
    np.testing.assert_array_equal(ours, theirs)
    for one, other in zip(group, fresh, strict=True):
        np.testing.assert_array_equal(one.memory.residual, other.memory.residual)


@pytest.mark.parametrize("collective", ["allgather_ring", "artopk_ring", "dense_ring"])
def test_a_sum_that_overflows_is_refused_by_all(collective):
    group = reducers(2, 50, density=0.1, collectives=collective)
    rows = np.zeros((2, 50), np.float32)
    rows[:, 7] = 3e38
    if collective == "allgather_ring":
        # Each rank's values are finite and scaled before they meet.
        reduce(group, rows)
        assert np.isfinite(rows).all()
        return
    with pytest.raises(NotFinite, match="sum of all ranks' values is inf at position 7"):
        reduce(group, rows)


def test_ranks_that_were_told_different_things_are_told_so():
    ours = reducers(2, 50, density=0.1)[0]
    theirs = reducers(2, 60, density=0.1)[1]
    with pytest.raises(ConfigError, match="rank 1 has 60 values, rank 0 has 50 values"):
        reduce([ours, theirs], [np.zeros(50, np.float32), np.zeros(60, np.float32)])
    theirs = reducers(2, 50, density=0.2)[1]
    with pytest.raises(ConfigError, match="rank 1 exchanges by other rules"):
        reduce([ours, theirs], np.zeros((2, 50), np.float32))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("collective", ["var_ring", "artopk_ring"])
def test_a_state_goes_on_where_it_was_saved(momentum, collective):
    told = {"density": 0.05, "collectives": collective, "momentum": momentum}
    group = reducers(3, 200, **told)
    for step in range(4):
        reduce(group, gradients(3, 200, step=step))
    fresh = reducers(3, 200, **told)
    for one, other in zip(fresh, group, strict=True):
        one.load_state_dict(other.state_dict())
    for step in range(4, 8):
        ours, theirs = gradients(3, 200, step=step), gradients(3, 200, step=step)
        reduce(group, ours)
        reduce(fresh, theirs)
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 201}, "state is of n 201, here it is 200"),
        ({"rank": 1}, "state is of rank 1, here it is 0"),
        ({"ranks": 4}, "state is of ranks 4, here it is 3"),
        ({"velocity": np.zeros(200, np.float32)}, "state has momentum, the configuration lacks it"),
        ({"collective": "vote_ring"}, "state exchanges by vote_ring:0.05"),
    ],
)
def test_a_state_of_another_training_is_refused(change, words):
    (one, *_) = reducers(3, 200, density=0.05, collectives="artopk_ring")
    with pytest.raises(ConfigError, match=words):
        one.load_state_dict({**one.state_dict(), **change})
    state = one.state_dict()
    del state["residual"]
    with pytest.raises(ConfigError, match="state has no residual"):
        one.load_state_dict(state)


def test_momentum_is_forgotten_where_a_value_was_sent():
    (one,) = reducers(1, 4, density=0.25, collectives="artopk_ring", momentum=0.5)
    reduce([one], np.array([[4.0, 1.0, 0.0, 0.0]], np.float32))
    np.testing.assert_array_equal(one.memory.velocity, [0, 1, 0, 0])
    rows = np.array([[0.0, 1.0, 0.0, 0.0]], np.float32)
    reduce([one], rows)
    # Residual 1 and momentum .5 * 1 + 1.
    np.testing.assert_array_equal(rows, [[0, 2.5, 0, 0]])
    np.testing.assert_array_equal(one.memory.velocity, 0)


def test_where_everything_is_sent_momentum_stays():
    # Nothing is stale then: it is what an optimizer with momentum would have done.
    group = reducers(2, 3, density=1, collectives="dense_ring", momentum=0.5)
    velocity = np.zeros(3, np.float32)
    for step in range(3):
        rows = np.array([[4.0, 1.0, step], [2.0, 3.0, -step]], np.float32)
        velocity = 0.5 * velocity + rows.mean(axis=0)
        reduce(group, rows)
        np.testing.assert_array_equal(rows, [velocity, velocity])
        np.testing.assert_array_equal(group[0].memory.residual, 0)


def test_the_gain_is_that_of_all_ranks_together():
    group = reducers(2, 4, density=0.25, collectives="artopk_ring")
    rows = np.array([[3.0, 1.0, 0.0, 0.0], [1.0, 5.0, 0.0, 0.0]], np.float32)
    (outcome, _), _ = reduce(group, rows)
    assert outcome.gain == pytest.approx((9 + 1) / (10 + 26))
    assert (outcome.k, outcome.step, str(outcome.exchange)) == (1, 1, "artopk_ring:0.25")
