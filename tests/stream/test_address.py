"""A stream's URL: what it says, and one clear sentence where it says nothing."""

import pytest

from aiops.errors import ConfigError
from aiops.stream.address import KafkaAddress, RedisAddress, parse_stream_url


def test_the_shortest_urls():
    assert parse_stream_url("redis://pi/flights?group=train") == RedisAddress(
        "pi", 6379, "flights", "train"
    )
    assert parse_stream_url("kafka://pi/flights?group=train") == KafkaAddress(
        ("pi:9092",), "flights", "train"
    )


def test_a_redis_url_with_everything():
    url = "rediss://me:p%40ss@[::1]:7000/a%2Fb?group=g&consumer=c&start=next&create=true&claim_s=2.5&db=3"
    assert parse_stream_url(url) == RedisAddress(
        "::1",
        7000,
        "a/b",
        "g",
        consumer="c",
        start="next",
        create=True,
        claim_s=2.5,
        db=3,
        username="me",
        password="p@ss",
        tls=True,
    )


def test_a_kafka_url_with_everything():
    address = parse_stream_url("kafka://a:1,b:2/t?group=g&partition=3&partition=1&start=next")
    assert address == KafkaAddress(("a:1", "b:2"), "t", "g", (1, 3), "next")


def test_no_text_of_an_address_shows_the_password():
    address = parse_stream_url("redis://me:secret@pi/s?group=g")
    assert "secret" not in repr(address) + str(address)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mqtt://pi/s?group=g", "scheme 'mqtt' of the stream is unknown, there are redis://host"),
        ("flights", "scheme '' of the stream is unknown"),
        (
            "redis://pi?group=g",
            "the url names no redis stream, it must look like redis://host:6379",
        ),
        (
            "redis://pi/s",
            "the stream's url has no group, it must look like redis://host:6379/stream",
        ),
        ("kafka://pi/s?group=", "the stream's url has no group"),
        ("redis://pi/s?group=a&group=b", "option group of the stream is given 2 times"),
        ("redis://pi/s?group=g&speed=3", "option speed of the stream is unknown to redis://"),
        ("redis://pi/s?group=g&partition=3", "option partition of the stream is unknown to redis"),
        ("kafka://pi/s?group=g&consumer=c", "option consumer of the stream is unknown to kafka://"),
        (
            "redis://pi/s?group=g&start=last",
            "option start of the stream is 'last', it must be first",
        ),
        ("redis://pi/s?group=g&create=1", "option create of the stream is '1', it must be true or"),
        ("redis://pi/s?group=g&claim_s=soon", "option claim_s of the stream is 'soon'"),
        (
            "redis://pi/s?group=g&claim_s=0",
            "option claim_s of the stream is '0', it must be >= 0.001",
        ),
        (
            "kafka://pi/s?group=g&partition=-1",
            "option partition of the stream is '-1', it must be >=",
        ),
        (
            "redis://pi:0/s?group=g",
            "address 'pi:0' of the stream is not host:port, port in 1..65535",
        ),
        ("redis://:6379/s?group=g", "address ':6379' of the stream is not host:port"),
        ("kafka://a:1,b:x/s?group=g", "address 'b:x' of the stream is not host:port"),
        ("kafka://me:secret@pi/s?group=g", "has a user, which kafka:// does not know"),
    ],
)
def test_what_is_no_stream_is_refused(url, sentence):
    with pytest.raises(ConfigError) as caught:
        parse_stream_url(url)
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)
