"""Snapshots that somebody may still push from: kept once, as long as they are needed, and no longer."""

import numpy as np
import pytest

from aiops.buffers import BufferPool
from aiops.errors import Refused
from aiops.server.history import History


class Newest:
    """A shard of one block, which publishes versions."""

    def __init__(self):
        self.pool = BufferPool()
        self.block = self.pool.take(16)
        self.version = 0
        self.block.float32()[:] = 0

    def publish(self):
        self.block.release()
        self.block = self.pool.take(16)
        self.version += 1
        self.block.float32()[:] = self.version

    def lend(self):
        return {0: self.block.lend()}


@pytest.fixture
def newest():
    made = Newest()
    yield made
    made.block.release()


@pytest.fixture
def history(newest):
    made = History(newest.lend)
    yield made
    made.close()


def held(history, newest):
    return [v for v in range(newest.version + 1) if v in history._kept]


def test_a_snapshot_is_kept_once_for_all_who_have_it(history, newest):
    for worker in range(3):
        history.handed(worker, 0, answer=False)
    newest.publish()
    assert (len(history), newest.pool.outstanding) == (1, 2)
    assert history.snapshot(0)[0].float32().tolist() == [0] * 4
    for worker in range(3):
        history.leave(worker)
    assert (len(history), newest.pool.outstanding) == (0, 1)


def test_a_worker_goes_on_from_its_answer_or_from_what_it_pulled_since(history, newest):
    history.handed(7, 0, answer=False)
    newest.publish()
    assert history.begin("push", 7, 0, newest=1) is None
    history.end("push")
    history.handed(7, 1, answer=True)
    assert held(history, newest) == [1]
    for _ in range(2):
        newest.publish()
        history.handed(7, newest.version, answer=False)
    assert held(history, newest) == [1, 3]
    # A push from what was pulled: bases never go back.
    newest.publish()
    assert history.begin("push", 7, 3, newest=4) is None
    assert held(history, newest) == [3]
    history.end("push")
    assert "push starts from version 1," in str(history.begin("old", 7, 1, newest=4))
    assert held(history, newest) == [3]


def test_a_push_keeps_its_base_when_its_worker_has_left(history, newest):
    history.handed(7, 0, answer=False)
    assert history.begin("push", 7, 0, newest=0) is None
    newest.publish()
    history.leave(7)
    assert held(history, newest) == [0]
    np.testing.assert_array_equal(history.snapshot(0)[0].float32(), 0)
    history.end("push")
    history.end("push")
    assert (held(history, newest), newest.pool.outstanding) == ([], 1)


def test_the_newest_version_can_always_be_pushed_from_and_no_other_that_is_not_kept(
    history, newest
):
    newest.publish()
    newest.publish()
    assert history.begin("a", 1, 2, newest=2) is None
    assert isinstance(history.begin("b", 1, 1, newest=2), Refused)
    assert isinstance(history.begin("c", 1, 0, newest=2), Refused)
    history.close()
    assert newest.pool.outstanding == 1
