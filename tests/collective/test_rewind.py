"""Batches come again after a rewind, and move the random numbers on as they did at first."""

import random

import numpy as np
import pytest
import torch

from aiops.collective.randomness import RandomState
from aiops.collective.rewind import Rewind
from aiops.errors import ConfigError


def take(batches, n):
    return [next(batches) for _ in range(n)]


def test_without_a_mark_it_goes_round_and_round():
    batches = Rewind([1, 2, 3])
    assert iter(batches) is batches
    assert take(batches, 7) == [1, 2, 3, 1, 2, 3, 1]
    assert batches.n_drawn == 0


def test_what_was_drawn_since_the_mark_comes_again_as_often_as_wanted():
    batches = Rewind(range(5))
    take(batches, 2)
    batches.mark()
    for _ in range(3):
        assert take(batches, 4) == [2, 3, 4, 0]
        assert batches.n_drawn == 4
        batches.rewind()
        assert batches.n_drawn == 0
    # Further than before.
    assert take(batches, 6) == [2, 3, 4, 0, 1, 2]
    batches.rewind()
    batches.release()
    assert take(batches, 8) == [2, 3, 4, 0, 1, 2, 3, 4]


def test_a_release_without_a_rewind_goes_on():
    batches = Rewind(range(5))
    batches.mark()
    assert take(batches, 2) == [0, 1]
    batches.release()
    assert take(batches, 2) == [2, 3]


def test_a_mark_among_batches_that_come_again_holds():
    batches = Rewind(range(9))
    batches.mark()
    take(batches, 4)
    batches.rewind()
    batches.release()
    assert take(batches, 1) == [0]
    batches.mark()
    assert take(batches, 5) == [1, 2, 3, 4, 5]
    batches.rewind()
    batches.release()
    assert take(batches, 6) == [1, 2, 3, 4, 5, 6]


def test_a_generator_ends_and_so_does_an_empty_loader():
    batches = Rewind(each for each in (1, 2))
    batches.mark()
    assert list(batches) == [1, 2]
    batches.rewind()
    assert list(batches) == [1, 2]
    with pytest.raises(StopIteration):
        next(Rewind([]))


def test_a_batch_that_was_changed_in_place_comes_again_as_it_was():
    batches = Rewind([(torch.ones(2), [3])])
    batches.mark()
    for _ in range(3):
        x, names = next(batches)
        assert x.tolist() == [1, 1]
        assert names == [3]
        x.zero_()
        names.clear()
        batches.rewind()
    batches.release()
    assert next(batches)[0].tolist() == [1, 1]


def draws():
    """Batches of every global generator's numbers."""
    while True:
        yield torch.rand(1).item(), float(np.random.rand()), random.random()


def seed():
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)


def use():
    """What a step draws besides its batch."""
    return torch.rand(1).item(), float(np.random.rand()), random.random()


def test_random_numbers_move_on_as_if_a_batch_was_drawn():
    seed()
    plain = draws()
    wanted = [(next(plain), use()) for _ in range(6)]
    seed()
    batches = Rewind(draws())
    begun = RandomState.now()
    batches.mark()
    for _ in range(2):
        assert [(next(batches), use()) for _ in range(4)] == wanted[:4]
        batches.rewind()
        begun.restore()
    batches.release()
    assert [(next(batches), use()) for _ in range(6)] == wanted


def test_random_numbers_stay_where_somebody_else_has_drawn_some():
    seed()
    batches = Rewind(draws())
    begun = RandomState.now()
    batches.mark()
    next(batches)
    batches.rewind()
    batches.release()
    begun.restore()
    use()
    here = RandomState.now()
    next(batches)
    assert RandomState.now() == here


def test_a_moment_of_the_generators_can_be_restored_and_compared():
    seed()
    np.random.randn()  # leaves half of a pair behind
    here = RandomState.now()
    first = use(), float(np.random.randn())
    assert RandomState.now() != here
    here.restore()
    assert RandomState.now() == here
    assert (use(), float(np.random.randn())) == first


def test_what_cannot_be_iterated_is_refused():
    with pytest.raises(ConfigError, match="batches are a int, which is not iterable"):
        Rewind(3)
