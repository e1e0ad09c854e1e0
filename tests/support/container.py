"""An image's root file system, made by what a Containerfile says, without a container engine; needs root.

``FROM debian:SUITE-slim`` is debootstrap's smallest system; each step runs in mount and process name spaces
of its own. The network is the host's.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOUNT: Final = re.compile(r"--mount=type=bind,source=(\S+),target=(\S+)\s+")


class Image:
    """The file system in ``root``, which is made, and how its programs are run."""

    def __init__(self, containerfile: Path, context: Path, root: Path) -> None:
        self.root, self._context = root, context
        self._user, self._folder = "0:0", "/"
        self._environment = {"PATH": _PATH, "HOME": "/", "LANG": "C.UTF-8"}
        self._entrypoint: list[str] = []
        text = re.sub(r"^#.*\n", "", containerfile.read_text(), flags=re.MULTILINE).replace("\\\n", "")
        for line in filter(None, text.splitlines()):
            self._do(*line.split(maxsplit=1))

    def command(self, *arguments: str, environment: Mapping[str, str] | None = None) -> list[str]:
        """The host's command that runs the image with these arguments."""
        return self._inside([*self._entrypoint, *arguments], environment or {})

    def _do(self, word: str, rest: str) -> None:
        match word:
            case "FROM":
                _bootstrap(rest.removeprefix("debian:").removesuffix("-slim"), self.root)
            case "RUN":
                mounts = (
                    f"mount --bind {shlex.quote(str(self._context / source))} {self.root}{target}; "
                    for source, target in _MOUNT.findall(rest)
                )
                _run(self._inside(["sh", "-c", _MOUNT.sub("", rest)], {}, "".join(mounts)))
            case "COPY":
                source, place = rest.split()
                target = self.root / place[1:]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self._context / source, target)
            case "ENV":
                self._environment |= dict(each.split("=", 1) for each in shlex.split(rest))
            case "WORKDIR":
                self._folder = rest
            case "USER":
                self._user = rest
            case "ENTRYPOINT":
                self._entrypoint = json.loads(rest)
            case _:
                assert word == "CMD", f"not known here: {word}"

    def _inside(self, words: list[str], environment: Mapping[str, str], mounts: str = "") -> list[str]:
        root, folder = shlex.quote(str(self.root)), shlex.quote(self._folder)
        script = (
            f"mount -t proc proc {root}/proc; mount --rbind /dev {root}/dev; {mounts}"
            f'exec chroot --userspec={self._user} {root} env -i -C {folder} "$@"'
        )
        variables = [f"{name}={value}" for name, value in (self._environment | dict(environment)).items()]
        spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return [*spaces, "sh", "-ec", script, "sh", *variables, *words]


def _bootstrap(suite: str, root: Path) -> None:
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    mirror = next(line.split()[1] for line in targets if line.startswith("Debian "))
    _run(["unshare", "--mount", "debootstrap", "--variant=minbase", suite, str(root), mirror])
    # How this machine reaches it.
    for file in (Path("/etc/resolv.conf"), Path("/etc/hosts"), *Path("/etc/apt/apt.conf.d").glob("*proxy*")):
        if file.exists():
            shutil.copy(file, root / str(file)[1:])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
