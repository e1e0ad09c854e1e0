"""Secrets and certificates that a config names beside itself, and whether the service can read them.

A secret is ``{ credential = "name" }`` of systemd or ``{ file = "…" }``; its value is never in a problem, a
log line or the status page: only here and where it is used.

The service runs as a user of its own. On the mast ``check`` run as root tries for that user, as root may read
what the service can't; run as that user it tries directly. Elsewhere nobody can say.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

from cloud.toml_problems import KeyPath, current_user, quote, unknown_key, unreadable
from cloud.toml_source import CREDENTIALS, LONGEST_SECRET, secret_text
from gateway.config.source import Source, named_file

SERVICE_USER: Final = "fieldgate"
_HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108
"""Empty for the service: its unit has ProtectHome= and PrivateTmp=."""

_PUT: Final = "put it there, or correct this line"


def service_user() -> pwd.struct_passwd | None:
    """The service's user, where this machine has it and this process may try for it."""
    try:
        user = pwd.getpwnam(SERVICE_USER)
    except KeyError:
        return None
    return user if os.geteuid() in (0, user.pw_uid) else None


def opens(source: Source, key: KeyPath, file: Path) -> bool:
    """Whether a file that a key names can be opened here; a problem where the service couldn't."""
    source.files[key] = named_file(file)
    try:
        file.open("rb").close()
    except IsADirectoryError:
        return True
    except (OSError, ValueError) as error:
        note_unreadable(source, key, file, error)
        return False
    note_hidden(source, key, file)
    return True


def note_unreadable(
    source: Source, key: KeyPath, file: Path, error: OSError | ValueError, remedy: str = _PUT
) -> None:
    """A file couldn't be opened: an error where the service would fail too, else a warning."""
    if not source.at_work and service_user() is None:
        source.absent(key, f"{file}: {unreadable(file, error)}", "")
    elif isinstance(error, PermissionError):
        user = current_user() if source.at_work else SERVICE_USER
        source.error(key, _forbidden(file, user), starts=True)
    else:
        source.error(key, f"{file}: {unreadable(file, error)}: {remedy}", starts=True)


def note_hidden(source: Source, key: KeyPath, file: Path) -> None:
    """An error where a file that could be opened here is none that the service can open."""
    user = None if source.at_work else service_user()
    if user is None:
        return
    hidden = next((place for place in _HIDDEN if file.resolve().is_relative_to(place)), None)
    if hidden is not None:
        source.error(
            key, f"{file}: the service sees nothing in {hidden}: move it to /etc/fieldgate", starts=True
        )
    elif not _may_read(file, user):
        source.error(key, _forbidden(file, user.pw_name), starts=True)


def _forbidden(file: Path, user: str) -> str:
    return (
        f"{file}: can't be read by user {user}, which the service runs as: "
        f"sudo chgrp {user} {file} && sudo chmod 640 {file} (namei -l {file} shows its directories)"
    )


def _may_read(file: Path, user: pwd.struct_passwd) -> bool:
    if os.geteuid() != 0:
        return True
    done = subprocess.run(
        ["/usr/bin/test", "-r", str(file)],
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=os.getgrouplist(user.pw_name, user.pw_gid),
        cwd="/",
        check=False,
    )
    return done.returncode == 0


KINDS: Final = ("credential", "file")
_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,255}", re.ASCII)


def is_reference(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a table names a secret; any other table is one of dotted keys."""
    return isinstance(value, Mapping) and bool(value) and any(kind in value for kind in KINDS)


def read_secret(source: Source, path: KeyPath, reference: Mapping[str, Any]) -> str | None:
    """The secret that a table names; None after its problem was noted.

    Where the service isn't running (``fieldgate check``, on any machine) a credential is a warning: systemd
    gives it to the service only. So is a file that can't be read, where nobody can say what the service can.
    """
    for key in [key for key in reference if key not in KINDS]:
        source.error((*path, key), *unknown_key(key, KINDS))
        return None
    if len(reference) > 1:
        source.error(path, "names a credential and a file: keep one of them")
        return None
    ((kind, name),) = reference.items()
    if not isinstance(name, str) or not name:
        source.error((*path, kind), f'must be a string, in "quotes", not {quote(name)}')
        return None
    directory = source.path.absolute().parent if kind == "file" else os.environ.get(CREDENTIALS)
    if kind == "credential" and (_NAME.fullmatch(name) is None or name in (".", "..")):
        source.error((*path, kind), f"must be the name given to LoadCredential=, not {quote(name)}")
        return None
    add = f"add LoadCredential={name}:/path/of/its/file to the service"
    if directory is None:
        source.absent((*path, kind), f"systemd gives {quote(name)} to the running service only", add)
        return None
    remedy = (add,) if kind == "credential" else ()
    return _content(source, (*path, kind), Path(directory) / name, *remedy)


def resolve(source: Source, path: KeyPath, raw: dict[str, Any]) -> None:
    """Put the secret that a section's key names in the place of its name."""
    key = str(path[-1])
    given = raw.get(key)
    if is_reference(given):
        raw[key] = read_secret(source, path, given)
    elif isinstance(given, str):
        source.warn_of_readers(path, source.path)
    elif key in raw:
        source.error(path, 'must be a string, in "quotes", or { credential = "name" }')
        del raw[key]


def _content(source: Source, path: KeyPath, file: Path, *remedy: str) -> str | None:
    source.files[path] = named_file(file)
    try:
        with file.open("rb") as opened:
            content = opened.read(LONGEST_SECRET + 1)
    except (OSError, ValueError) as error:
        note_unreadable(source, path, file, error, *remedy)
        return None
    note_hidden(source, path, file)
    text = secret_text(content)
    if text is None:
        source.error(path, f"{file} must hold one secret as text, at most 64 KiB")
        return None
    source.warn_of_readers(path, file)
    return text
