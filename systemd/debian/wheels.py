"""The wheels of the edge install for one target: the lock's versions and hashes; a compiler for armhf alone.

What is needed follows from pyproject.toml and from the wheels' own metadata, with the markers of the target
and not of the machine that builds; pip fetches each round by exact version and hash.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path
from typing import Final

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from cross import RECIPES, compiled
from targets import Target

FROM_DEBIAN: Final = frozenset({"systemd-python", "rpi-lgpio", "lgpio", "rpi-gpio"})
"""C extensions without wheels: Debian's python3-systemd, python3-rpi-lgpio and python3-rpi.gpio have them."""

BUILT: Final = frozenset({"pyspark"})
"""Python and jars alone, published as sources: pip makes the wheel, which is every target's."""

NOT_NEEDED: Final = frozenset({"markdown-it-py", "mdurl", "pip", "pygments", "sysv-ipc"})
"""What a library requires for what we don't use of it: sqlite-utils' command that installs plug-ins; Markdown
and coloured source in rich, a third of all the Python that a Pi would compile at installation; Blinka's
programs for ARM that time pulses."""

_PINNED: Final = re.compile(r"^([a-z0-9-]+)==([^ ;\\]+) *(?:; *(.*?))? *\\?$")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class NoWheelError(Exception):
    """A wheel is missing, for the target or in the lock."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One version of the lock, with the SHA-256 of all its files, and where it holds."""

    name: str
    version: str
    marker: str
    hashes: frozenset[str]

    def holds(self, target: Target) -> bool:
        """Whether it is this one that the target takes."""
        return not self.marker or Marker(self.marker).evaluate(target.markers)


def pins(lock: str) -> list[Pin]:
    """Read a lock as ``make lock`` writes it."""
    found: list[Pin] = []
    for line in lock.splitlines():
        if head := _PINNED.match(line):
            found.append(Pin(head[1], head[2], head[3] or "", frozenset()))
        elif digest := _HASH.search(line):
            last = found.pop()
            found.append(Pin(last.name, last.version, last.marker, last.hashes | {digest[1]}))
    return found


def fetch(
    target: Target, pyproject: Path, lock: Path, cache: Path, extras: Sequence[str] = ("pi",)
) -> list[Path]:
    """All wheels for a target, sorted by name; those that ``cache`` lacks are downloaded.

    Raises NoWheelError where the lock has no pin that holds, or no wheel of it runs on the target.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    roots = [*project["dependencies"], *(name for extra in extras for name in optional[extra])]
    locked: Mapping[str, Pin] = {pin.name: pin for pin in pins(lock.read_text()) if pin.holds(target)}
    cache.mkdir(parents=True, exist_ok=True)
    have: dict[str, Path] = {}
    wanted = set(_names(roots, target))
    while missing := sorted(wanted - have.keys()):
        unknown = [name for name in missing if name not in locked]
        if unknown:
            raise NoWheelError(
                f"{lock.name} has no version of {', '.join(unknown)} for {target.name}: run make lock"
            )
        have |= _round([locked[name] for name in missing], target, cache)
        for name in missing:
            wanted |= set(_names(_requirements(have[name]), target))
    return [have[name] for name in sorted(have)]


def _names(requirements: Iterable[str], target: Target) -> Iterator[str]:
    for each in map(Requirement, requirements):
        name = canonicalize_name(each.name)
        if name not in FROM_DEBIAN | NOT_NEEDED and (
            each.marker is None or each.marker.evaluate(target.markers)
        ):
            yield name


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        [metadata] = [name for name in file.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        return list(BytesParser().parsebytes(file.read(metadata)).get_all("Requires-Dist", []))


def _round(wanted: list[Pin], target: Target, cache: Path) -> dict[str, Path]:
    have = _cached(wanted, cache) | {
        pin.name: _built(pin, cache.parent) for pin in wanted if pin.name in BUILT
    }
    if target.architecture == "armhf" and (nowhere := [pin for pin in wanted if pin.name in RECIPES]):
        have |= _compiled(nowhere, target, cache)
    missing = [pin for pin in wanted if pin.name not in have]
    if missing:
        _download(missing, target, cache)
        have |= _cached(missing, cache)
    for pin in wanted:
        if pin.name not in have:
            raise NoWheelError(f"{pin.name} {pin.version} was downloaded, but its hash isn't the lock's")
    return have


def _built(pin: Pin, cache: Path) -> Path:
    """The wheel made of the sources that the lock has the hash of; built at the first call."""
    folder = cache / "built" / f"{pin.name}-{pin.version}"
    if not (found := sorted(folder.glob("*.whl"))):
        _pip("wheel", [pin], "--no-binary", pin.name, "--wheel-dir", str(folder), what=f"built of {pin.name}")
        found = sorted(folder.glob("*.whl"))
    return found[0]


def _compiled(wanted: list[Pin], target: Target, cache: Path) -> dict[str, Path]:
    """Wheels made of the one for arm64 and of the sources, both by the lock's hashes."""
    arm64 = Target(target.release, "arm64")
    published = _round(wanted, arm64, cache.parent / arm64.name)
    sources = cache.parent / "sources"
    have = _archives(wanted, sources)
    if missing := [pin for pin in wanted if pin.name not in have]:
        names = ",".join(pin.name for pin in missing)
        _pip("download", missing, "--no-binary", names, "--dest", str(sources), what=f"built of {names}")
        have |= _archives(missing, sources)
    for pin in wanted:
        if pin.name not in have:
            raise NoWheelError(f"{pin.name} {pin.version} has no sources with a hash of the lock's")
    return {
        pin.name: compiled(pin.name, published[pin.name], have[pin.name], target, cache) for pin in wanted
    }


