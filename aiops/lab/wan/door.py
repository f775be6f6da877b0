"""The door: a WAN by what this machine allows, or by name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from typing import Literal

from aiops.errors import ConfigError
from aiops.lab.wan import namespace, netem
from aiops.lab.wan.base import Kind, Wan
from aiops.lab.wan.link import LinkSpec
from aiops.lab.wan.relayed import RelayWan
from aiops.lab.wan.spaces import SpaceWan
from aiops.lab.wan.tun import DEVICE


def why_not_spaces() -> str | None:
    """Return why this process cannot make a WAN of namespaces, or None if it can."""
    if missing := namespace.missing_tools():
        return f"the command {missing[0]} is missing"
    try:
        os.close(namespace.make(congestion=None, slow_start_after_idle=None))
    except (OSError, AttributeError) as error:
        return f"no network namespaces: {error}"
    return None


def why_not_tun() -> str | None:
    """Return why this process cannot emulate links on TUN interfaces, or None if it can."""
    try:
        os.close(os.open(DEVICE, os.O_RDWR))
    except OSError as error:
        return f"no TUN: {error}"
    return why_not_spaces()


def best_kind() -> Kind:
    """Return the kind that "auto" stands for here.

    TUN first, although the kernel's own emulation costs less: it is the one that has been measured.
    """
    if why_not_tun() is None:
        return "tun"
    if why_not_spaces() is None and netem.available():
        return "netem"
    return "relay"


@contextlib.asynccontextmanager
async def open_wan(
    links: Sequence[LinkSpec],
    *,
    kind: Kind | Literal["auto"] = "auto",
    congestion: str | None = None,
    slow_start_after_idle: bool | None = None,
    seed: int = 0,
) -> AsyncIterator[Wan]:
    """Bring emulated links up, and down at the end.

    Args:
        links: What each worker's link is like.
        kind: How to make them: "tun", our emulator between TUN interfaces of network namespaces; "netem", the kernel
            between theirs; "relay", split TCP on loopback, which needs no privilege; "auto", the best that this machine
            allows.
        congestion: TCP's congestion control on the links; None for the system's. A relay has none.
        slow_start_after_idle: Whether a connection that has been silent for long starts slowly anew; None for the
            system's way, which is to do so. A relay has none.
        seed: Of losses and jitter.

    Raises:
        ConfigError: This machine or this kind cannot do it.
        ConnectFailed: A link does not answer.
    """
    if kind == "auto":
        kind = best_kind()
    if kind == "relay":
        if congestion is not None or slow_start_after_idle is not None:
            setting = "congestion" if congestion is not None else "slow_start_after_idle"
            raise ConfigError(
                f"{setting} is set, a relay splits TCP and has none: this takes kind tun or netem"
            )
        async with RelayWan(links) as relayed:
            yield relayed
        return
    why_not = why_not_tun() if kind == "tun" else why_not_spaces()
    if why_not is not None:
        raise ConfigError(f"kind is {kind!r}, which is not possible here: {why_not}")
    if kind == "netem" and not netem.available():
        raise ConfigError("kind is 'netem', which is not possible here: the kernel has no netem")
    async with SpaceWan(
        links,
        kind=kind,
        congestion=congestion,
        slow_start_after_idle=slow_start_after_idle,
        seed=seed,
    ) as spaces:
        yield spaces
