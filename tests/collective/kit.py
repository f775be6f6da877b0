"""Ranks in lockstep, and gradients for them."""

import numpy as np

from aiops.collective.reducer import Reducer
from aiops.config.exchange import ExchangeConfig
from aiops.sim.ranks import converse

RANKS = (1, 2, 3, 4, 8)


def gradients(ranks, n, *, seed=0, step=0):
    random = np.random.default_rng([seed, step])
    heavy = random.standard_normal((ranks, n)) * random.lognormal(0, 1.5, (ranks, n))
    return heavy.astype(np.float32)


def reducers(ranks, n, *, layers=(), **config):
    told = ExchangeConfig.parse(**config)
    return [Reducer(told, n, rank=rank, ranks=ranks, layers=layers) for rank in range(ranks)]


def reduce(group, rows, *, compute_s=0.0, **options):
    """Exchange one step's gradients, in place; returns the outcomes and the virtual seconds."""
    dialogues = [
        each.reduce(row, compute_s=compute_s) for each, row in zip(group, rows, strict=True)
    ]
    return converse(dialogues, **options)
