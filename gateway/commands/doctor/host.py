"""A machine as far as its files tell: model, kernel, devices and who may use them."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gateway.system.host import installed_version


@dataclass(frozen=True, slots=True)
class Owners:
    """Whose a file is, and its mode."""

    uid: int
    gid: int
    mode: int


def _owners(path: Path) -> Owners:
    facts = path.stat()
    return Owners(facts.st_uid, facts.st_gid, facts.st_mode)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


@dataclass(frozen=True, slots=True)
class Host:
    """A machine's files under ``root``, seen by one user.

    ``installed`` gives a Python package's version; ``owners`` a file's, raising OSError as stat does.
    """

    root: Path = Path("/")
    uid: int = field(default_factory=os.geteuid)
    gids: frozenset[int] = field(default_factory=lambda: frozenset((os.getegid(), *os.getgroups())))
    user: str = field(default_factory=_user)
    installed: Callable[[str], str | None] = installed_version
    owners: Callable[[Path], Owners] = _owners

    def path(self, name: str) -> Path:
        """A file by its absolute name."""
        return self.root / name.removeprefix("/")

    def text(self, name: str) -> str | None:
        """What stands in a small file, None where it can't be read; device trees end strings with NUL."""
        try:
            return self.path(name).read_bytes().decode("utf-8", "replace").strip("\0\n ")
        except OSError:
            return None

    def names(self, pattern: str) -> list[str]:
        """Absolute names of the files that match, sorted."""
        found = self.root.glob(pattern.removeprefix("/"))
        return sorted(f"/{each.relative_to(self.root)}" for each in found)

    @property
    def model(self) -> str | None:
        """The board by its device tree: ``Raspberry Pi 4 Model B Rev 1.4``; None on a PC."""
        return self.text("/proc/device-tree/model")

    @property
    def is_pi(self) -> bool:
        """Whether it is a Raspberry Pi."""
        return self.model is not None and "Raspberry Pi" in (self.model or "")

    @property
    def is_pi_5(self) -> bool:
        """Whether its pins hang on the RP1 chip (Pi 5, Compute Module 5, Pi 500)."""
        return re.search(r"Raspberry Pi (Compute Module )?5", self.model or "") is not None

    @property
    def kernel(self) -> str:
        """The kernel's release."""
        return self.text("/proc/sys/kernel/osrelease") or "unknown"

    @property
    def kernel_version(self) -> tuple[int, int]:
        """Its first two figures; (0, 0) where it has none."""
        found = re.match(r"(\d+)\.(\d+)", self.kernel)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def access(self, name: str) -> Literal["ok", "missing", "denied"]:
        """Whether the user may read and write a file, by its owner, group and mode."""
        try:
            facts = self.owners(self.path(name))
        except FileNotFoundError:
            return "missing"
        except OSError:
            return "denied"
        if self.uid == 0:
            return "ok"
        if facts.uid == self.uid:
            wanted = stat.S_IRUSR | stat.S_IWUSR
        elif facts.gid in self.gids:
            wanted = stat.S_IRGRP | stat.S_IWGRP
        else:
            wanted = stat.S_IROTH | stat.S_IWOTH
        return "ok" if facts.mode & wanted == wanted else "denied"

    def group_of(self, name: str) -> str | None:
        """The group that may read and write a file; None where no group may."""
        try:
            facts = self.owners(self.path(name))
        except OSError:
            return None
        wanted = stat.S_IRGRP | stat.S_IWGRP
        if facts.mode & wanted != wanted:
            return None
        for line in (self.text("/etc/group") or "").splitlines():
            group = line.split(":")
            if len(group) > 2 and group[2] == str(facts.gid):
                return group[0]
        return str(facts.gid)
