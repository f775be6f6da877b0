"""Every rank's vote on compression, and the whole gradient that each votes by."""

import numpy as np
import pytest

from aiops.collective.memory import Memory
from aiops.collective.select import largest
from aiops.policy.exchange import Exchange
from tests.collective.kit import gradients, reduce, reducers
from tests.collective.test_reducer import SPARSE, residuals
from tests.collective.test_weight import weigh

DENSE, SPARSE_10 = "dense_ring", "artopk_ring:0.1"
COLLECTIVES = ("dense_ring", "artopk_ring")


class Watching:
    """A density policy whose ranks note what they are shown, and vote no."""

    def __init__(self, exchange):
        self.exchange, self.shown = exchange, []

    def __str__(self):
        return "watching"

    __repr__ = __str__

    def judge(self, load, collectives):
        return WatchingJudge(self.exchange, self.shown)


class WatchingJudge:
    probes, trials = False, ()

    def __init__(self, exchange, shown):
        self.first, self.shown = exchange, shown

    def observe(self, seen):
        return False

    def decide(self, spectrum):
        return None

    def vote(self, spectrum):
        self.shown.append((spectrum.total, spectrum.gain(0.2)))
        return False


@pytest.mark.parametrize("collective", [*SPARSE, "dense_ring"])
@pytest.mark.parametrize("values", ["fp32", "int8"])
def test_a_rank_votes_by_its_whole_gradient_and_residual(collective, values):
    watching = Watching(Exchange(collective, 0.1))
    group = reducers(3, 2000, density=watching, collectives=collective, values=values)
    for step in range(4):
        rows = gradients(3, 2000, step=step)
        whole = [row + each.memory.residual for row, each in zip(rows, group, strict=True)]
        watching.shown.clear()
        reduce(group, rows)
        wanted = []
        for each in whole:
            squares = np.sort(np.square(each, dtype=np.float64))[::-1]
            wanted.append((squares.sum(), squares[:400].sum() / squares.sum()))
        # In the order of the ranks; a gain between two buckets is a little less than the exact one.
        np.testing.assert_allclose(watching.shown, wanted, rtol=0.01)


def test_a_draft_knows_what_is_out_of_it():
    memory = Memory(6)
    draft = memory.draft(np.array([1, -5, 2, 4, 0, 3], np.float32), 2, largest)
    assert (draft.index.tolist(), draft.value.tolist(), draft.moved_energy) == ([1, 3], [-5, 4], 41)
    draft.put_back()
    assert (draft.index.size, draft.value.size, draft.moved_energy) == (0, 0, 0.0)
    assert draft.take(np.array([0, 3], np.uint32)).tolist() == [1, 4]
    assert (draft.index.tolist(), draft.value.tolist(), draft.moved_energy) == ([0, 3], [1, 4], 17)
    assert draft.left.tolist() == [0, -5, 2, 0, 0, 3]


def steep(ranks, n, step, flat=()):
    """Gradients with nearly all energy in a hundredth of the values, but for the ranks that are flat."""
    rows = gradients(ranks, n, seed=5, step=step)
    rows = np.sign(rows) + rows * np.float32(1e-3)
    rows[:, : n // 100] *= 1000
    for rank in flat:
        rows[rank, : n // 100] /= 1000
    return rows


def exchanges(group, steps, flat=()):
    done = []
    for step in range(steps):
        rows = steep(len(group), 1000, step, flat)
        outcomes, _ = reduce(group, rows)
        assert (rows == rows[0]).all()
        assert len({each.exchange for each in group}) == 1
        done.append(str(outcomes[0].exchange))
    return done


@pytest.mark.parametrize(
    ("ranks", "flat", "compresses"),
    [(1, [], True), (1, [0], False), (2, [1], False), (3, [0], True), (3, [0, 2], False), (4, [2, 3], False),
     (4, [0], True), (8, [0, 1, 2], True), (8, [0, 1, 2, 3], False)],
)  # fmt: skip
def test_the_majority_decides_whoever_it_is(ranks, flat, compresses):
    group = reducers(ranks, 1000, density="scadles:0.1,0.3", collectives=COLLECTIVES)
    done = exchanges(group, 5, flat)
    # Votes of the first step are told in the second, which rank 0's plan follows in the third.
    assert done == [DENSE] * 2 + [SPARSE_10 if compresses else DENSE] * 3


def test_what_was_compressed_away_goes_with_the_first_dense_step():
    group = reducers(3, 1000, density="scadles:0.1,0.3,1", collectives=COLLECTIVES)
    assert exchanges(group, 4)[-1] == SPARSE_10
    left, everybody = residuals(group), range(3)
    assert np.abs(left).max() > 0
    # All are flat now: two more compressed steps, and then everything.
    given, sent = np.zeros(1000), np.zeros(1000)
    for step, wanted in enumerate([SPARSE_10, SPARSE_10, DENSE], 4):
        rows = steep(3, 1000, step, flat=everybody)
        given += rows.sum(axis=0, dtype=np.float64)
        outcomes, _ = reduce(group, rows)
        sent += rows[0].astype(np.float64) * 3
        assert str(outcomes[0].exchange) == wanted
    np.testing.assert_array_equal(residuals(group), 0)
    np.testing.assert_allclose(sent, left + given, atol=1e-3)


def test_compression_and_weights_go_together():
    group = reducers(
        2, 1000, density="scadles", collectives=COLLECTIVES, weights="by_samples", values="bf16"
    )
    given, sent = np.zeros(1000), np.zeros(1000)
    for step in range(6):
        rows = steep(2, 1000, step)
        given += 0.2 * rows[0].astype(np.float64) + 0.8 * rows[1]
        outcomes, _ = weigh(group, rows, [16, 64])
        sent += rows[0]
    assert str(outcomes[0].exchange) == SPARSE_10
    scale = np.abs(given).max()
    np.testing.assert_allclose(sent + residuals(group), given, atol=1e-5 * scale)
