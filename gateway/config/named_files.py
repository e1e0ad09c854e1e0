"""Files that a config names beside itself, passwords and certificates: whether the service can read them.

The service runs as a user of its own. On the mast ``check`` run as root tries for that user, as root may read
what the service can't; run as that user it tries directly. Elsewhere nobody can say.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from typing import Final

from cloud.toml_problems import KeyPath, current_user, unreadable
from gateway.config.file_watch import named_file
from gateway.config.source import Source

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
