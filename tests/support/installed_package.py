"""The unpacked Debian package as the only fieldgate of a machine: Debian's own files, without the clone.

Mounts of a user namespace make it, so it needs no rights, and it is gone with the command that ran in it.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_BUILD: Final = r"""
set -eu
root=$1 tree=$2 files=$3
shift 3
mount -t tmpfs tmpfs "$root"
cd "$root"
mkdir usr dev etc run srv sys tmp proc .proc
mount -t overlay overlay -o "lowerdir=$tree/usr:/usr" usr
ln -s usr/bin usr/sbin usr/lib usr/lib64 .
mount --rbind /dev dev
mount --rbind /proc .proc
for each in self thread-self sys meminfo stat uptime loadavg modules mounts cpuinfo; do
    ln -s "/.proc/$each" proc
done
cp /etc/passwd /etc/group /etc/os-release etc
cp -r "$files/." .
exec chroot . /usr/bin/env -i PATH=/usr/bin:/usr/sbin HOME=/root LANG=C.UTF-8 "$@"
"""


@dataclass(frozen=True)
class InstalledPackage:
    """A package unpacked at ``tree``, on a machine that has ``files`` besides, by their absolute names."""

    tree: Path
    workplace: Path
    files: dict[str, str] = field(default_factory=dict)

    def run(self, *command: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command there, as its root; the caller judges how it ended."""
        root, files = self.workplace / "root", self.workplace / "files"
        root.mkdir(exist_ok=True)
        files.mkdir(exist_ok=True)
        for name, text in self.files.items():
            path = files / name.removeprefix("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return subprocess.run(
            ["unshare", "-rm", "sh", "-c", _BUILD, "sh", str(root), str(self.tree), str(files), *command],
            capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
