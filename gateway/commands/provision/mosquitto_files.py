"""The files that make Debian's Mosquitto the mast's broker, made of the ``.conf`` files beside this one.

Tried with Mosquitto 2.0.11 (Debian 12) and 2.0.21 (Debian 13).
"""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import pbkdf2_hmac
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Final

from cloud.command_line import CommandError
from gateway.config.values import overlap, topic_filter

CONFIGURATION: Final = PurePosixPath("etc/mosquitto/conf.d/fieldgate.conf")
PASSWORDS: Final = PurePosixPath("etc/mosquitto/fieldgate.passwd")
ACCESS: Final = PurePosixPath("etc/mosquitto/fieldgate.acl")
UNIT: Final = PurePosixPath("etc/systemd/system/mosquitto.service")
DROP_IN: Final = PurePosixPath("etc/systemd/system/mosquitto.service.d/fieldgate.conf")
"""Below the root directory."""

MARK: Final = "# Written by `fieldgate provision mosquitto`"
NETWORK_ONLINE: Final = "network-online.target"

_DEVICE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WAITS: Final = re.compile(rf"^(?:After|Wants|Requires)=.*\b{re.escape(NETWORK_ONLINE)}\b", re.MULTILINE)

_DOWNLINK: Final = "downlink"
_SALT_BYTES: Final = 12
_ROUNDS: Final = 101
"""The rounds of mosquitto_passwd: more would hold up others, and random passwords can't be guessed."""
_UNIT_HEAD: Final = f"""\
{MARK}: Debian's unit without {NETWORK_ONLINE}, which
# a mast without uplink doesn't reach for minutes. A drop-in can't take such a line away (systemd.unit(5)).
# It stands before the packaged one: provision again after an upgrade of mosquitto, or remove this file.
"""


@dataclass(frozen=True, slots=True)
class Device:
    """A user of the LAN listener, and the topic filters it may publish to."""

    name: str
    filters: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Device:
        """``NAME`` (its topics are ``devices/NAME/#``) or ``NAME=FILTER[,FILTER…]``. Raises CommandError."""
        name, equals, filters = text.partition("=")
        if _DEVICE.fullmatch(name) is None:
            raise CommandError(f"{text!r}: a device's name has letters, digits, - and _ only, at most 64")
        given = tuple(filters.split(",")) if equals else (f"devices/{name}/#",)
        for each in given:
            try:
                _check_filter(each)
            except ValueError as error:
                raise CommandError(f"{text!r}: topic filter {each!r}: {error}") from error
        return cls(name, given)


def devices_of(texts: Iterable[str]) -> list[Device]:
    """The devices, none of which may publish to another's topics. Raises CommandError."""
    found: list[Device] = []
    taken: dict[str, str] = {}
    for device in map(Device.parse, texts):
        if any(each.name == device.name for each in found):
            raise CommandError("a --device is named twice: give its topics as NAME=FILTER,FILTER")
        for mine, theirs in product(device.filters, taken):
            if overlap(mine, theirs):
                raise CommandError(f"{device.name}'s {mine} has topics of {taken[theirs]}'s {theirs}")
        found.append(device)
        taken |= dict.fromkeys(device.filters, device.name)
    return found


def _check_filter(text: str) -> None:
    """Raises ValueError."""
    topic_filter(text)
    if any(char.isspace() or not char.isprintable() for char in text):
        raise ValueError("must have no blanks")
    if text.split("/")[0] in ("#", "+") or text.startswith("$"):
        raise ValueError("must begin with a level of the device's own")
    if text.split("/")[0] == "fieldgate":
        raise ValueError("those are the gateway's own topics")
    if text.split("/")[0] == _DOWNLINK:
        raise ValueError(f"{_DOWNLINK}/NAME/# is what a device reads: nothing is written there")


def configuration(port: int, listener: str | None, *, tls: bool = False) -> str:
    """The broker's configuration; ``listener`` is the LAN's ``PORT [ADDRESS]``, None without one."""
    lan = ""
    if listener is not None:
        encrypted = "Encrypted." if tls else "Not encrypted: for a\n# network of the mast's own."
        lan = _text("mosquitto-lan.conf").format(listener=listener, encrypted=encrypted)
        lan += _text("mosquitto-tls.conf") if tls else ""
    return _text("mosquitto.conf").format(port=port) + lan + limits()


def limits() -> str:
    """What the broker keeps, and how much: that part of its configuration."""
    return _text("mosquitto-limits.conf")


def drop_in() -> str:
    """The unit's drop-in; the package installs the same file."""
    return _text("mosquitto.service.conf")


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def access(devices: Iterable[Device]) -> str:
    """Who may publish what; a device reads what a downlink has for it, and nothing else."""
    lines = [
        f"{MARK}, which overwrites it.",
        "# Each device publishes to its own topics, and reads its own downlink.",
    ]
    for device in devices:
        lines += ["", f"user {device.name}", *(f"topic write {each}" for each in device.filters)]
        lines.append(f"topic read {_DOWNLINK}/{device.name}/#")
    return "\n".join(lines) + "\n"


def passwords(known: Mapping[str, str], devices: Iterable[Device]) -> str:
    """The password file: the lines of known users that are still wanted, in the devices' order."""
    return "".join(f"{known[each.name]}\n" for each in devices if each.name in known)


def users(text: str) -> dict[str, str]:
    """The lines of a password file by user."""
    return {line.partition(":")[0]: line for line in text.splitlines() if ":" in line}


def without_network_online(unit: str) -> str | None:
    """A unit that no longer waits for the network; None where it doesn't."""
    if _WAITS.search(unit) is None:
        return None
    kept = []
    for line in unit.splitlines():
        if _WAITS.match(line):
            key, _, value = line.partition("=")
            words = [word for word in value.split() if word != NETWORK_ONLINE]
            if not words:
                continue
            line = f"{key}={' '.join(words)}"
        kept.append(line)
    return _UNIT_HEAD + "\n".join(kept) + "\n"


def conflicts(files: Mapping[str, str], ports: Sequence[int]) -> Iterator[str]:
    """What in the broker's other files would keep it from starting, or undo this: ``FILE:LINE: why``."""
    for name, text in files.items():
        for number, line in enumerate(text.splitlines(), start=1):
            key, _, value = line.strip().partition(" ")
            if key in ("listener", "port") and value.split()[:1] in [[str(port)] for port in ports]:
                yield f"{name}:{number}: {line.strip()!r} takes the same port: remove it"
            elif key in ("allow_anonymous", "password_file", "acl_file", "per_listener_settings"):
                yield f"{name}:{number}: {line.strip()!r} would count for another listener: remove it"


def hashed(password: str) -> str:
    """Hashes like mosquitto_passwd (2.0): PBKDF2 with SHA-512."""
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = pbkdf2_hmac("sha512", password.encode(), salt, _ROUNDS)
    return f"$7${_ROUNDS}${b64encode(salt).decode()}${b64encode(digest).decode()}"
