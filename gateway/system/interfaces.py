"""Network addresses of this machine that a phone beside it may reach."""

from __future__ import annotations

import fcntl
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

# linux/sockios.h and linux/if.h
_SIOCGIFFLAGS: Final = 0x8913
_SIOCGIFADDR: Final = 0x8915
_IFF_UP: Final = 0x1
_IFF_POINTOPOINT: Final = 0x10
_IFREQ: Final = struct.Struct("16s24s")
# The usual ones in the field: the Pi's Wi-Fi, a cable, a cable over USB. Then any other.
_PREFERRED: Final = ("wl", "en", "eth", "usb")
_VIRTUAL: Final = ("docker", "veth", "br-", "virbr", "tun", "tap", "wg", "zt", "tailscale", "vnet")


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface that is up, with its first IPv4 address."""

    name: str
    address: str
    point_to_point: bool = False


def interfaces() -> list[Interface]:
    """Those of this machine that are up and have an address, as the kernel lists them (netdevice(7))."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for _, name in socket.if_nameindex():
            try:
                flags = struct.unpack("h", _ioctl(control, _SIOCGIFFLAGS, name)[:2])[0]
                address = str(IPv4Address(_ioctl(control, _SIOCGIFADDR, name)[4:8]))
            except OSError:
                # It has no IPv4 address.
                continue
            if flags & _IFF_UP:
                found.append(Interface(name, address, bool(flags & _IFF_POINTOPOINT)))
    return found


def reachable(among: list[Interface]) -> list[Interface]:
    """Those that may share a network with a phone, the likeliest first.

    Neither the loopback nor a modem's side, which is the internet.
    """
    near = [
        each
        for each in among
        if not IPv4Address(each.address).is_loopback
        and not each.point_to_point
        and not each.name.startswith((*_VIRTUAL, "ww", "ppp"))
    ]
    return sorted(near, key=lambda each: (_rank(each.name), each.name))


def _rank(name: str) -> int:
    return next((at for at, start in enumerate(_PREFERRED) if name.startswith(start)), len(_PREFERRED))


def _ioctl(control: socket.socket, request: int, name: str) -> bytes:
    answer = fcntl.ioctl(control, request, _IFREQ.pack(name.encode(), b""))
    content: bytes = _IFREQ.unpack(answer)[1]
    return content
