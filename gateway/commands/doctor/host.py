"""Reads a machine by its files: model, kernel, devices and who may use them."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cloud.toml_problems import current_user
from gateway.system.host import installed_version

SERVICE: Final = "fieldgate"
"""The user that the Debian package's unit runs the daemon as."""


def daemon_user() -> str:
    """Returns whose rights count: the service's where root asks, for root may use everything."""
    if os.geteuid() == 0:
        with suppress(KeyError):
            return pwd.getpwnam(SERVICE).pw_name
    return current_user()


def may_use(path: Path, user: str) -> bool:
    """Returns whether a user may read and write a file; False where there is none."""
    if user == current_user():
        return os.access(path, os.R_OK | os.W_OK, effective_ids=True)
    try:
        facts, account = path.stat(), pwd.getpwnam(user)
    except (OSError, KeyError):
        return False
    if facts.st_uid == account.pw_uid:
        shift = 6
    else:
        shift = 3 if facts.st_gid in os.getgrouplist(user, account.pw_gid) else 0
    return facts.st_mode >> shift & 0o6 == 0o6


def group_of(path: Path) -> str | None:
    """Returns the group that may read and write a file; None where only root may. Raises OSError."""
    facts = path.stat()
    wanted = stat.S_IRGRP | stat.S_IWGRP
    if facts.st_mode & wanted != wanted or facts.st_gid == 0:
        return None
    try:
        return path.group()
    except KeyError:
        return str(facts.st_gid)


@dataclass(frozen=True, slots=True)
class Host:
    """A machine's files under ``root``, and the user whose daemon will use them."""

    root: Path = Path("/")
    user: str = field(default_factory=daemon_user)
    installed: Callable[[str], str | None] = installed_version
    may_use: Callable[[Path, str], bool] = may_use
    group_of: Callable[[Path], str | None] = group_of

    def path(self, name: str) -> Path:
        """Returns a file by its absolute name."""
        return self.root / name.removeprefix("/")

    def text(self, name: str) -> str | None:
        """Returns the content of a small file, None for none; device trees end strings with NUL."""
        try:
            return self.path(name).read_bytes().decode("utf-8", "replace").strip("\0\n ")
        except OSError:
            return None

    def names(self, pattern: str) -> list[str]:
        """Returns the absolute names of the files that match, sorted."""
        found = self.root.glob(pattern.removeprefix("/"))
        return sorted(f"/{each.relative_to(self.root)}" for each in found)

    @property
    def model(self) -> str | None:
        """Returns the board by its device tree: ``Raspberry Pi 4 Model B Rev 1.4``; None on a PC."""
        return self.text("/proc/device-tree/model")

    @property
    def is_pi(self) -> bool:
        """Returns True for a Raspberry Pi."""
        return "Raspberry Pi" in (self.model or "")

    @property
    def is_pi_5(self) -> bool:
        """Returns True if its pins are on the RP1 chip (Pi 5, Compute Module 5, Pi 500)."""
        return re.search(r"Raspberry Pi (Compute Module )?5", self.model or "") is not None

    @property
    def kernel(self) -> str:
        """Returns the kernel's release."""
        return self.text("/proc/sys/kernel/osrelease") or "unknown"

    @property
    def kernel_version(self) -> tuple[int, int]:
        """Returns the first two figures of the release; (0, 0) for none."""
        found = re.match(r"(\d+)\.(\d+)", self.kernel)
        return (int(found[1]), int(found[2])) if found else (0, 0)
