"""What only a real Redis server shows: how it goes away and comes back, who else reads, and what it refuses."""

import asyncio
import random
import sys

import pytest

from aiops.errors import ConfigError, ConnectFailed, ConnectionLost, Rejected
from aiops.stream import redis
from aiops.stream.address import parse_stream_url
from aiops.stream.opening import open_source
from aiops.stream.redis_group import RedisGroup
from aiops.stream.redis_link import RedisLink
from aiops.stream.redis_publish import RedisPublisher
from tests.stream import servers
from tests.stream.kit import read, read_for, values
from tests.stream.streams import RedisStream


class Quick(random.Random):
    """Tries again at once, so that no test waits for the longest of waits."""

    def uniform(self, a, b):
        return 0.01


def texts(*numbers):
    return [b"%d" % number for number in numbers]


@pytest.fixture
def own_server(tmp_path):
    """A server that may be killed; what it has acknowledged is on disk."""
    if servers.REDIS is None:
        pytest.skip(servers.NO_REDIS)
    pytest.importorskip("redis")
    server = servers.redis_server(
        "--appendonly", "yes", "--appendfsync", "always", "--dir", str(tmp_path)
    )
    server.start()
    yield server
    server.stop()


async def in_thread(call, *args, **options):
    return await asyncio.to_thread(call, *args, **options)


async def other(stream, *words):
    """Send one command as somebody else."""
    link = RedisLink(parse_stream_url(stream.url))
    try:
        return await link.command(*words)
    finally:
        await link.close()


def name(stream):
    return parse_stream_url(stream.url).stream


async def test_a_server_that_restarts_while_it_is_read_loses_nothing(own_server):
    stream = RedisStream(own_server.port, "s")
    await stream.begin()
    await stream.publish(texts(*range(10)))
    source = await stream.open(rng=Quick())
    first = await read(source, 10)
    await source.ack(first[3].cursor)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read(source, 1))
        await asyncio.sleep(0.05)
        await in_thread(own_server.stop, kill=True)
        await asyncio.sleep(0.1)
        # Nobody hears this now; it is told when the server is back.
        await source.ack(first[5].cursor)
        await in_thread(own_server.start)
        # A publisher says that its connection is gone and is made anew.
        await stream.stop_writing()
        await stream.begin()
        await stream.publish(texts(10))
    assert values(reading.result()) == texts(10)
    assert source.reconnects == 1
    await read_for(source, 0.1)
    await stream.kill(source)
    again = await stream.open()
    assert values(await read(again, 5)) == texts(6, 7, 8, 9, 10)
    await stream.end()


async def test_a_worker_and_its_server_that_both_restart_lose_nothing(own_server):
    stream = RedisStream(own_server.port, "s")
    await stream.begin()
    await stream.publish(texts(*range(10)))
    source = await stream.open()
    first = await read(source, 6)
    await source.ack(first[2].cursor)
    await stream.kill(source)
    await in_thread(own_server.stop, kill=True)
    await in_thread(own_server.start)
    assert values(await read(await stream.open(), 7)) == texts(*range(3, 10))
    await stream.end()


async def test_a_server_that_lost_everything_is_read_on_from_what_it_gets(own_server):
    stream = RedisStream(own_server.port, "s")
    await stream.begin()
    source = await stream.open(rng=Quick())
    await stream.publish(texts(1))
    (record,) = await read(source, 1)
    await source.ack(record.cursor)
    await other(stream, "FLUSHALL")
    await stream.publish(texts(2))
    assert values(await read(source, 1)) == texts(2)
    await stream.end()


async def test_a_server_that_does_not_come_back_is_named(own_server):
    stream = RedisStream(own_server.port, "s")
    await stream.begin()
    source = await stream.open(give_up_s=0.3)
    await in_thread(own_server.stop)
    with pytest.raises(ConnectionLost, match=r"/s did not come back in time: .*[Cc]onnect"):
        await read(source, 1)
    with pytest.raises(ConnectionLost):
        await source.backlog()
    await stream.end()


async def test_a_restart_does_not_disturb_a_pause(own_server, monkeypatch):
    monkeypatch.setattr(redis, "LOOK_S", 0.05)
    stream = RedisStream(own_server.port, "s")
    await stream.begin()
    source = await stream.open(rng=Quick())
    await stream.publish(texts(1))
    source.pause()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read(source, 1))
        await in_thread(own_server.stop, kill=True)
        await asyncio.sleep(0.1)
        await in_thread(own_server.start)
        await asyncio.sleep(0.2)
        assert not reading.done()
        source.resume()
    assert values(reading.result()) == texts(1)
    await stream.end()


