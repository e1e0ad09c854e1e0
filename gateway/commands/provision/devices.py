"""``fieldgate provision devices``: users of ``[mqtt_proxy]`` with their topics, and tokens of ``[http]``.

The config names the files. Who isn't named in a call stays as he is, lines written by hand too: ``--remove``
alone takes somebody out. Passwords and tokens are random, shown once or written to a file, and never kept.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import secrets
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from cloud.command_line import OK, CommandError, os_problem
from cloud.whole_files import write_secret
from cloud.wire.reading_records import GATEWAY_ID
from gateway.commands.provision.mosquitto_files import Device, devices_of, hashed
from gateway.config.bridges.access_files import read_access, read_tokens, read_users
from gateway.system.atomic_file import Ownership, as_owner_of, ownership_of, write_atomic

_SECRET_BYTES: Final = 18
_NOWHERE: Final = "{config} has no {keys}: put the names of the files there, which are made then"


@dataclass
class _File:
    """One file, as it is and as it will be; ``owners`` has each line's device, None for comments."""

    path: Path
    owners: Callable[[Iterable[str]], Iterator[str | None]]
    before: list[str]
    lines: list[str]

    @property
    def names(self) -> dict[str, list[str]]:
        """Each device's lines."""
        found: dict[str, list[str]] = {}
        for name, line in zip(self.owners(self.lines), self.lines, strict=True):
            if name is not None:
                found.setdefault(name, []).append(line)
        return found

    def put(self, name: str, lines: Iterable[str]) -> None:
        """Put lines in the place of a device's, at the end where it has none."""
        owners: list[str | None] = list(self.owners(self.lines))
        new: list[str] = []
        at = owners.index(name) if name in owners else len(owners)
        for number, (owner, line) in enumerate(zip(owners, self.lines, strict=True)):
            if number == at:
                new += lines
            if owner != name:
                new.append(line)
        self.lines = new if at < len(owners) else [*new, *lines]


def run(arguments: argparse.Namespace) -> int:
    """Write, or show with ``--dry-run``. Raises CommandError."""
    try:
        with _alone(arguments.config.absolute().parent):
            return _Devices(arguments).provision()
    except (ValueError, TypeError, RecursionError) as error:
        raise CommandError(f"{error}: nothing written") from error
    except OSError as error:
        raise CommandError(os_problem(error, remedy="writing it needs root (sudo)")) from error


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """The one call at a time for the configs of a directory: another would undo what this one has written.

    Raises CommandError, OSError.
    """
    # Not on a file: each of them may be replaced by another.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(
                "another `provision devices` is at work: nothing written; repeat it"
            ) from error
        yield
    finally:
        os.close(descriptor)


