"""Certificates: what TLS is told before any socket opens, and what it says when two ends do not agree.

OpenSSL does not name the file that it dislikes, and asks for the password of an encrypted key on the terminal; here
files are named and nobody is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiops.errors import AiopsError, BadHandshake, ConfigError, Rejected
from aiops.wire.frame import MAGIC

# asyncio has it loaded already, but the face of the package hands Tls out before that.
if TYPE_CHECKING:
    import ssl


_PLAIN_PORT = "it does not speak TLS, its url begins with aiops://"

# How OpenSSL calls the alert that a port of ours without TLS gives.
_UNEXPECTED = "SSLV3_ALERT_UNEXPECTED_MESSAGE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates of one end, as PEM files.

    Attributes:
        cert: Our certificate, and those between it and the authority behind it. A server needs one.
        key: Its private key, not encrypted; in the same file unless given.
        ca: Authorities that may have signed the other end's certificate. A worker asks the system's unless given; a
            server that is given some lets nobody in without a certificate (mutual TLS).
    """

    cert: Path | str | None = None
    key: Path | str | None = None
    ca: Path | str | None = None


def server_context(tls: Tls | ssl.SSLContext) -> ssl.SSLContext:
    """Return what a server needs to know for TLS 1.2 and 1.3; a ready-made context is checked and returned.

    Raises:
        ConfigError: A file cannot be used, or there is no certificate; the message names it and says why.
    """
    import ssl

    if not isinstance(tls, Tls):
        return _checked(tls, serves=True)
    if tls.cert is None:
        raise ConfigError("tls has no certificate, a server needs one to show")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Nobody comes back often enough to be worth a ticket.
    context.num_tickets = 0
    _fill(context, tls)
    if tls.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: Tls | ssl.SSLContext) -> ssl.SSLContext:
    """Return what a worker needs to know; see :func:`server_context`.

    A ready-made context must check the server's certificate and name, or be one of ``ssl.PROTOCOL_TLS_CLIENT`` where
    that was switched off by name.
    """
    import ssl

    if not isinstance(tls, Tls):
        return _checked(tls, serves=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _fill(context, tls)
    return context


def objection(error: ssl.SSLError, *, serves: bool) -> AiopsError:
    """Return what a failed handshake means, in words that go behind the peer's name.

    Args:
        error: What OpenSSL says.
        serves: Whether this end is the server.
    """
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".").replace("Hostname", "hostname")
        return Rejected(f"its certificate is not accepted: {why}")
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return Rejected("it shows no certificate, and this server asks for one")
    if error.reason == _UNEXPECTED and not serves:
        return BadHandshake(_PLAIN_PORT)
    if is_alert(error):
        what = "certificate" if serves else "greeting"
        return Rejected(f"it refuses our {what}: {words(error)}")
    return BadHandshake(f"the TLS handshake failed: {words(error)}")


def stranger(head: bytes, *, serves: bool) -> BadHandshake:
    """Return what a stream means that does not start with TLS, in words that go behind the peer's name."""
    if not serves:
        return BadHandshake(_PLAIN_PORT)
    if head == MAGIC:
        return BadHandshake("it speaks without TLS, its url must begin with aiops+tls://")
    return BadHandshake(f"its stream starts with {head!r}, no TLS")


def is_alert(error: ssl.SSLError) -> bool:
    """Return whether the peer is who ends it."""
    return "_ALERT_" in (error.reason or "")


def words(error: Exception) -> str:
    """Return OpenSSL's reason without the shouting."""
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error)


def _fill(context: ssl.SSLContext, tls: Tls) -> None:
    import ssl

    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if tls.ca is not None:
        _read("authorities", tls.ca, "CERTIFICATE")
        try:
            context.load_verify_locations(tls.ca)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot use the authorities {tls.ca}: {words(error)}") from None
    if tls.cert is not None:
        _load_own(context, tls.cert, tls.cert if tls.key is None else tls.key)
    elif tls.key is not None:
        raise ConfigError(f"there is a key, {tls.key}, and no certificate that it belongs to")


def _load_own(context: ssl.SSLContext, cert: Path | str, key: Path | str) -> None:
    _read("certificate", cert, "CERTIFICATE")
    _read("key", key, "PRIVATE KEY")
    asked = False

    def password() -> str:
        nonlocal asked
        asked = True
        return ""

    try:
        context.load_cert_chain(cert, key, password)
    except (OSError, ValueError) as error:
        if asked:
            raise ConfigError(
                f"key {key} is encrypted: decrypt it (openssl pkey -in {key} -out ...), "
                "or give an ssl.SSLContext that has it"
            ) from None
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"key {key} does not belong to certificate {cert}") from None
        raise ConfigError(f"cannot use certificate {cert} with key {key}: {words(error)}") from None


# OpenSSL reports a missing file without its name, and a file of something else as "PEM lib".
def _read(what: str, path: Path | str, label: str) -> None:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {path}: {error.strerror}") from None
    if not any(f"{label}-----".encode() in line for line in text.splitlines()):
        raise ConfigError(f"the {what} {path} is no PEM file with a {label.lower()} in it")


# A context of the other end's kind would fail at the first handshake.
def _checked(context: ssl.SSLContext, *, serves: bool) -> ssl.SSLContext:
    import ssl

    if not isinstance(context, ssl.SSLContext):
        raise ConfigError(f"tls is {context!r}, it must be aiops.Tls or an ssl.SSLContext")
    wrong = ssl.PROTOCOL_TLS_CLIENT if serves else ssl.PROTOCOL_TLS_SERVER
    if context.protocol is wrong:
        mine = "server" if serves else "worker"
        raise ConfigError(f"tls is a context of the other end's kind, it must be a {mine}'s")
    # One for workers checks unless that is switched off by name; others check nothing unless it is switched on.
    named = context.protocol is ssl.PROTOCOL_TLS_CLIENT
    # Names are checked in certificates that are: there is no one without the other.
    if not (serves or named or context.check_hostname):
        raise ConfigError(
            "tls is a context that does not check the server's certificate and name, "
            "make it with ssl.create_default_context()"
        )
    return context
