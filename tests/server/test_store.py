"""Snapshots and merges, in numbers: what is published stays as it is, what comes next is added in order."""

import numpy as np
import pytest

from aiops.buffers import BufferPool
from aiops.codec.dense import dense
from aiops.codec.topk import topk
from aiops.errors import NotFinite, UnknownKey
from aiops.policy.place import by_bytes
from aiops.server.reply import model_of
from aiops.server.shard import Part
from aiops.server.store import Store
from aiops.types import TensorSpec
from aiops.wire.frame import Kind, parse_header
from aiops.wire.message import Hello, Policy, Welcome
from aiops.wire.session import Role, Session


@pytest.fixture
def pool():
    return BufferPool()


@pytest.fixture
def store(pool):
    """Tensors w (20 values) and b (4) in buckets of 8 on two shards, w = 0, 1, ..., b = 1."""
    store = Store(pool, shards=2, bucket_bytes=32, place=by_bytes())
    table = store.agree([TensorSpec("w", (4, 5), "float32"), TensorSpec("b", (4,), "float32")])
    flat = np.concatenate([np.arange(20), np.ones(4)]).astype(np.float32)
    store.load({key: flat[b.start : b.stop] for key, b in enumerate(table.buckets)})
    yield store
    store.close()


def parts(store, flat, codec=None):
    codec = codec or dense()
    return {
        key: Part(
            codec,
            memoryview(
                b"".join(a.tobytes() for a in codec.encode(flat[b.start : b.stop], None)[0])
            ),
        )
        for key, b in enumerate(store.table.buckets)
    }


def merge(store, pushes, weights, gain=1.0):
    jobs = store.begin(pushes, weights, gain, {})
    for _, job in jobs:
        job.run()
    return store.finish(jobs)


def test_a_merge_adds_in_the_order_given_bit_for_bit(store):
    rng = np.random.default_rng(3)
    for _ in range(3):
        old = store.vector()
        updates = [rng.standard_normal(24).astype(np.float32) for _ in range(5)]
        weights = rng.random(5).tolist()
        assert merge(store, [parts(store, u) for u in updates], weights, 0.7) is None
        acc = np.zeros(24, np.float32)
        for update, weight in zip(updates, weights, strict=True):
            acc += np.float32(weight) * update
        np.testing.assert_array_equal(store.vector(), old + np.float32(0.7) * acc)


def test_sparse_and_dense_pushes_add_up_in_one_merge(store):
    old, update = store.vector(), np.arange(24, dtype=np.float32)
    pushes = [parts(store, update), parts(store, update, topk(1 / 8))]
    assert merge(store, pushes, [0.5, 2.0]) is None
    added = store.vector() - old - 0.5 * update
    assert np.flatnonzero(added).tolist() == [7, 15, 23]
    np.testing.assert_array_equal(added[[7, 15, 23]], 2 * update[[7, 15, 23]])


def test_what_weighs_nothing_and_what_is_missing_adds_nothing(store):
    old = store.vector()
    some = {2: parts(store, np.ones(24, np.float32))[2]}
    weightless = parts(store, np.full(24, 1e30, np.float32))
    assert merge(store, [weightless, some], [0.0, 1.0]) is None
    np.testing.assert_array_equal(store.vector()[:16], old[:16])
    np.testing.assert_array_equal(store.vector()[16:], old[16:] + 1)


def test_a_merge_that_overflows_changes_no_shard_and_names_the_tensor(store, pool):
    old, loans = store.vector(), pool.outstanding
    update = np.ones(24, np.float32)
    update[21] = 3e38
    error = merge(store, [parts(store, update)] * 2, [1.0, 1.0])
    assert isinstance(error, NotFinite)
    assert "tensor 'b' (value 1 of 4)" in str(error)
    np.testing.assert_array_equal(store.vector(), old)
    assert pool.outstanding == loans


def test_a_merge_given_up_half_way_leaves_everything_as_it_was(store, pool):
    old, loans = store.vector(), pool.outstanding
    jobs = store.begin([parts(store, np.ones(24, np.float32))], [1.0], 1.0, {})
    jobs[0][1].run()
    store.discard(jobs)
    np.testing.assert_array_equal(store.vector(), old)
    assert pool.outstanding == loans


def test_a_lent_snapshot_lives_on_unchanged_while_versions_pass(store, pool):
    server, worker = Session(Role.SERVER), Session(Role.WORKER)
    greet(server, worker)
    old = store.vector()
    before = pool.outstanding
    reply = model_of(store, server, request=1, version=0)
    assert [len(views[0]) for _, views in reply.frames] == [32, 32, 32]
    for _ in range(3):
        assert merge(store, [parts(store, np.ones(24, np.float32))], [1.0]) is None
    lent = {
        parse_header(head, 1 << 20).key: np.frombuffer(views[0], np.float32)
        for head, views in reply.frames
    }
    for key, bucket in enumerate(store.table.buckets):
        np.testing.assert_array_equal(lent[key], old[bucket.start : bucket.stop])
    np.testing.assert_array_equal(store.vector(), old + 3)
    assert pool.outstanding == before + 3
    reply.release()
    assert pool.outstanding == before


def greet(server, worker):
    """Bring a server's session to where it may send models."""
    worker.send(Kind.HELLO, Hello(0, "", 0, "", 0))
    policy = Policy(False, 1, None, "dense", "reset", 0.5, 0.5, "fixed")
    server.send(Kind.WELCOME, Welcome(0, "", 0, 0, 1.0, 1.0, 1.0, policy, 0))


def test_there_is_nothing_to_give_before_the_first_parameters(pool):
    store = Store(pool, shards=1, bucket_bytes=32, place=by_bytes())
    with pytest.raises(UnknownKey, match="call init first"):
        store.vector()
    store.agree([TensorSpec("w", (4,), "float32")])
    with pytest.raises(UnknownKey, match="call init first"):
        store.require()
    store.forget()
    assert store.table is None


def test_a_model_of_nothing_can_be_held_and_merged(pool):
    store = Store(pool, shards=2, bucket_bytes=32, place=by_bytes())
    store.agree([TensorSpec("nothing", (0, 3), "float32")])
    store.load({})
    assert merge(store, [{}], [1.0]) is None
    assert store.vector().size == 0
    store.close()


def test_a_bucket_that_no_push_has_keeps_its_memory(store, pool):
    flat = np.ones(24, np.float32)
    some = {key: part for key, part in parts(store, flat).items() if key != 1}
    before, lent = store.vector(), store.lend(1)
    taken = pool.outstanding
    assert merge(store, [some, some], [0.25, 0.75]) is None
    same = store.lend(1)
    assert same is lent
    for block in (lent, same):
        block.release()
    want = before + flat
    bucket = store.table.buckets[1]
    want[bucket.start : bucket.stop] -= 1
    np.testing.assert_array_equal(store.vector(), want)
    # A merge that is given up leaves it as well.
    jobs = store.begin([some], [1.0], 1.0, {})
    store.discard(jobs)
    np.testing.assert_array_equal(store.vector(), want)
    assert pool.outstanding == taken
