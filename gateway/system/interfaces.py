"""Network addresses of this machine that a phone beside it may reach."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

import msgspec

_LIST: Final = ("ip", "-json", "-4", "address", "show", "up")
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
    """Those of this machine that are up and have an address, as ip(8) lists them; none where it can't."""
    try:
        listed = msgspec.json.decode(
            subprocess.run(_LIST, capture_output=True, check=True, timeout=10).stdout
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return [
        Interface(each["ifname"], each["addr_info"][0]["local"], "POINTOPOINT" in each["flags"])
        for each in listed
        if each.get("addr_info")
    ]


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
