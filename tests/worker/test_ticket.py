"""Tickets: awaited once, twice, given up, converted, failed."""

import asyncio
import gc

import pytest

from aiops.errors import ConnectionLost
from aiops.worker.ticket import Ticket


async def test_awaiting_a_ticket_gives_its_result_every_time():
    ticket = Ticket()
    assert not ticket.done()
    assert ticket.exception() is None
    asyncio.get_running_loop().call_soon(ticket.resolve, 5)
    assert [await ticket, await ticket] == [5, 5]
    assert ticket.done()
    assert ticket.exception() is None


async def test_an_error_is_raised_every_time_and_can_be_looked_at():
    ticket = Ticket()
    ticket.fail(ConnectionLost("gone"))
    for _ in range(2):
        with pytest.raises(ConnectionLost, match="gone"):
            await ticket
    assert isinstance(ticket.exception(), ConnectionLost)


async def test_giving_up_the_wait_does_not_take_the_request_back():
    ticket = Ticket()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await ticket
    assert not ticket.done()
    waiting = asyncio.ensure_future(await_(ticket))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    ticket.resolve("late")
    assert await ticket == "late"


async def await_(ticket):
    return await ticket


async def test_many_may_wait_for_one_ticket_and_one_of_them_give_up():
    ticket = Ticket()
    first, second, third = [asyncio.ensure_future(await_(ticket)) for _ in range(3)]
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    ticket.resolve(1)
    assert await first == await third == 1
    assert second.cancelled()


async def test_only_the_first_outcome_counts():
    ticket = Ticket()
    ticket.resolve(1)
    ticket.resolve(2)
    ticket.fail(ConnectionLost("late"))
    assert await ticket == 1


async def test_an_error_nobody_waits_for_is_no_error_of_anybodys():
    reports = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    for give_up in (False, True):
        ticket = Ticket()
        if give_up:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await ticket
        converted = ticket.map(str)
        ticket.fail(ConnectionLost("gone"))
        await asyncio.sleep(0.001)
        assert converted.done()
        del ticket, converted
        gc.collect()
    await asyncio.sleep(0.001)
    assert reports == []


async def test_a_converted_ticket_takes_over_what_the_first_one_knows():
    ticket = Ticket()
    converted = ticket.map(lambda result: result + 1)
    ticket.version, ticket.staleness, ticket.bytes = 3, 2, 100
    ticket.resolve(1)
    assert await converted == 2
    assert (converted.version, converted.staleness, converted.bytes) == (3, 2, 100)


async def test_a_conversion_that_raises_fails_the_converted_ticket_alone():
    ticket = Ticket()
    converted = ticket.map(lambda result: 1 / result)
    ticket.resolve(0)
    with pytest.raises(ZeroDivisionError):
        await converted
    assert await ticket == 0


async def test_who_asks_for_the_result_is_called_with_it_and_not_with_an_error():
    seen = []
    good, bad = Ticket(), Ticket()
    for ticket in (good, bad):
        ticket.then(seen.append)
    good.resolve("here")
    bad.fail(ConnectionLost("gone"))
    await asyncio.sleep(0)
    assert seen == ["here"]


async def test_what_was_asked_for_before_is_done_when_the_wait_is_over():
    seen = []
    ticket = Ticket()
    ticket.then(seen.append)
    waiting = asyncio.ensure_future(await_(ticket))
    await asyncio.sleep(0)
    ticket.resolve(1)
    await waiting
    assert seen == [1]
