"""A TUN interface in a network namespace: what its programs send comes out of a descriptor, packet by packet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct

from aiops.lab.wan.address import PREFIX_BITS, Place, address
from aiops.launch.netns import inside, raise_interface

DEVICE = "/dev/net/tun"
NAME = "wan0"
MTU_BYTES = 1500

# Packets that may wait for the emulator to read them. A server answers everybody at once: 500, the system's default, is
# less than twelve workers' windows at 100 Mbit/s, and what does not fit is lost outside of the emulated queues.
WAITING = 8192

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU, _SIOCSIFTXQLEN = 0x8916, 0x891C, 0x8922, 0x8943


def open_tun(namespace: int, place: Place) -> int:
    """Make a place's interface and set it up.

    Args:
        namespace: A descriptor of the place's network namespace.
        place: Whose it is.

    Returns:
        A descriptor that does not block; the interface is gone when it is closed.

    Raises:
        OSError: There is no such device, or no privilege to make an interface.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(inside(namespace))
        device = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK)
        stack.callback(os.close, device)
        name = NAME.encode()
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name, _IFF_TUN | _IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for request, value in ((_SIOCSIFMTU, MTU_BYTES), (_SIOCSIFTXQLEN, WAITING)):
                fcntl.ioctl(sock, request, struct.pack("16si20x", name, value))
            mask = socket.inet_ntoa(struct.pack("!I", -1 << (32 - PREFIX_BITS) & 0xFFFFFFFF))
            for request, quad in ((_SIOCSIFADDR, address(place)), (_SIOCSIFNETMASK, mask)):
                fcntl.ioctl(sock, request, _ifreq_address(name, quad))
        raise_interface(NAME)
        # It stays in its namespace; only this thread leaves.
        kept = os.dup(device)
    return kept


def _ifreq_address(name: bytes, quad: str) -> bytes:
    family = struct.pack("=HH", socket.AF_INET, 0)
    return struct.pack("16s4s4s16x", name, family, socket.inet_aton(quad))
