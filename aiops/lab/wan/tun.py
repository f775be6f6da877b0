"""A TUN interface in a network namespace: what its programs send comes out of a descriptor, packet by packet.

In front of each stands a virtio header of ten bytes. With trains, the kernel hands over what TCP sends in one go (1 ms
of its pace, so eight full packets at 100 Mbit/s and two at 20) as one large packet, as it does to a network card that
segments; it is written to the other interface as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct

from aiops.lab.wan.address import PREFIX_BITS, Place, address
from aiops.lab.wan.link import ETHERNET_BYTES
from aiops.launch.netns import inside, raise_interface

DEVICE = "/dev/net/tun"
NAME = "wan0"
MTU_BYTES = 1500

# Packets that may wait for the emulator to read them. A server answers everybody at once: 500, the system's default, is
# less than twelve workers' windows at 100 Mbit/s, and what does not fit is lost outside of the emulated queues.
WAITING = 8192

# The header: flags, kind of a train, length of a packet's headers, payload of each packet (little endian), checksum.
HEADER_BYTES = 10

# The largest train, a full IP packet with its virtio header.
LARGEST_BYTES = 65_535 + HEADER_BYTES

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x400454CA, 0x0001, 0x1000, 0x4000
_TUNSETOFFLOAD, _TUN_F_CSUM, _TUN_F_TSO4 = 0x400454D0, 0x01, 0x02
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU, _SIOCSIFTXQLEN = 0x8916, 0x891C, 0x8922, 0x8943


def line_bytes(packet: bytes) -> int:
    """Return the bytes of IP that what was read takes on a line, with 14 of Ethernet between its packets."""
    if not packet[1]:
        return len(packet) - HEADER_BYTES
    headers, each = packet[2] | packet[3] << 8, packet[4] | packet[5] << 8
    further = -(-(len(packet) - HEADER_BYTES - headers) // each) - 1
    return len(packet) - HEADER_BYTES + further * (headers + ETHERNET_BYTES)


def open_tun(namespace: int, place: Place, *, trains: bool) -> int:
    """Make a place's interface and set it up.

    Args:
        namespace: A descriptor of the place's network namespace.
        place: Whose it is.
        trains: Whether packets may be handed over in trains.

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
        flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name, flags))
        fcntl.ioctl(device, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4 if trains else 0)
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
