"""Merges by rules: aggregations and optimizers over buckets, pieces and shards, in numbers."""

import numpy as np
import pytest

from aiops.buffers import BufferPool
from aiops.codec.dense import dense
from aiops.codec.topk import topk
from aiops.errors import NotFinite, Refused
from aiops.merge.aggregation import krum, mean, median, trimmed_mean
from aiops.merge.base import Rules
from aiops.merge.optimizer import adam, momentum, sgd
from aiops.policy.place import by_bytes
from aiops.server.shard import Part
from aiops.server.store import Store
from aiops.types import TensorSpec

N = 300


@pytest.fixture
def pool():
    return BufferPool()


@pytest.fixture
def stored(pool, small_chunks):
    """Make a store of 300 values in buckets of 112 on two shards, and 4 averaged values of 1."""
    stores = []

    def make(rules):
        store = Store(pool, shards=2, bucket_bytes=448, place=by_bytes(), rules=rules)
        specs = [TensorSpec("w", (N,), "float32"), TensorSpec("m", (4,), "float32", averaged=True)]
        table = store.agree(specs)
        flat = np.concatenate([np.arange(N), np.ones(4)]).astype(np.float32)
        store.load({key: flat[b.start : b.stop] for key, b in enumerate(table.buckets)})
        stores.append(store)
        return store

    yield make
    for store in stores:
        store.close()


def parts(store, flat, codec=None, keys=None):
    codec = codec or dense()
    made = {}
    for key, bucket in enumerate(store.table.buckets):
        if keys is not None and key not in keys:
            continue
        coding = dense() if bucket.averaged else codec
        arrays, _ = coding.encode(flat[bucket.start : bucket.stop], None)
        made[key] = Part(coding, memoryview(b"".join(a.tobytes() for a in arrays)))
    return made


def merge(store, pushes, weights=None, gain=1.0):
    jobs = store.begin(pushes, weights or [1 / len(pushes)] * len(pushes), gain, {})
    if store.selects:
        for _, job in jobs:
            store.measure(job)
        store.select(jobs)
    for _, job in jobs:
        job.run()
    return store.finish(jobs)


def updates(n, seed=0):
    return list(np.random.default_rng(seed).standard_normal((n, N + 4)).astype(np.float32))


@pytest.mark.parametrize("codec", [dense(), topk(0.3)], ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (mean(), lambda rows: rows.mean(axis=0)),
        (median(), lambda rows: np.median(rows, axis=0)),
        (trimmed_mean(0.2), lambda rows: np.sort(rows, axis=0)[1:-1].mean(axis=0)),
    ],
    ids=["mean", "median", "trimmed"],
)
def test_every_bucket_and_piece_is_aggregated_and_scaled(stored, codec, rule, expected):
    store = stored(Rules(rule, sgd()))
    assert len(store.table.buckets) == 4
    old, rows = store.vector(), updates(5)
    pushes = [parts(store, row, codec) for row in rows]
    assert merge(store, pushes, gain=0.5) is None
    sent = np.zeros((5, N + 4), np.float32)
    for push, row in zip(pushes, sent, strict=True):
        for key, part in push.items():
            bucket = store.table.buckets[key]
            part.codec.add_to(row[bucket.start : bucket.stop], part.payload, 1.0)
    np.testing.assert_allclose(store.vector(), old + 0.5 * expected(sent), rtol=1e-5, atol=1e-5)


def test_the_mean_by_rules_is_the_plain_merge_bit_for_bit(stored):
    plain, ruled = stored(None), stored(Rules(mean(), sgd()))
    assert (plain.ruled, ruled.ruled) == (False, True)
    for seed in range(3):
        rows = updates(4, seed)
        for store in (plain, ruled):
            pushes = [parts(store, row, topk(0.3) if seed else dense()) for row in rows]
            assert merge(store, pushes, [0.5, 0.0, 0.25, 2.0], 0.7) is None
        np.testing.assert_array_equal(plain.vector(), ruled.vector())


