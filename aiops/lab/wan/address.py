"""Who has which address in an emulated network: the last octet tells the links apart."""

from __future__ import annotations

from typing import Literal

# Who runs something: a worker by its index, or the server.
Place = int | Literal["server"]

SERVER_OCTET = 1
FIRST_OCTET = 10
PREFIX_BITS = 24

# More would leave 10.77.0.0/24, and a Python process that emulates so many has no core left to be exact with.
MOST_WORKERS = 200


def address(place: Place) -> str:
    """Return the address of a place: 10.77.0.1 of the server, from 10.77.0.10 on the workers."""
    return f"10.77.0.{SERVER_OCTET if place == 'server' else FIRST_OCTET + place}"
