"""Where a stream is, as a URL says it. Nothing here opens anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from aiops.errors import ConfigError

Start = Literal["first", "next"]

_EXAMPLES = {
    "redis": "redis://host:6379/stream?group=name",
    "rediss": "rediss://host:6379/stream?group=name",
    "kafka": "kafka://host:9092/topic?group=name",
}
_REDIS_PORT, _KAFKA_PORT = 6379, 9092


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A stream of a Redis server, and as whom it is read.

    Attributes:
        host: Name or address.
        port: TCP port.
        stream: The stream's key.
        group: Consumer group: its members share the records.
        consumer: This reader's name in the group, the same after a restart; each member has one of its own.
        start: Where a group that is not there yet begins: with the "first" record held, or the "next" that comes.
        create: Whether to make a stream that is not there yet, instead of refusing it.
        claim_s: After how many seconds without a word a record of another consumer is taken over.
        db: Number of the database.
        username: For a server that asks; None for its default.
        password: The same.
        tls: Whether to speak TLS.
    """

    host: str
    port: int
    stream: str
    group: str
    consumer: str = "worker"
    start: Start = "first"
    create: bool = False
    claim_s: float = 60.0
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    def __str__(self) -> str:
        return f"redis://{self.host}:{self.port}/{self.stream}"


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """A topic of Kafka brokers, and as whom it is read.

    Attributes:
        servers: host:port of each broker to ask first.
        topic: The topic.
        group: Under which name offsets are committed.
        partitions: Which to read; empty for all. Workers that share a topic each name their own.
        start: Where a partition without a committed offset begins: with the "first" record that is held, or the "next".
    """

    servers: tuple[str, ...]
    topic: str
    group: str
    partitions: tuple[int, ...] = ()
    start: Start = "first"

    def __str__(self) -> str:
        return f"kafka://{','.join(self.servers)}/{self.topic}"


def parse_stream_url(url: str) -> RedisAddress | KafkaAddress:
    """Return what a stream's URL says.

    ``redis://[user:password@]host[:port]/stream?group=...`` (``rediss`` for TLS) with the options consumer, start,
    create, claim_s and db; ``kafka://host[:port][,host[:port]]/topic?group=...`` with partition (may be repeated) and
    start. Names are percent-encoded.

    Raises:
        ConfigError: It is no such URL; the message never shows the password.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in _EXAMPLES:
        kinds = ", ".join(_EXAMPLES.values())
        raise ConfigError(f"scheme {parts.scheme!r} of the stream is unknown, there are {kinds}")
    stream = unquote(parts.path.removeprefix("/"))
    if not stream or parts.fragment:
        raise ConfigError(
            f"the url names no {parts.scheme} stream, it must look like {_EXAMPLES[parts.scheme]}"
        )
    options = _Options(parts)
    build = _kafka if parts.scheme == "kafka" else _redis
    address = build(parts, stream, options)
    options.check_all_known()
    return address


class _Options:
    def __init__(self, parts: SplitResult) -> None:
        self._scheme = parts.scheme
        self._given: dict[str, list[str]] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            self._given.setdefault(name, []).append(value)

    def many(self, name: str) -> list[str]:
        return self._given.pop(name, [])

    def text(self, name: str, default: str | None = None) -> str:
        values = self.many(name)
        if len(values) > 1:
            raise ConfigError(f"option {name} of the stream is given {len(values)} times")
        value = values[0] if values else default
        if not value:
            raise ConfigError(
                f"the stream's url has no {name}, it must look like {_EXAMPLES[self._scheme]}"
            )
        return value

    def number(self, name: str, default: str, *, least: float) -> float:
        text = self.text(name, default)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not least <= value < float("inf"):
            raise ConfigError(f"option {name} of the stream is {text!r}, it must be >= {least:g}")
        return value

    def one_of(self, name: str, default: str, *choices: str) -> str:
        text = self.text(name, default)
        if text not in choices:
            raise ConfigError(
                f"option {name} of the stream is {text!r}, it must be {' or '.join(choices)}"
            )
        return text

    def start(self) -> Start:
        return "first" if self.one_of("start", "first", "first", "next") == "first" else "next"

    def check_all_known(self) -> None:
        if self._given:
            raise ConfigError(
                f"option {', '.join(self._given)} of the stream is unknown to {self._scheme}://"
            )


def _redis(parts: SplitResult, stream: str, options: _Options) -> RedisAddress:
    host, port = _host_port(parts.netloc.rpartition("@")[2], _REDIS_PORT)
    return RedisAddress(
        host,
        port,
        stream,
        options.text("group"),
        consumer=options.text("consumer", "worker"),
        start=options.start(),
        create=options.one_of("create", "false", "true", "false") == "true",
        claim_s=options.number("claim_s", "60", least=0.001),
        db=int(options.number("db", "0", least=0)),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
    )


def _kafka(parts: SplitResult, topic: str, options: _Options) -> KafkaAddress:
    if "@" in parts.netloc:
        raise ConfigError("the stream's url has a user, which kafka:// does not know")
    servers = tuple(
        "{}:{}".format(*_host_port(part, _KAFKA_PORT)) for part in parts.netloc.split(",")
    )
    texts = options.many("partition")
    for text in texts:
        if not (text.isascii() and text.isdigit()):
            raise ConfigError(f"option partition of the stream is {text!r}, it must be >= 0")
    partitions = tuple(sorted({int(text) for text in texts}))
    return KafkaAddress(servers, topic, options.text("group"), partitions, options.start())


def _host_port(text: str, default: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port if parts.port is not None else default
    except ValueError:
        host, port = None, 0
    if not host or not 1 <= port <= 65535:
        raise ConfigError(f"address {text!r} of the stream is not host:port, port in 1..65535")
    return host, port