def test_krum_measures_the_whole_model_over_all_shards(stored):
    store = stored(Rules(krum(1, 2), sgd()))
    old, rows = store.vector(), updates(5)
    # In the first bucket the fourth push lies in the middle of all; far away it does not.
    rows[3] = np.mean(rows, axis=0, dtype=np.float32)
    rows[3][250:] += 50
    gaps = np.array([[float(((a - b) ** 2).sum()) for b in rows] for a in rows])
    scores = np.sort(gaps, axis=1)[:, 1:3].sum(axis=1)
    chosen = np.argsort(scores)[:2]
    assert 3 not in chosen
    assert merge(store, [parts(store, row) for row in rows]) is None
    expected = old + np.mean([rows[i] for i in chosen], axis=0)
    np.testing.assert_allclose(store.vector(), expected, rtol=1e-5, atol=1e-5)


def test_krum_decodes_what_is_coded_and_takes_a_missing_bucket_for_zeros(stored):
    store = stored(Rules(krum(1), sgd()))
    old = store.vector()
    rows = [np.full(N + 4, value, np.float32) for value in (5, 5, 5, 0, 0)]
    pushes = [parts(store, row, topk(1.0)) for row in rows[:3]]
    pushes += [parts(store, rows[3], keys=[0]), {}]
    assert merge(store, pushes) is None
    np.testing.assert_array_equal(store.vector(), old + 5)


def test_a_selection_that_cannot_be_made_changes_nothing(stored, pool):
    store = stored(Rules(krum(1), momentum()))
    old, loans = store.vector(), pool.outstanding
    error = merge(store, [parts(store, row) for row in updates(4)])
    assert type(error) is Refused
    assert "at least 5 pushes, this one has 4" in str(error)
    np.testing.assert_array_equal(store.vector(), old)
    assert pool.outstanding == loans


def test_an_optimizer_keeps_its_state_by_bucket_for_what_was_pushed(stored):
    store = stored(Rules(mean(), momentum(1.0, 0.5)))
    old, ones = store.vector(), np.ones(N + 4, np.float32)
    assert merge(store, [parts(store, ones)]) is None
    np.testing.assert_array_equal(store.vector(), old + 1)
    # Bucket 0 alone: its velocity goes on, 1.5, the others' stands still.
    assert merge(store, [parts(store, ones, keys=[0])]) is None
    expected = old + 1
    expected[:112] += 1.5
    np.testing.assert_array_equal(store.vector(), expected)
    assert merge(store, [parts(store, ones)]) is None
    expected[:112] += 1.75
    expected[112:N] += 1.5
    # Running statistics have no velocity.
    expected[N:] += 1
    np.testing.assert_array_equal(store.vector(), expected)


def test_state_appears_with_the_first_push_of_a_bucket_and_not_for_averaged_ones(stored, pool):
    store = stored(Rules(mean(), adam()))
    loans = pool.outstanding
    ones = np.ones(N + 4, np.float32)
    for keys, blocks in (([3], 0), ([0], 2), ([0, 1], 4), ([0], 4)):
        assert merge(store, [parts(store, ones, keys=keys)]) is None
        assert pool.outstanding == loans + blocks


@pytest.mark.parametrize("rule", [momentum(1.0, 0.5), adam(1.0, 0.5, 0.5, 1.0)])
def test_a_merge_that_is_not_finite_leaves_parameters_and_state_as_they_were(stored, pool, rule):
    store, other = stored(Rules(mean(), rule)), stored(Rules(mean(), rule))
    rows = updates(2)
    bad = rows[1].copy()
    bad[299] = 3e38
    for each in (store, other):
        assert merge(each, [parts(each, rows[0])]) is None
    loans = pool.outstanding
    error = merge(store, [parts(store, bad)] * 2, [1.0, 1.0])
    assert isinstance(error, NotFinite)
    assert "tensor 'w' (value 299 of 300)" in str(error)
    assert pool.outstanding == loans
    for each in (store, other):
        assert merge(each, [parts(each, rows[1])]) is None
    np.testing.assert_array_equal(store.vector(), other.vector())


def test_a_model_of_nothing_can_be_merged_by_rules(pool):
    store = Store(
        pool, shards=2, bucket_bytes=32, place=by_bytes(), rules=Rules(krum(0), momentum())
    )
    store.agree([TensorSpec("nothing", (0, 3), "float32")])
    store.load({})
    assert merge(store, [{}, {}, {}]) is None
    store.close()