async def test_what_a_dead_connection_was_given_is_handed_out_all_the_same(
    redis_stream, monkeypatch
):
    monkeypatch.setattr(redis, "LATE_S", 0.2)
    source = await redis_stream.open()
    await redis_stream.publish(texts(1, 2))
    assert values(await read(source, 2)) == texts(1, 2)
    # As the reply to a blocking read that nobody is there to hear any more.
    await redis_stream.publish(texts(3))
    stolen = await other(
        redis_stream, "XREADGROUP", "GROUP", "train", "worker", "STREAMS", name(redis_stream), ">"
    )
    assert stolen is not None
    assert values(await read(source, 1)) == texts(3)


async def test_a_reply_that_is_lost_on_its_way_is_asked_for_again(redis_stream, monkeypatch):
    monkeypatch.setattr(redis, "LATE_S", 3600.0)
    source = await redis_stream.open(rng=Quick())
    await redis_stream.publish(texts(1))
    await read(source, 1)
    ask = source._link.command
    lost = []

    async def forgetful(*words):
        reply = await ask(*words)
        if words[-1] == ">" and reply and not lost:
            lost.append(reply)
            raise ConnectionLost("cut")
        return reply

    monkeypatch.setattr(source._link, "command", forgetful)
    await redis_stream.publish(texts(2, 3))
    assert values(await read(source, 2)) == texts(2, 3)
    assert lost
    assert source.reconnects == 1


async def test_what_another_consumer_left_is_taken_over(redis_port, redis_stream):
    await redis_stream.publish(texts(1, 2, 3))
    left = await redis_stream.open()
    records = await read(left, 3)
    await left.ack(records[0].cursor)
    await redis_stream.kill(left)
    url = redis_stream.url.replace("claim_s=3600", "claim_s=0.2") + "&consumer=second"
    heir = await open_source(url)
    assert values(await read(heir, 2)) == texts(2, 3)
    await heir.ack(records[2].cursor)
    await heir.aclose()
    assert (await (await redis_stream.open()).backlog()).n_records == 0


async def test_what_another_consumer_has_in_hand_is_left_to_it(redis_stream):
    await redis_stream.publish(texts(1, 2))
    busy = await redis_stream.open()
    await read(busy, 2)
    second = await open_source(redis_stream.url + "&consumer=second")
    assert await read_for(second, 0.1) == []
    await second.aclose()


async def test_consumers_of_a_group_share_its_records(redis_stream):
    one = await redis_stream.open()
    other_one = await open_source(redis_stream.url + "&consumer=second")
    await redis_stream.publish(texts(*range(600)))
    halves = [await read_for(source, 0.2) for source in (one, other_one)]
    assert sorted(int(each.value) for half in halves for each in half) == list(range(600))
    await other_one.aclose()


async def test_entries_thrown_away_while_in_somebodys_hands_are_counted(redis_stream):
    source = await redis_stream.open()
    await redis_stream.publish(texts(*range(5)))
    await read(source, 5)
    await redis_stream.kill(source)
    await other(redis_stream, "XTRIM", name(redis_stream), "MAXLEN", 2)
    again = await redis_stream.open()
    assert values(await read(again, 2)) == texts(3, 4)
    assert again.lost == 3


async def test_entries_of_others_are_read_where_they_have_a_value(redis_stream):
    await redis_stream.open()
    stream = name(redis_stream)
    await other(redis_stream, "XADD", stream, "1500-0", "value", "plain")
    await other(redis_stream, "XADD", stream, "2500-0", "payload", "x", "unit", "C")
    await other(redis_stream, "XADD", stream, "3500-0", "value", "x", "time", "noon")
    plain, nameless, timeless = await read(redis_stream.open_ones[0], 3)
    assert (plain.key, plain.value, plain.time_s, plain.fault) == (b"", b"plain", 1.5, "")
    assert nameless.fault == "no field 'value', only 'payload', 'unit'"
    assert (timeless.value, timeless.fault) == (b"", "time is b'noon'")


