"""The package's files, staged in an empty directory: our code, the wheels, units, documents; each by a rule.

A file in systemd/ that no rule places is an error, so that nothing is left out in silence.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from products import GATEWAY, Product
from targets import Target

_UNITS: Final = r"[^/]+\.(?:service|socket|timer|path|target|mount)"
_PLACES: Final = tuple(
    (re.compile(pattern), place)
    for pattern, place in (
        (rf"({_UNITS})", r"usr/lib/systemd/system/\1"),
        (rf"({_UNITS}\.d/[^/]+\.conf)", r"usr/lib/systemd/system/\1"),
        (r"((?:system|journald|timesyncd|networkd)\.conf\.d/[^/]+\.conf)", r"usr/lib/systemd/\1"),
        (r"system/(.+)", r"usr/lib/systemd/system/\1"),
        (r"([^/]+)\.sysusers", r"usr/lib/sysusers.d/\1.conf"),
        (r"([^/]+)\.tmpfiles", r"usr/lib/tmpfiles.d/\1.conf"),
        (r"([^/]+)\.modules", r"usr/lib/modules-load.d/\1.conf"),
        (r"([^/]+)\.rules", r"usr/lib/udev/rules.d/\1.rules"),
        # systemd's trigger compiles it (journalctl --update-catalog).
        (r"([^/]+)\.catalog", r"usr/lib/systemd/catalog/\1.catalog"),
        # Chosen by a person who copies them: a hardware watchdog, a reboot after hours without uplink.
        (r"(?:optional|examples)/(.+)", str(GATEWAY.documents / "examples/systemd") + r"/\1"),
        # Programs that only units start.
        (r"(?:bin|libexec)/([^/]+)", r"usr/libexec/fieldgate/\1"),
    )
)
_LEFT_OUT: Final = re.compile(
    r"zstandard/(?:_cffi\.|backend_cffi\.).+|confluent_kafka/kafkatest/.+|pyspark/(?:examples|data)/.+|.+\.cmd"
    r"|adafruit_blinka/.+/libgpiod_pulsein(?:64)?"
)
"""What nobody can use: zstandard's second backend wants cffi, Confluent's test programs a test; Python times
a DHT11's line, not Blinka's programs for ARM."""
_ELF: Final = b"\x7fELF"
_PROGRAM: Final = re.compile(r"pyspark/s?bin/.+")
_LAUNCHER: Final = '''\
#!/usr/bin/python3 -I
"""Isolated: neither the user's packages, PYTHON… variables nor the working directory are looked at."""

import os
import sys

prefix = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# Ours first, in front of Debian's; drivers that others write come after both.
sys.path.insert(0, os.path.join(prefix, "lib/{name}"))
sys.path.append(os.path.join(prefix, "local/lib/{name}"))
{children}
from gateway.cli import main

