"""TLS on the command line: three files, and what the verbs that connect share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from aiops.transport.certificate import Tls

Command = TypeVar("Command", bound=Callable[..., Any])


def files(cert: Path | None, key: Path | None, ca: Path | None) -> Tls | None:
    """Return what the options say; None if none is given."""
    return Tls(cert=cert, key=key, ca=ca) if cert or key or ca else None


def tls_options(command: Command) -> Command:
    """Give a verb that connects its options ``tls_ca``, ``tls_cert`` and ``tls_key``."""
    for name, text in (
        ("--tls-key", "Its key, not encrypted; in the same file unless given."),
        ("--tls-cert", "Certificate to show to a server that asks for one (PEM)."),
        ("--tls-ca", "Trust these authorities (PEM) instead of the system's."),
    ):
        command = click.option(name, type=click.Path(path_type=Path), help=text)(command)
    return command
