"""Where a server is and what is shown to it, as the URL that configures a worker. Nothing here opens anything."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from aiops.errors import ConfigError

DEFAULT_PORT = 4711
# Scheme of a URL -> whether it means TLS.
_SCHEMES = {"aiops": False, "aiops+tls": True}
_TOKEN_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens, as one address of a URL.

    Attributes:
        host: Name or address, IPv6 without brackets.
        port: TCP port, 1..65535.
        token: Secret to show; None when the URL has none.
        tls: Whether it speaks TLS.
    """

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> tuple[Endpoint, ...]:
    """Return the addresses that a worker's URL names, in its order, at least one.

    ``aiops://[token@]host[:port][,host[:port]...]``, or ``aiops+tls://`` for TLS: the port is 4711 unless given, IPv6
    stands in brackets, the token is percent-encoded where it holds "@", "/" or "%" and goes to every host.

    Raises:
        ConfigError: The URL is none of ours; the message never shows the token.
    """
    scheme, separator, rest = url.strip().partition("://")
    tls = _SCHEMES.get(scheme.lower()) if separator else None
    if tls is None:
        raise ConfigError(_wrong_scheme(scheme if separator else ""))
    secret, at, hosts = rest.rpartition("@")
    token = unquote(secret) if at else None
    check_token(token)
    hosts = hosts.removesuffix("/")
    if any(mark in hosts for mark in "/?#"):
        raise ConfigError(f"url part {hosts!r} has a path, a server has none: host:port is all")
    return tuple(_endpoint(part, token, tls=tls) for part in hosts.split(","))


def check_token(token: str | None) -> None:
    """Refuse what is no token; None is well.

    Raises:
        ConfigError: It is no text, or too short or too long. The message shows a type or a length and never the secret.
    """
    if token is None:
        return
    if not isinstance(token, str):
        raise ConfigError(f"token is of type {type(token).__name__}, it must be text")
    if not 1 <= len(token) <= _TOKEN_CHARACTERS:
        raise ConfigError(
            f"token has {len(token)} characters, it must have 1 to {_TOKEN_CHARACTERS}"
        )


def _wrong_scheme(scheme: str) -> str:
    if not scheme:
        return "the url has no scheme, it must look like aiops://host:port"
    return f"scheme {scheme!r} is unknown, there are aiops://host:port and aiops+tls://host:port"


def _endpoint(text: str, token: str | None, *, tls: bool) -> Endpoint:
    address = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]\s]*))(?::([0-9]{1,9}))?", text)
    if address is None:
        raise ConfigError(
            f"address {text!r} is not host:port (IPv6 stands in brackets: [::1]:4711)"
        )
    ipv6, name, digits = address.groups()
    if ipv6 is not None and not _is_ipv6(ipv6):
        raise ConfigError(f"address {text!r} has no IPv6 address in its brackets")
    if not (ipv6 or name):
        raise ConfigError(f"address {text!r} has no host, it must look like host:port")
    port = int(digits) if digits else DEFAULT_PORT
    if not 1 <= port <= 65535:
        raise ConfigError(f"port of address {text!r} must be in 1..65535")
    return Endpoint(ipv6 or name, port, token, tls)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