async def test_the_backlog_is_counted_where_the_server_does_not_tell(redis_stream):
    source = await redis_stream.open()
    ids = await redis_stream.publish(texts(*range(700)))
    # After an XDEL Redis does not know any more how far behind a group is.
    await read(source, 1)
    await other(redis_stream, "XDEL", name(redis_stream), ids[500])
    assert (await source.backlog()).n_records == 698


async def test_a_new_group_may_begin_with_what_comes(redis_stream):
    await redis_stream.publish(texts(1, 2))
    source = await open_source(
        redis_stream.url.replace("group=train", "group=late") + "&start=next"
    )
    await redis_stream.publish(texts(3))
    assert values(await read(source, 1)) == texts(3)
    await source.aclose()


async def test_a_publisher_keeps_about_the_newest(redis_stream):
    publisher = RedisPublisher(redis_stream.url, max_records=100)
    redis_stream.publisher, old = publisher, redis_stream.publisher
    await old.aclose()
    await redis_stream.publish(texts(*range(1000)))
    assert 100 <= await other(redis_stream, "XLEN", name(redis_stream)) < 300
    assert await publisher.publish([]) == []


def test_a_publisher_refuses_what_it_cannot_do():
    with pytest.raises(ConfigError, match="kafka://pi:9092/t is no redis stream"):
        RedisPublisher("kafka://pi/t?group=g")
    with pytest.raises(ConfigError, match="max_records is 0, it must be >= 1"):
        RedisPublisher("redis://pi/s?group=g", max_records=0)


async def test_a_server_that_is_not_there_is_named_at_once():
    port = servers.free_port()
    pytest.importorskip("redis")
    with pytest.raises(ConnectFailed, match=f"cannot reach redis://127.0.0.1:{port}/s: "):
        await open_source(f"redis://127.0.0.1:{port}/s?group=g")


async def test_a_stream_that_is_not_there_is_refused_unless_it_may_be_made(redis_port):
    url = f"redis://127.0.0.1:{redis_port}/nothing?group=g"
    with pytest.raises(ConfigError, match=r"there is no stream redis:.*/nothing \(create=true mak"):
        await open_source(url)
    await (await open_source(url + "&create=true")).aclose()
    await (await open_source(url)).aclose()
    link = RedisLink(parse_stream_url(url))
    await link.command("DEL", "nothing")
    await link.close()


async def test_what_is_no_stream_is_refused(redis_stream):
    await other(redis_stream, "SET", name(redis_stream), "text")
    with pytest.raises(ConfigError, match="holds is a string, not a stream"):
        await redis_stream.open()


async def test_a_wrong_password_is_rejected_and_not_tried_again(tmp_path):
    if servers.REDIS is None:
        pytest.skip(servers.NO_REDIS)
    pytest.importorskip("redis")
    server = servers.redis_server("--requirepass", "secret")
    server.start()
    try:
        for user in ("", ":wrong@"):
            with pytest.raises(Rejected, match=f"redis://127.0.0.1:{server.port}/s lets us not in"):
                await open_source(f"redis://{user}127.0.0.1:{server.port}/s?group=g")
        url = f"redis://:secret@127.0.0.1:{server.port}/s?group=g&create=true"
        await (await open_source(url)).aclose()
    finally:
        server.stop()


async def test_a_server_that_is_too_old_is_refused():
    class Old:
        name = "redis://pi:6379/s"

        async def command(self, *words):
            return b"stream" if words[0] == "TYPE" else [b"server", b"redis", b"version", b"6.2.7"]

    group = RedisGroup(Old(), parse_stream_url("redis://pi/s?group=g"))
    with pytest.raises(ConfigError, match=r"redis://pi:6379/s is Redis 6.2.7, 7.0 is the oldest"):
        await group.check()


@pytest.mark.parametrize(("scheme", "package"), [("redis", "redis"), ("kafka", "aiokafka")])
async def test_a_library_that_is_not_installed_is_named(monkeypatch, scheme, package):
    monkeypatch.setitem(sys.modules, package, None)
    for module in [each for each in sys.modules if each.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    sentence = (
        rf"{scheme}:// streams need the package {package}: pip install 'aiops-ps\[{scheme}\]'"
    )
    with pytest.raises(ConfigError, match=sentence):
        await open_source(f"{scheme}://127.0.0.1/s?group=g")


async def test_a_patience_of_no_time_is_refused():
    with pytest.raises(ConfigError, match="give_up_s is 0, it must be > 0"):
        await open_source("redis://pi/s?group=g", give_up_s=0)
