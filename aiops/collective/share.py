"""Randomised data injection between ranks: what each would train on, then the donors' samples to everybody.

Sans-IO, as all exchanges, see :mod:`aiops.collective.request`. Only what donors give is on the wire: how long it is all
ranks know from the plan, so that each donor broadcasts exactly that.
"""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from aiops.collective.request import Array, Broadcast, Bytes, Dialogue, Gather, Route
from aiops.errors import ConfigError, RemoteProtocolError, ShapeMismatch
from aiops.policy.stream import Draw, InjectionRule
from aiops.wire.record import MAX_AXES, Form, Records, pack_records, unpack_records

_ROUTE: Route = "ring"


class Shared(msgspec.Struct, frozen=True, eq=False):
    """What a step's sharing came to on one rank.

    Attributes:
        records: What the rank trains on: the first samples of its batch, then those of each donor, ascending.
        draw: Who gave what.
        gave_bytes: What this rank gave, once, however many received it.
        took_bytes: What it received from donors.
    """

    records: Records
    draw: Draw
    gave_bytes: int
    took_bytes: int


def share(
    own: Records | ConfigError, rule: InjectionRule, step: int, *, rank: int, ranks: int
) -> Dialogue[Shared]:
    """Let donors give samples of this step to all others.

    Args:
        own: This rank's batch, maybe of no samples; or why it has none that can be shared.
        rule: The same on every rank.
        step: Steps finished, the same on every rank.
        rank: This rank.
        ranks: How many there are.

    Raises:
        ConfigError: A rank's batch cannot be shared, looks different from the others', or the ranks were told
            different things; raised alike on every rank.
        RemoteProtocolError: A donor sent what are not its records.
    """
    rows = (yield Gather(_word(own, rule, step), _ROUTE)).data
    form, batches = _agreed(rows, own)
    assert isinstance(own, Records)
    draw = rule.plan(step, batches, rank)
    kept, gave, took = own.first(draw.own[rank]), 0, 0
    others: list[Records] = []
    for donor in draw.donors:
        size = form.size_bytes(draw.shares[donor]) if draw.shares[donor] else 0
        if not size:
            continue
        if donor == rank:
            yield Broadcast(pack_records(kept.take(draw.picks)), donor, _ROUTE)
            gave = size
        else:
            data = (yield Broadcast(np.empty(size, np.uint8), donor, _ROUTE)).data
            others.append(_read(data, donor, form))
            took += size
    return Shared(kept.join(others), draw, gave, took)


# A rank's batch in numbers: its size or -1, step, rule, and what a sample looks like.
def _word(own: Records | ConfigError, rule: InjectionRule, step: int) -> Array:
    word = np.zeros(5 + MAX_AXES, np.int64)
    word[1:3] = step, zlib.crc32(rule.name.encode())
    if isinstance(own, Records):
        shape = own.form.shape
        word[0] = len(own)
        word[3:5] = own.form.dtype, len(shape)
        word[5 : 5 + len(shape)] = shape
    else:
        word[0] = -1
    return word


# What samples look like, and each rank's batch. Who has none goes by what the others have.
def _agreed(rows: Array, own: Records | ConfigError) -> tuple[Form, tuple[int, ...]]:
    batches = tuple(rows[:, 0].tolist())
    if min(batches) < 0:
        which = ", ".join(str(rank) for rank, batch in enumerate(batches) if batch < 0)
        here = f" (here: {own})" if isinstance(own, ConfigError) else ""
        raise ConfigError(f"the batch of rank {which} cannot be shared{here}")
    for column, what in ((1, "step"), (2, "injection")):
        if len(set(rows[:, column].tolist())) > 1:
            values = ", ".join(str(value) for value in rows[:, column])
            raise ConfigError(f"ranks share by different {what}s: {values}")
    forms = [Form(row[3], tuple(row[5 : 5 + row[4]])) for row in rows.tolist()]
    full = [rank for rank, batch in enumerate(batches) if batch] or [0]
    for rank in full:
        if forms[rank] != forms[full[0]]:
            raise ConfigError(
                f"samples of rank {rank} are {forms[rank]}, those of rank {full[0]} are {forms[full[0]]}"
            )
    return forms[full[0]], batches


def _read(data: Bytes, donor: int, form: Form) -> Records:
    try:
        records = unpack_records(data.data)
    except ShapeMismatch as error:
        raise RemoteProtocolError(f"what rank {donor} gave: {error}") from None
    if records.form != form:
        raise RemoteProtocolError(f"rank {donor} gave {records.form}, {form} was announced")
    return records