def _archives(wanted: list[Pin], folder: Path) -> dict[str, Path]:
    """Sources in a folder whose hash is the lock's."""
    digests = {
        hashlib.sha256(path.read_bytes()).hexdigest(): path for path in sorted(folder.glob("*.tar.gz"))
    }
    return {pin.name: path for pin in wanted for digest, path in digests.items() if digest in pin.hashes}


def _cached(wanted: list[Pin], cache: Path) -> dict[str, Path]:
    """Wheels in the cache whose hash is the lock's."""
    by_version = {(pin.name, pin.version): pin for pin in wanted}
    found: dict[str, Path] = {}
    for path in sorted(cache.glob("*.whl")):
        name, version, _, _ = parse_wheel_filename(path.name)
        pin = by_version.get((name, str(version)))
        if pin is not None and hashlib.sha256(path.read_bytes()).hexdigest() in pin.hashes:
            found[name] = path
    return found


def _download(wanted: list[Pin], target: Target, cache: Path) -> None:
    platforms = [word for tag in target.platforms for word in ("--platform", tag)]
    _pip(
        "download", wanted, "--only-binary", ":all:", "--implementation", "cp",
        "--python-version", target.release.python, *platforms, "--dest", str(cache),
        what=f"for {target.name} (Python {target.release.python}, {target.machine})",
    )  # fmt: skip


def _pip(command: str, wanted: list[Pin], *options: str, what: str) -> None:
    lines = [
        " ".join([f"{pin.name}=={pin.version}", *(f"--hash=sha256:{each}" for each in sorted(pin.hashes))])
        for pin in wanted
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write("\n".join(lines) + "\n")
        requirements.flush()
        done = subprocess.run(
            [
                sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check",
                "--no-deps", "--require-hashes", *options, "-r", requirements.name,
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        names = ", ".join(f"{pin.name} {pin.version}" for pin in wanted)
        raise NoWheelError(
            f"no wheel {what}, or no network; wanted: {names}\n{done.stderr.strip()}\n"
            "Choose a version that has one and run make lock, or take the package from Debian (FROM_DEBIAN)."
        )
