"""URLs: tables of good and bad."""

import re

import pytest

from aiops.errors import ConfigError
from aiops.url import Endpoint, parse_url


@pytest.mark.parametrize(
    ("url", "endpoints"),
    [
        ("aiops://localhost:4711", [Endpoint("localhost", 4711)]),
        ("aiops://localhost", [Endpoint("localhost", 4711)]),
        ("  AIOPS://host:1/ ", [Endpoint("host", 1)]),
        ("aiops://10.0.0.1:65535", [Endpoint("10.0.0.1", 65535)]),
        ("aiops://[::1]:5000", [Endpoint("::1", 5000)]),
        ("aiops://[fe80::1%eth0]", [Endpoint("fe80::1%eth0", 4711)]),
        (
            "aiops://a:1,b,[2001:db8::2]:3",
            [Endpoint("a", 1), Endpoint("b", 4711), Endpoint("2001:db8::2", 3)],
        ),
        ("aiops+tls://host", [Endpoint("host", 4711, tls=True)]),
        ("AIOPS+TLS://t@a:1,b", [Endpoint("a", 1, "t", True), Endpoint("b", 4711, "t", True)]),
        ("aiops://s3cret@host", [Endpoint("host", 4711, "s3cret")]),
        ("aiops://t@a:1,b:2", [Endpoint("a", 1, "t"), Endpoint("b", 2, "t")]),
        ("aiops://p%40ss%2Fw%25@host", [Endpoint("host", 4711, "p@ss/w%")]),
        ("aiops://user:word@host", [Endpoint("host", 4711, "user:word")]),
        ("aiops://a,b@c@host", [Endpoint("host", 4711, "a,b@c")]),
    ],
)
def test_good_urls(url, endpoints):
    assert parse_url(url) == tuple(endpoints)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("localhost:4711", "the url has no scheme, it must look like aiops://host:port"),
        ("", "the url has no scheme"),
        ("http://host", "scheme 'http' is unknown, there are aiops://host:port and aiops\\+tls://"),
        ("aiops+ssl://host", "scheme 'aiops\\+ssl' is unknown"),
        ("aiops://", "address '' has no host"),
        ("aiops://:4711", "address ':4711' has no host"),
        ("aiops://a,,b", "address '' has no host"),
        ("aiops://a,", "address '' has no host"),
        ("aiops://host:0", r"port of address 'host:0' must be in 1\.\.65535"),
        ("aiops://host:65536", "port of address 'host:65536' must be in"),
        ("aiops://host:", "address 'host:' is not host:port"),
        ("aiops://host:x", "address 'host:x' is not host:port"),
        ("aiops://host:-1", "address 'host:-1' is not host:port"),
        ("aiops://host:" + "9" * 5000, "is not host:port"),
        ("aiops://::1", r"address '::1' is not host:port \(IPv6 stands in brackets"),
        ("aiops://::1:4711", "IPv6 stands in brackets"),
        ("aiops://[::1", "is not host:port"),
        ("aiops://[localhost]", "has no IPv6 address in its brackets"),
        ("aiops://[127.0.0.1]:1", "has no IPv6 address in its brackets"),
        ("aiops://[]:1", "has no IPv6 address in its brackets"),
        ("aiops://my host", "is not host:port"),
        ("aiops://host/run", "url part 'host/run' has a path"),
        ("aiops://host?x=1", "has a path, a server has none"),
        ("aiops://@host", "token has 0 characters, it must have 1 to 4096"),
        ("aiops://" + "x" * 4097 + "@host", "token has 4097 characters"),
    ],
)
def test_bad_urls(url, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_url(url)


@pytest.mark.parametrize("rest", ["host:x", "host/run", "", "[::1", "host:99999"])
def test_a_bad_url_does_not_tell_its_token(rest):
    with pytest.raises(ConfigError) as caught:
        parse_url(f"aiops://s3cret@{rest}")
    assert not re.search("s3cret", str(caught.value))


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [(Endpoint("host", 1), "host:1"), (Endpoint("::1", 4711, "t"), "[::1]:4711")],
)
def test_an_endpoint_reads_like_an_address(endpoint, text):
    assert str(endpoint) == text
    assert parse_url(f"aiops://{endpoint}") == (Endpoint(endpoint.host, endpoint.port),)


def test_the_token_of_an_endpoint_is_never_printed():
    (endpoint,) = parse_url("aiops://s3cret@host")
    assert "s3cret" not in repr(endpoint) + str(endpoint)
