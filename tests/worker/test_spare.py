"""Vectors are used again when nobody uses them any more, and never before."""

import gc
import threading
import weakref

import numpy as np
import pytest

from aiops.worker.spare import KEPT, Spares

SIZE = 1000


@pytest.fixture
def spares():
    return Spares(SIZE)


def address(array):
    return array.__array_interface__["data"][0]


def test_a_vector_is_float32_writable_and_of_the_size(spares):
    vector = spares.take()
    assert (vector.dtype, vector.shape) == (np.float32, (SIZE,))
    assert vector.flags.c_contiguous
    assert vector.flags.writeable
    assert vector.flags.aligned


def test_a_vector_that_nobody_uses_is_handed_out_again(spares):
    vector = spares.take()
    first = address(vector)
    assert address(spares.take()) != first
    del vector
    assert first in {address(vector) for vector in [spares.take(), spares.take()]}


HOLDERS = {
    "the vector": lambda vector: vector,
    "a view": lambda vector: vector[3:7],
    "a view of a view": lambda vector: vector[3:9].reshape(2, 3).T[1:],
    "an empty view": lambda vector: vector[5:5],
    "a value's view": lambda vector: vector[5:6].reshape(()),
    "another dtype's view": lambda vector: vector.view(np.uint8)[1:],
    "a memoryview": lambda vector: memoryview(vector[3:7]),
    "a cast memoryview": lambda vector: memoryview(vector[3:7]).cast("B")[4:],
    "an array over a memoryview": lambda vector: np.frombuffer(memoryview(vector[3:7]), np.uint8),
    "an iterator": lambda vector: iter(vector),
    "an array by DLPack": lambda vector: np.from_dlpack(vector[3:7]),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_what_lives_of_a_vector_keeps_it_from_being_used_again(spares, hold):
    vector = spares.take()
    first, holder = address(vector), hold(vector)
    del vector
    gc.collect()
    others = [spares.take() for _ in range(KEPT + 2)]
    assert first not in {address(other) for other in others}
    for other in others:
        other[:] = 1
    del holder
    gc.collect()
    assert address(spares.take()) == first


def test_only_so_many_are_kept(spares):
    vectors = [spares.take() for _ in range(KEPT + 5)]
    old = {address(vector) for vector in vectors}
    del vectors
    assert len(spares._free) == KEPT
    assert {address(vector) for vector in [spares.take() for _ in range(KEPT)]} <= old


def test_a_vector_outlives_what_handed_it_out():
    spares = Spares(SIZE)
    vector = spares.take()
    vector[:] = 3
    gone = weakref.ref(vector)
    del spares
    gc.collect()
    assert (vector == 3).all()
    del vector
    assert gone() is None


def test_nothing_is_an_empty_vector():
    vector = Spares(0).take()
    assert (vector.dtype, vector.shape) == (np.float32, (0,))


def test_vectors_may_end_in_any_thread(spares):
    # Whatever is in use is in use once: everybody writes a number of their own and finds it again.
    wrong = []

    def use(number):
        for step in range(300):
            vector = spares.take()
            vector[:] = number * 1000 + step
            if (vector != number * 1000 + step).any():
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(spares._free) <= KEPT + len(threads)
