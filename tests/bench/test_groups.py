"""Contenders in groups that fit into memory."""

import pytest

from aiops.bench.campaign import Contender
from aiops.bench.peers.base import Case
from aiops.bench.run import ARRAYS_PER_WORKER, groups

ONE = 1000 * ARRAYS_PER_WORKER  # what one contender takes
ALWAYS = {"ours", "bound"}


@pytest.mark.parametrize(
    ("room", "labels"),
    [
        pytest.param(5, ["ours bound a b c"], id="all at a time"),
        pytest.param(4, ["ours bound a b", "ours bound c"], id="two groups"),
        pytest.param(3, ["ours bound a", "ours bound b", "ours bound c"], id="one by one"),
        pytest.param(2, [], id="no room for one"),
    ],
)
def test_ours_and_the_bound_are_in_every_group(room, labels):
    case = Case(n_bytes=1000)
    contenders = [Contender(label, "ours", case) for label in ("ours", "bound", "a", "b", "c")]
    found = groups(contenders, ALWAYS, room * ONE)
    assert [" ".join(one.label for one in group) for group in found] == labels


def test_nothing_but_ours_is_one_group():
    ours = Contender("ours", "ours", Case(n_bytes=1000))
    assert groups([ours], ALWAYS, ONE) == [[ours]]
    assert groups([ours], ALWAYS, ONE - 1) == []
