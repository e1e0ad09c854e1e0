"""``fieldgate provision mosquitto``: writes the broker's files, or shows what would change.

Doing it again changes nothing. What it doesn't write it never touches; a user's password is made once and
shown once.
"""

from __future__ import annotations

import argparse
import difflib
import os
import pwd
import secrets
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from cloud.command_line import OK, CommandError, os_problem
from cloud.whole_files import write_secret
from gateway.commands.provision import certificates, mosquitto_files as files
from gateway.commands.provision.mosquitto_files import Device
from gateway.system.atomic_file import Ownership, write_atomic

_PASSWORD_BYTES: Final = 18
_SECRET_MODE: Final = 0o600
_MODE: Final = 0o644
_TIMER: Final = "fieldgate-certificate.timer"
_RELOAD: Final = ("systemctl", "try-reload-or-restart", "mosquitto.service")
_DEBIANS_UNITS: Final = ("usr/lib/systemd/system", "lib/systemd/system")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One file as it should be; without a text it should not be there."""

    place: PurePosixPath
    text: str | None
    secret: bool = False
    roots: bool = False
    """A secret that the broker doesn't need."""


def run(arguments: argparse.Namespace) -> int:
    """Write, or show with ``--dry-run``. Raises CommandError."""
    root: Path = arguments.root
    try:
        if arguments.renew:
            return _renew(arguments)
        devices = files.devices_of(arguments.devices)
        names = [each.name for each in devices]
        if devices and arguments.lan is None:
            raise CommandError("--device needs --lan PORT: without it no other machine can connect")
        if arguments.lan is None and (arguments.tls or arguments.names):
            raise CommandError("--tls needs --lan PORT: programs of this machine need none")
        if arguments.names and not arguments.tls:
            raise CommandError("--name is for the certificate: give --tls too")
        listener, ports = _listeners(arguments.port, arguments.lan)
        _refuse_conflicts(root, ports)
        known = files.users(_read(root / files.PASSWORDS) or "")
        fresh = {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in names if name not in known}
        if fresh and not arguments.dry_run:
            known |= {name: f"{name}:{files.hashed(password)}" for name, password in fresh.items()}
        why = None
        wanted = []
        if arguments.tls:
            names = certificates.names_of(arguments.names, here=root == Path("/"))
            why = certificates.why_new(root, names)
            if why is not None and not arguments.dry_run:
                wanted += _certificates(root, names)
        wanted += _wanted(root, arguments, listener, devices, known)
        changed = [each for each in wanted if _read(root / each.place) != each.text]
        if arguments.dry_run:
            if why is not None:
                print(f"{root / certificates.CERTIFICATE}: a new one, as {why}")
            return _show(root, changed, fresh, quiet=why is not None)
        if arguments.passwords is not None and fresh:
            lines = "".join(f"{name} {password}\n" for name, password in fresh.items())
            write_secret(arguments.passwords, lines)
        for each in changed:
            _write(root, each)
    except OSError as error:
        raise CommandError(os_problem(error, remedy="writing it needs root (sudo)")) from error
    except subprocess.SubprocessError as error:
        raise CommandError(f"the certificate is new, and the broker hasn't got it: {error}") from error
    _print_written(root, changed, {} if arguments.passwords is not None else fresh)
    if arguments.tls:
        print(f"\nDevices need {root / certificates.AUTHORITY}, SHA-256 {certificates.fingerprint(root)}")
        print(f"Renewed by itself: systemctl enable --now {_TIMER}")
    return OK


def _renew(arguments: argparse.Namespace) -> int:
    """A new certificate in time, under the names it has and of the key it has: one file, and no restart."""
    root: Path = arguments.root
    if arguments.lan is not None or arguments.devices or arguments.names or arguments.tls:
        raise CommandError("--renew stands alone: the certificate keeps its names")
    needed = (certificates.AUTHORITY, certificates.AUTHORITY_KEY, certificates.KEY)
    names = certificates.names_in(root)
    if not names or not all((root / each).is_file() for each in needed):
        raise CommandError(f"there is no certificate to renew in {root / needed[0].parent}: --tls makes one")
    why = certificates.why_new(root, names)
    if why is None:
        print("nothing to change")
    elif arguments.dry_run:
        print(f"{root / certificates.CERTIFICATE}: a new one, as {why}")
    else:
        made = certificates.made(root, names, keep_key=True)
        _write(root, Wanted(certificates.CERTIFICATE, made[certificates.CERTIFICATE]))
        print(f"written  {root / certificates.CERTIFICATE}, as {why}")
        if root == Path("/"):
            # The broker reads it again and goes on; one that doesn't run has nothing to read.
            subprocess.run(_RELOAD, check=True, timeout=60)
    return OK


