"""Records from a Redis stream, as one consumer of a group.

The server remembers what this consumer was given until it is acknowledged (its pending entries), so nothing is lost
that was given and not acknowledged, even where the reply was lost on its way.
"""

from __future__ import annotations

import logging
import math
import random
from itertools import islice

from aiops.errors import ConnectFailed, ConnectionLost, TransportError
from aiops.stream.address import RedisAddress
from aiops.stream.backoff import Backoff
from aiops.stream.base import Backlog, Record
from aiops.stream.meter import RateMeter
from aiops.stream.redis_entry import ZERO, order
from aiops.stream.redis_group import RedisGroup, first_id
from aiops.stream.redis_ledger import Ledger
from aiops.stream.redis_link import NoGroup, RedisLink
from aiops.stream.served import ServedSource

log = logging.getLogger("aiops.stream")

LOOK_S = 1.0
# A blocking read of a connection that is gone, ours or of the worker before us, may be given entries for as long as it
# blocks: so long after a break, what is pending is looked through once more.
LATE_S = 2 * LOOK_S
LEAVING_S = 1.0
ACKS_AT_ONCE = 1000


async def open_redis(
    address: RedisAddress, *, cursor: str, give_up_s: float, smoothing_s: float, rng: random.Random
) -> RedisSource:
    """Open a stream; arguments, result and errors as for :func:`aiops.stream.opening.open_source`."""
    if cursor:
        order(cursor)
    link = RedisLink(address)
    try:
        group = RedisGroup(link, address)
        await group.check()
        await group.create(first_id(address, cursor))
        delivered = (await group.state()).delivered
        source = RedisSource(
            link,
            group,
            cursor=cursor,
            delivered=delivered,
            claim_s=address.claim_s,
            backoff=Backoff(give_up_s=give_up_s, rng=rng),
            meter=RateMeter(smoothing_s),
        )
        await source.look()
    except BaseException as error:
        await link.close()
        if isinstance(error, TransportError):
            raise ConnectFailed(f"cannot reach {error}") from error
        raise
    return source


class RedisSource(ServedSource):
    """A :class:`aiops.stream.base.StreamSource` over a consumer group.

    A record's cursor is its entry's id. Without a cursor it begins with what its consumer was given and did not
    acknowledge, then come the records that no consumer was given, and every half ``claim_s`` those that others of the
    group were silent about for ``claim_s`` - which come to them, too, if they are only slow.

    With a cursor the records after it come again in the stream's order, acknowledged or not, whoever of the group they
    were given to: a group whose workers restart from checkpoints has one worker.

    Args:
        link: To the server; closed with this.
        group: The group, seen by this consumer.
        cursor: Where to go on; empty for after what was acknowledged.
        delivered: Id of the last entry that the group has given out.
        claim_s: When others' records are taken over, in seconds.
        backoff: When to try again.
        meter: Measures the rate.
    """

    def __init__(
        self,
        link: RedisLink,
        group: RedisGroup,
        *,
        cursor: str,
        delivered: str,
        claim_s: float,
        backoff: Backoff,
        meter: RateMeter,
    ) -> None:
        super().__init__(
            link, server="the server", leaving_s=LEAVING_S, backoff=backoff, meter=meter
        )
        self._link = link
        self._group = group
        self._floor = delivered
        self._ledger = Ledger(cursor)
        # Where to go on in the list of our own pending entries: at the start, and again whenever a reply was lost.
        self._own_after: str | None = ZERO
        self._own_again_at = self._loop.time() + LATE_S
        # What is read again from the stream itself: from where to where.
        behind = bool(cursor) and order(cursor) < order(delivered)
        self._again: tuple[str, str] | None = (cursor, delivered) if behind else None
        self._claim_every_s = claim_s / 2
        self._claim_at = self._loop.time()
        self._claim_after = ZERO

    @property
    def cursor(self) -> str:
        """The newest id that was acknowledged, or the one to begin with."""
        return self._ledger.cursor

    @property
    def lost(self) -> int:
        """Records that the server threw away while they were in the hands of a consumer that had not read them."""
        return self._ledger.lost

    def __aiter__(self) -> RedisSource:
        """Return itself."""
        return self

    async def __anext__(self) -> Record:
        """Wait for the next record; see :class:`aiops.stream.base.StreamSource`."""
        while not self._closed:
            if self._ledger.ready and not self._paused:
                return self._ledger.hand_out()
            try:
                if self._loop.time() >= self._look_at:
                    await self.look()
                if self._paused:
                    await self._wait(self._look_at - self._loop.time())
                else:
                    await self._fetch()
                self._back()
            except NoGroup:
                await self._make_group_again()
            except ConnectionLost as error:
                await self._outage(error)
        raise StopAsyncIteration

    async def backlog(self) -> Backlog:
        """Return what no consumer was given, or handed out yet; bytes from the mean of what was read.

        What other consumers of the group have in hand counts, since it comes here once they are gone; what is read
        again after a restart from a cursor does not.
        """
        state, ledger = await self._group.state(), self._ledger
        waiting = max(0, state.behind + state.pending - len(ledger.handed) - len(ledger.owed))
        return Backlog(waiting, round(waiting * ledger.mean_bytes))

    async def ack(self, cursor: str) -> None:
        """Declare everything up to that record done."""
        self._ledger.done(cursor)
        await self._pay_if_reached()

    async def look(self) -> None:
        """Measure how fast entries are added."""
        self._meter.observe(await self._group.added(), self._loop.time())
        self._look_at = self._loop.time() + LOOK_S

    async def _fetch(self) -> None:
        try:
            await self._pay()
            if self._loop.time() >= self._own_again_at:
                self._own_after, self._own_again_at = ZERO, math.inf
            if self._own_after is not None:
                await self._fetch_own(self._own_after)
            elif self._again is not None:
                await self._fetch_again(*self._again)
            elif self._loop.time() >= self._claim_at:
                await self._claim()
            else:
                self._ledger.take_in(
                    await self._group.new(max(0.0, self._look_at - self._loop.time()))
                )
        except BaseException:
            # The server may have given us entries in a reply that is lost now.
            self._own_after, self._own_again_at = ZERO, self._loop.time() + LATE_S
            raise

    async def _fetch_own(self, after: str) -> None:
        entries = await self._group.own(after)
        if self._again is not None:
            # The rest comes in the stream's order, so that a cursor never stands for more than was handed out.
            limit = order(self._again[0])
            entries = [entry for entry in entries if order(entry[0]) <= limit]
        self._ledger.take_in(entries)
        self._own_after = entries[-1][0] if entries else None

    async def _fetch_again(self, after: str, until: str) -> None:
        entries = await self._group.between(after, until)
        self._ledger.take_in(entries)
        self._again = (entries[-1][0], until) if entries else None

    async def _claim(self) -> None:
        self._claim_after, entries, gone = await self._group.claim(self._claim_after)
        self._ledger.take_in(entries)
        self._ledger.miss(gone)
        if self._claim_after == ZERO:
            self._claim_at = self._loop.time() + self._claim_every_s

    async def _pay(self) -> None:
        # A reader and its trainer may pay at the same time; the server minds nothing that it hears twice.
        while self._ledger.owed:
            ids = list(islice(self._ledger.owed, ACKS_AT_ONCE))
            await self._group.ack(ids)
            self._ledger.paid(ids)

    async def _make_group_again(self) -> None:
        # A server that came back with less than it had: what is not acknowledged is handed out again.
        log.warning("%s: the server lost the group, it is made again", self.name)
        try:
            await self._group.create(self.cursor or self._floor)
        except ConnectionLost as error:
            await self._outage(error)
