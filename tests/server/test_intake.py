"""A push gives the same draft whichever way its bytes come: through rooms, or from where they lie."""

import itertools

import numpy as np
import pytest

from aiops.buffers import BufferPool
from aiops.kernels import merge_checked
from aiops.server.draft import CHUNK_BYTES, BucketDraft, Intake

# Two whole chunks and a bit.
N = 2 * CHUNK_BYTES // 4 + 1001


@pytest.fixture
def pool():
    pool = BufferPool()
    yield pool
    assert pool.outstanding == 0


def intake(pool, *, passing):
    block = pool.take(CHUNK_BYTES if passing else 4 * N)
    return Intake(4 * N, block, passing=passing, lane=0)


def by_room(landing, view):
    while view:
        room = landing.room()
        n = min(len(room), len(view))
        room[:n] = view[:n]
        landing.filled(n)
        view = view[n:]


def in_place(landing, view):
    # The memory is another's as soon as it is taken.
    copy = bytearray(view)
    landing.take(memoryview(copy))
    copy[:] = b"\xff" * len(copy)


def bring(landing, values, *, ways, pieces):
    view = memoryview(values).cast("B")
    turns = zip(itertools.cycle(ways), itertools.cycle(pieces), strict=False)
    while view:
        way, piece = next(turns)
        way(landing, view[:piece])
        view = view[piece:]


WAYS = {
    "rooms": ([by_room], [CHUNK_BYTES]),
    "in place": ([in_place], [1024 * 1024 - 64]),
    "a little by room, then in place": ([by_room, *[in_place] * 99], [65504, 200_000]),
    "in turns": ([by_room, in_place], [99_996, 300_000, 700_000]),
    "at odd places": ([in_place, by_room], [65_001, 3, 123_457]),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS.keys())
def ways(request):
    return dict(zip(("ways", "pieces"), request.param, strict=True))


@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_draft_is_the_merge_of_its_pushes(pool, ways, others):
    rng = np.random.default_rng(others)
    old, *pushes = rng.standard_normal((others + 2, N), np.float32)
    weights = [0.5, 0.25, 1.5][: others + 1]
    intakes = [intake(pool, passing=False) for _ in range(others)] + [intake(pool, passing=True)]
    for landing, values in zip(intakes[:-1], pushes, strict=False):
        bring(landing, values, **ways)
    fresh = pool.take(4 * N)
    draft = BucketDraft(old, fresh, intakes, weights, 0.9)
    bring(intakes[-1], pushes[-1], **ways)
    assert draft.complete
    expected = np.empty(N, np.float32)
    merge_checked(old, pushes, weights, gain=0.9, out=expected)
    assert np.array_equal(fresh.float32(), expected)
    assert [i.bad for i in intakes] == [-1] * (others + 1)
    for landing in intakes:
        landing.give_up()
    fresh.release()


def test_a_draft_is_the_merge_of_pushes_that_are_kept_and_come_at_the_same_time(pool, ways):
    old, one, two = np.random.default_rng(3).standard_normal((3, N), np.float32)
    intakes = [intake(pool, passing=False) for _ in range(2)]
    fresh = pool.take(4 * N)
    draft = BucketDraft(old, fresh, intakes, [1.0, 1.0], 1.0)
    bring(intakes[0], one, **ways)
    assert not draft.complete
    bring(intakes[1], two, **ways)
    assert draft.complete
    expected = np.empty(N, np.float32)
    merge_checked(old, [one, two], [1.0, 1.0], out=expected)
    assert np.array_equal(fresh.float32(), expected)
    for landing in intakes:
        landing.give_up()
    fresh.release()


@pytest.mark.parametrize("weight", [1.0, 0.0])
@pytest.mark.parametrize("place", [0, 16_376, CHUNK_BYTES // 4, N - 1])
@pytest.mark.parametrize("drafted", [True, False])
def test_a_bad_value_is_found_where_it_is(pool, ways, place, drafted, weight):
    values = np.ones(N, np.float32)
    values[place] = np.nan
    values[-1] = np.inf
    landing, fresh = intake(pool, passing=True), pool.take(4 * N)
    draft = BucketDraft(np.zeros(N, np.float32), fresh, [landing], [weight], 1.0)
    if not drafted:
        draft.stop()
    bring(landing, values, **ways)
    assert landing.bad == place
    assert not draft.complete
    landing.give_up()
    fresh.release()


@pytest.mark.parametrize("passing", [False, True])
def test_before_a_long_way_it_asks_for_what_brings_it_to_an_aligned_offset(pool, passing):
    landing = intake(pool, passing=passing)
    landing.filled(1004)
    assert len(landing.room()) == 1024 - 1004
    landing.filled(1024 - 1004)
    assert len(landing.room()) == CHUNK_BYTES - 1024
    landing.give_up()