sys.exit(main())
'''


class StageError(Exception):
    """A file has no place, or two want the same one."""


def sources(root: Path) -> list[PurePosixPath]:
    """The files of the working tree that git tracks or would take, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    return sorted(PurePosixPath(each) for each in listed if each and (root / each).is_file())


def place(path: PurePosixPath) -> PurePosixPath:
    """Where a file of systemd/ is installed, from its path below there. Raises StageError without a rule."""
    for pattern, target in _PLACES:
        if match := pattern.fullmatch(str(path)):
            return PurePosixPath(match.expand(target))
    raise StageError(f"systemd/{path}: no rule in systemd/debian/tree.py for where it is installed")


class Stage:
    """The tree below ``top``, which must be empty; what is written twice must be the same."""

    def __init__(self, top: Path) -> None:
        self.top = top

    def write(self, path: PurePosixPath, content: bytes, mode: int = 0o644) -> None:
        """Write a file; directories are 0755. Raises StageError where another content is there already."""
        target = self.top / path
        if target.exists():
            if target.read_bytes() != content:
                raise StageError(f"{path} comes from two sources that differ")
            return
        for parent in reversed(target.relative_to(self.top).parents):
            (self.top / parent).mkdir(exist_ok=True)
            (self.top / parent).chmod(0o755)
        target.write_bytes(content)
        target.chmod(mode)

    def compressed(self, path: PurePosixPath, text: str) -> None:
        """Write a text as PATH.gz, without name and time."""
        self.write(path.with_name(f"{path.name}.gz"), gzip.compress(text.encode(), 9, mtime=0))

    def files(self) -> Iterator[PurePosixPath]:
        """All files, sorted."""
        for path in sorted(self.top.rglob("*")):
            if path.is_file() and "DEBIAN" not in path.relative_to(self.top).parts:
                yield PurePosixPath(path.relative_to(self.top))


def stage(stage: Stage, root: Path, product: Product, wheels: Iterable[Path], jars: Path) -> None:
    """Put everything into the tree that isn't made up here: code, wheels, jars, units, documents."""
    for path in sources(root):
        content = (root / path).read_bytes()
        first, rest = path.parts[0], PurePosixPath(*path.parts[1:])
        if first in product.packages:
            stage.write(product.library / path, content)
        elif first == "systemd" and (unit := product.unit(rest)) is not None:
            target = place(unit)
            stage.write(target, content, 0o755 if "libexec" in target.parts else 0o644)
        elif first == "docs":
            stage.write(product.documents / rest, content)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = "".join(
        f"{key}: {value}\n"
        for key, value in (
            ("Metadata-Version", "2.4"),
            ("Name", project["name"]),
            ("Version", project["version"]),
            ("Summary", project["description"]),
            ("License-Expression", project["license"]),
            *(("License-File", each) for each in project["license-files"]),
            ("Requires-Python", project["requires-python"]),
            *(("Requires-Dist", each) for each in project["dependencies"]),
        )
    )
    about = product.library / f"{project['name']}-{project['version']}.dist-info"
    stage.write(about / "METADATA", metadata.encode())
    stage.write(about / "INSTALLER", b"dpkg\n")
    for name in project["license-files"]:
        stage.write(about / "licenses" / name, (root / name).read_bytes())
    for wheel in wheels:
        unpack(stage, product.library, wheel)
    children = ""
    if "spark" in product.extras:
        # The jobs are a process of their own, and Spark's workers others.
        children = 'os.environ["PYTHONPATH"] = sys.path[0]\n'
        for kind in ("spark", "s3"):
            if not (found := sorted(jars.glob(f"{kind}/*.jar"))):
                raise StageError(f"no jars in {jars / kind}: run make jars jars-s3")
            for jar in found:
                stage.write(product.library / ".jars" / kind / jar.name, jar.read_bytes())
    launcher = _LAUNCHER.format(name=product.name, children=children)
    stage.write(PurePosixPath("usr/bin") / product.name, launcher.encode(), 0o755)
    stage.compressed(product.documents / "changelog", (root / "CHANGELOG.md").read_text(encoding="utf-8"))


def strip(stage: Stage, target: Target) -> None:
    """Take symbols that only a debugger reads out of the libraries: wheels of some projects are mostly that.

    Raises StageError where the target's binutils aren't installed.
    """
    named = (stage.top / path for path in stage.files() if ".so" in path.suffixes)
    libraries = [path for path in named if path.read_bytes().startswith(_ELF)]
    try:
        subprocess.run([target.strip, "--strip-unneeded", *map(str, libraries)], check=True)
    except FileNotFoundError as error:
        package = f"binutils-{target.strip.removesuffix('-strip').replace('_', '-')}"
        raise StageError(f"there is no {target.strip}: sudo apt-get install {package}") from error


def unpack(stage: Stage, library: PurePosixPath, wheel: Path) -> None:
    """Unpack a wheel into the library, without what nothing uses there: scripts, headers, ``_LEFT_OUT``."""
    with zipfile.ZipFile(wheel) as file:
        for name in sorted(file.namelist()):
            path = PurePosixPath(name)
            if name.endswith("/") or ".." in path.parts or path.is_absolute():
                continue
            if path.parts[0].endswith(".data"):
                if path.parts[1] not in ("purelib", "platlib"):
                    continue
                path = PurePosixPath(*path.parts[2:])
            if _LEFT_OUT.fullmatch(str(path)):
                continue
            program = _PROGRAM.fullmatch(str(path)) is not None
            stage.write(library / path, file.read(name), 0o755 if program else 0o644)