def _certificates(root: Path, names: list[str]) -> list[Wanted]:
    """A new certificate; an authority that is there stays as it is."""
    made = certificates.made(root, names)
    return [
        Wanted(certificates.AUTHORITY_KEY, made[certificates.AUTHORITY_KEY], secret=True, roots=True),
        Wanted(certificates.AUTHORITY, made[certificates.AUTHORITY]),
        Wanted(certificates.KEY, made[certificates.KEY], secret=True),
        Wanted(certificates.CERTIFICATE, made[certificates.CERTIFICATE]),
    ]


def _listeners(port: int, lan: str | None) -> tuple[str | None, list[int]]:
    """The LAN's listener as the configuration has it, and all ports. Raises CommandError."""
    if lan is None:
        return None, [port]
    address, _, text = lan.rpartition(":")
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise CommandError(f"--lan {lan}: PORT or ADDRESS:PORT, the port from 1 to 65535")
    if int(text) == port:
        raise CommandError(f"--lan {lan}: the loopback listener has this port; another, such as {port + 1}")
    return f"{text} {address.strip('[]')}".strip(), [port, int(text)]


def _wanted(
    root: Path,
    arguments: argparse.Namespace,
    listener: str | None,
    devices: list[Device],
    known: Mapping[str, str],
) -> list[Wanted]:
    lan = listener is not None
    debians = next((text for at in _DEBIANS_UNITS if (text := _read(root / at / files.UNIT.name))), None)
    if debians is None:
        raise CommandError("mosquitto is not installed: apt-get install mosquitto")
    unit, own = files.without_network_online(debians), _read(root / files.UNIT)
    wanted = [
        # The files it names are there before the configuration.
        Wanted(files.PASSWORDS, files.passwords(known, devices) if lan else None, secret=True),
        Wanted(files.ACCESS, files.access(devices) if lan else None, secret=True),
        Wanted(files.CONFIGURATION, files.configuration(arguments.port, listener, tls=arguments.tls)),
    ]
    if own is None or own.startswith(files.MARK):
        # An override that was not written here stays.
        wanted.append(Wanted(files.UNIT, unit))
    packaged = [root / at / "mosquitto.service.d" / files.DROP_IN.name for at in _DEBIANS_UNITS]
    wanted.append(Wanted(files.DROP_IN, None if any(map(Path.is_file, packaged)) else files.drop_in()))
    return wanted


def _refuse_conflicts(root: Path, ports: list[int]) -> None:
    directory = root / files.CONFIGURATION.parent
    others = [root / "etc/mosquitto/mosquitto.conf", *sorted(directory.glob("*.conf"))]
    texts = {str(path): _read(path) or "" for path in others if path.name != files.CONFIGURATION.name}
    found = list(files.conflicts(texts, ports))
    if found:
        raise CommandError("the broker has other files that contradict:\n  " + "\n  ".join(found))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write(root: Path, wanted: Wanted) -> None:
    path = root / wanted.place
    if wanted.text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    ownership = Ownership.own(_SECRET_MODE if wanted.secret else _MODE)
    if wanted.secret and not wanted.roots and os.geteuid() == 0 and root == Path("/"):
        # The broker has given root up when it reads them; later versions refuse others' files.
        broker = pwd.getpwnam("mosquitto")
        ownership = Ownership(broker.pw_uid, broker.pw_gid, _SECRET_MODE)
    write_atomic(path, wanted.text, ownership)


def _show(root: Path, changed: list[Wanted], fresh: Mapping[str, str], *, quiet: bool) -> int:
    for each in changed:
        path, before = str(root / each.place), _read(root / each.place) or ""
        if each.place == files.PASSWORDS:
            gone = sorted(set(files.users(before)) - set(files.users(each.text or "")))
            new = f"new: {', '.join(fresh)}" if fresh else ""
            print(f"{path}: {new}" + (f" removed: {', '.join(gone)}" if gone else ""))
            continue
        old, new_lines = (text.splitlines(keepends=True) for text in (before, each.text or ""))
        sys.stdout.writelines(difflib.unified_diff(old, new_lines, path, path))
    if not changed and not fresh and not quiet:
        print("nothing to change")
    return OK


def _print_written(root: Path, changed: list[Wanted], fresh: Mapping[str, str]) -> None:
    for each in changed:
        print(f"{'removed' if each.text is None else 'written'}  {root / each.place}")
    if not changed:
        print("nothing to change")
        return
    if fresh:
        print("\nShown once; write them down:")
        for name, password in fresh.items():
            print(f"  {name}  {password}")
    print("\nNow: systemctl daemon-reload && systemctl enable mosquitto && systemctl restart mosquitto")
    print("Then: fieldgate doctor")
