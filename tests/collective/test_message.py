"""Messages of unknown length: whatever the guess, the bytes arrive."""

import numpy as np
import pytest

from aiops.collective import message
from aiops.collective.message import Guess
from aiops.sim.ranks import converse


def counted(dialogue, requests):
    """Pass a dialogue on and count its requests."""
    reply = None
    while True:
        try:
            request = dialogue.send(reply)
        except StopIteration as end:
            return end.value
        requests.append(request)
        reply = yield request


def broadcast(sizes, first, *, source=1, ranks=3, margin=0.02):
    guesses = [Guess(first, margin=margin) for _ in range(ranks)]
    counts = []
    for size in sizes:
        data = np.arange(size, dtype=np.uint8)
        requests = [[] for _ in range(ranks)]
        dialogues = [
            counted(
                message.broadcast(data if rank == source else None, source, guesses[rank], "ring"),
                requests[rank],
            )
            for rank in range(ranks)
        ]
        results, _ = converse(dialogues)
        for seen in results:
            np.testing.assert_array_equal(seen, data)
        counts.append(len(requests[0]))
    return counts


@pytest.mark.parametrize("first", [0, 1, 50, 1000])
def test_a_broadcast_arrives_whole(first):
    assert broadcast([100, 0, 100, 101, 250], first)[0] == (1 if first >= 100 else 2)


def test_a_good_guess_needs_one_collective():
    assert broadcast([100, 101, 102, 130, 131], 100) == [1, 1, 1, 2, 1]


@pytest.mark.parametrize("first", [0, 3, 50, 1000])
def test_what_each_rank_has_reaches_all(first):
    guesses = [Guess(first) for _ in range(3)]
    for sizes in ([5, 0, 9], [100, 3, 7], [1, 1, 1]):
        rows = [np.full(size, 1 + rank, np.uint8) for rank, size in enumerate(sizes)]
        dialogues = [
            message.gather(row, guess, "ring") for row, guess in zip(rows, guesses, strict=True)
        ]
        results, _ = converse(dialogues)
        for seen in results:
            for one, row in zip(seen, rows, strict=True):
                np.testing.assert_array_equal(one, row)
        assert len({guess.n_bytes for guess in guesses}) == 1