class _Devices:
    def __init__(self, arguments: argparse.Namespace) -> None:
        """Raises OSError, ValueError, CommandError."""
        self._arguments = arguments
        self._fresh: list[str] = []
        config = tomllib.loads(arguments.config.read_text(encoding="utf-8"))
        proxy, http = (dict(config.get(section, {})) for section in ("mqtt_proxy", "http"))
        # A user without topics does no harm; without a password it can't even log in.
        self._access = self._file(proxy.get("access"), read_access, _users_of_blocks)
        self._passwords = self._file(proxy.get("passwords"), read_users, _before_colons)
        self._tokens = self._file(http.get("tokens"), read_tokens, _first_words)
        named = {Device.parse(each).name for each in arguments.devices}
        others = {
            each: name
            for name, filters in (read_access(self._access.path) if self._access.lines else {}).items()
            if name not in named and name not in arguments.remove
            for each in filters
        }
        self._devices = {each.name: each for each in devices_of(arguments.devices, others)}
        self._check()

    def _file(
        self,
        name: object,
        check: Callable[[Path], object],
        owners: Callable[[Iterable[str]], Iterator[str | None]],
    ) -> _File:
        """One that the config doesn't name has no path to speak of, and nothing is put there."""
        if not isinstance(name, str):
            return _File(Path(), owners, [], [])
        path, lines = self._arguments.config.absolute().parent / name, []
        if path.is_symlink():
            # Followed, it may lead root to any file; replaced, it would be a link no more.
            raise CommandError(f"{path} is a link: name {path.readlink()} in the config")
        try:
            check(path)
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            pass
        return _File(path, owners, lines, lines)

    def _check(self) -> None:
        """Raises CommandError."""
        arguments, nowhere = self._arguments, Path()
        if not any((arguments.devices, arguments.tokens, arguments.rotate, arguments.remove)):
            raise CommandError("name a --device or a --token, or whom to --rotate or to --remove")
        if self._devices and nowhere in (self._passwords.path, self._access.path):
            keys = "passwords and access in [mqtt_proxy]"
            raise CommandError(_NOWHERE.format(config=arguments.config, keys=keys))
        if arguments.tokens and self._tokens.path == nowhere:
            raise CommandError(_NOWHERE.format(config=arguments.config, keys="tokens in [http]"))
        if wrong := [name for name in arguments.tokens if GATEWAY_ID.fullmatch(name) is None]:
            raise CommandError(f"--token {wrong[0]}: a device's id has small letters, digits and - only")
        there = {*self._passwords.names, *self._access.names, *self._tokens.names}
        for option, names in (("rotate", arguments.rotate), ("remove", arguments.remove)):
            if unknown := [name for name in names if name not in there]:
                raise CommandError(f"--{option} {unknown[0]}: there is no such device")
        if both := {*self._devices, *arguments.tokens, *arguments.rotate} & set(arguments.remove):
            raise CommandError(f"{min(both)} is to stay and to be removed")

    def provision(self) -> int:
        """Do it. Raises OSError, CommandError."""
        arguments, place = self._arguments, self._arguments.passwords
        changes = [
            *self._removed(),
            *self._with_secrets(
                "user", self._passwords, self._devices, lambda name, secret: f"{name}:{hashed(secret)}"
            ),
            *self._with_topics(),
            *self._with_secrets("token", self._tokens, arguments.tokens, _token_line),
        ]
        files = (self._access, self._passwords, self._tokens)
        changed = [file for file in files if file.lines != file.before]
        if self._fresh and place is not None and not arguments.dry_run:
            if os.path.lexists(place):
                raise CommandError(f"{place} is there already: nothing written; name another file")
            if place.resolve() in (file.path.resolve() for file in files):
                raise CommandError(f"{place} is one of the config's: nothing written; name another file")
        for line in changes:
            print(line)
        if not changed:
            print("nothing to change")
        if arguments.dry_run or not changed:
            return OK
        if self._fresh and place is not None:
            write_secret(place, "".join(self._fresh))
        elif self._fresh:
            print("\nShown once; write them down:\n" + "".join(f"  {line}" for line in self._fresh))
        for file in changed:
            with as_owner_of(file.path.parent):
                write_atomic(file.path, "".join(f"{line}\n" for line in file.lines), _ownership(file.path))
            print(f"written  {file.path}")
        print("\nNow: fieldgate check && sudo systemctl reload fieldgate")
        return OK

    def _removed(self) -> Iterator[str]:
        for name in self._arguments.remove:
            for file in (self._access, self._passwords, self._tokens):
                file.put(name, ())
            yield f"removed  {name}"

    def _with_secrets(
        self, kind: str, file: _File, wanted: Iterable[str], line: Callable[[str, str], str]
    ) -> Iterator[str]:
        """Makes new passwords or tokens; ``line`` is how the file has one, by name and secret."""
        known, rotate = file.names, self._arguments.rotate
        for name in dict.fromkeys((*wanted, *(each for each in rotate if each in known))):
            if name not in known or name in rotate:
                secret = secrets.token_urlsafe(_SECRET_BYTES)
                self._fresh.append(f"{kind} {name} {secret}\n")
                file.put(name, [line(name, secret)])
                yield f"{'rotated' if name in known else 'new    '}  {kind} {name}"

    def _with_topics(self) -> Iterator[str]:
        known = self._access.names
        for text in self._arguments.devices:
            device = Device.parse(text)
            lines = [f"user {device.name}", *(f"topic write {each}" for each in device.filters)]
            kept = [line for line in known.get(device.name, ()) if line.split()[1:2] == ["read"]]
            # Without topics of its own in this call a device keeps those it has.
            if device.name not in known or ("=" in text and known[device.name] != [*lines, *kept]):
                self._access.put(device.name, [*lines, *kept])
                yield f"topics   {device.name}: {', '.join(device.filters)}"


def _token_line(name: str, token: str) -> str:
    return f"{name} {sha256(token.encode()).hexdigest()}"


def _before_colons(lines: Iterable[str]) -> Iterator[str | None]:
    for line in lines:
        yield None if line.startswith("#") or ":" not in line else line.partition(":")[0].strip()


def _first_words(lines: Iterable[str]) -> Iterator[str | None]:
    for line in lines:
        yield next(iter(line.partition("#")[0].split()), None)


def _users_of_blocks(lines: Iterable[str]) -> Iterator[str | None]:
    user: str | None = None
    for line in lines:
        # A line may be indented for the file's reader.
        if line.strip().startswith("user "):
            user = line.strip().partition(" ")[2].strip()
        yield None if line.startswith("#") or not line.strip() else user


def _ownership(path: Path) -> Ownership:
    """Keeps a file's owner; a new one is root's, or the service's in its directory."""
    if not path.exists():
        return Ownership.for_service(path.parent)
    now = ownership_of(path)
    return now if os.geteuid() == os.getuid() else Ownership.own(now.mode)
