"""Ranks in lockstep: what is asked together is answered together, and who falls out of step is told."""

import numpy as np
import pytest

from aiops.collective.request import Broadcast, Deal, Gather, Ping, Sum
from aiops.policy.exchange import Network
from aiops.sim.ranks import converse


def ask(*requests):
    replies = []
    for request in requests:
        replies.append((yield request))  # noqa: PERF401  # a comprehension cannot yield
    return replies


def test_every_request_is_answered():
    def requests(rank):
        return (
            Sum(np.full(2, rank + 1, np.float32), "ring"),
            Broadcast(np.full(2, rank, np.uint8), 2, "ring"),
            Gather(np.array([rank]), "ring"),
            Deal(np.full((3, 1), rank)),
            Ping(0, 2),
        )

    results, seconds = converse(
        [ask(*requests(rank)) for rank in range(3)], network=Network(1.0, 0.0)
    )
    for rank, (total, cast, rows, dealt, ping) in enumerate(results):
        np.testing.assert_array_equal(total.data, [6, 6])
        np.testing.assert_array_equal(cast.data, [2, 2])
        np.testing.assert_array_equal(rows.data, [[0], [1], [2]])
        np.testing.assert_array_equal(dealt.data, [[0], [1], [2]])
        np.testing.assert_array_equal(ping.data, [2.0, 2.0] if rank == 0 else [])
    # 4 hops of the ring, 2 of the tree, 2 of the ring, 1 direct, 4 there and back.
    assert seconds == 13.0


def test_ranks_that_ask_for_different_things_are_found_out():
    one, other = Gather(np.zeros(1), "ring"), Sum(np.zeros(1, np.float32), "ring")
    with pytest.raises(RuntimeError, match="ask for different things: Gather, Sum"):
        converse([ask(one), ask(other)])


def test_ranks_that_do_not_end_together_are_found_out():
    with pytest.raises(RuntimeError, match="1 of 2 ranks are done"):
        converse([ask(), ask(Gather(np.zeros(1), "ring"))])


def failing(error):
    yield Gather(np.zeros(1), "ring")
    raise error


def test_errors_are_told_together():
    with pytest.raises(ValueError, match="bad"):
        converse([failing(ValueError("bad")), failing(ValueError("bad"))])
    with pytest.raises(ExceptionGroup, match="not all alike"):
        converse([failing(ValueError("bad")), failing(KeyError("bad"))])
    with pytest.raises(ExceptionGroup, match="1 of 2 ranks failed, the others go on"):
        converse([failing(ValueError("bad")), ask(Gather(np.zeros(1), "ring"))])
