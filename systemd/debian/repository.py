"""Makes a signed apt repository of the packages in dist/: flat, one for each release, with apt-ftparchive.

``make apt-repository KEY=FINGERPRINT`` calls it. What is in the repository stays there, so that a mast can go
back; the same packages make the same indexes, and a second call writes nothing. Exit codes: 0 made, 1 not.
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Final

from targets import RELEASES

_ROOT: Final = Path(__file__).resolve().parents[2]
_NAME: Final = re.compile(r"[^_]+_[^_]+\+deb\d+\.(?P<release>[a-z]+)_(?P<architecture>[a-z0-9]+)\.deb")
_FINGERPRINT: Final = re.compile(r"[0-9A-F]{40}")
_KEYRING: Final = "fieldgate.gpg"
_NO_KEY: Final = """\
{problem}: make apt-repository KEY=FINGERPRINT (40 hexadecimal digits). To make one and see its fingerprint:
    gpg --quick-generate-key 'fieldgate packages <you@example.org>' ed25519 sign never
    gpg --list-secret-keys --keyid-format none
Keep a copy of it apart (gpg --export-secret-keys): masts take what is signed with it, and nothing else."""


class RepositoryError(Exception):
    """The repository can't be made; the message has the remedy."""


def make(packages: Path, output: Path, key: str) -> list[Path]:
    """Add a directory's packages to the repository, sign it; the files written. Raises RepositoryError."""
    fingerprint = key.replace(" ", "").upper().removeprefix("0X")
    if _FINGERPRINT.fullmatch(fingerprint) is None:
        raise RepositoryError(
            _NO_KEY.format(problem="no key to sign with" if not key else f"{key} is no fingerprint")
        )
    _check_tools()
    if _run("gpg", "--batch", "--list-secret-keys", fingerprint, fails=True) is None:
        raise RepositoryError(_NO_KEY.format(problem=f"gpg has no secret key {fingerprint}"))
    written = _add(sorted(packages.glob("*.deb")), output)
    suites = [output / name for name in RELEASES if any((output / name).glob("*.deb"))]
    if not suites:
        raise RepositoryError(f"no packages in {packages}: make deb")
    keyring = output / _KEYRING
    written += _replace(keyring, _run("gpg", "--batch", "--export", fingerprint) or b"")
    for suite in suites:
        written += _index(suite)
        written += _sign(suite, keyring, fingerprint)
    return written


def _check_tools() -> None:
    for program, package in (("apt-ftparchive", "apt-utils"), ("gpg", "gnupg"), ("gpgv", "gpgv")):
        if shutil.which(program) is None:
            raise RepositoryError(f"no {program} here: sudo apt-get install {package}")


def _add(packages: Sequence[Path], output: Path) -> list[Path]:
    """Put packages into their release's folder."""
    places: list[tuple[Path, Path]] = []
    for package in packages:
        match = _NAME.fullmatch(package.name)
        if match is None or match["release"] not in RELEASES:
            raise RepositoryError(f"{package}: its version names no release ({', '.join(RELEASES)})")
        place = output / match["release"] / package.name
        if not place.exists():
            places.append((package, place))
        elif place.read_bytes() != package.read_bytes():
            # Masts may have it, and apt trusts the version's number.
            raise RepositoryError(f"{place} is another build of the same version: commit, and build again")
    for package, place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_suffix(".new")
        shutil.copyfile(package, new)
        new.replace(place)
    return [place for _, place in places]


def _index(suite: Path) -> list[Path]:
    """Write Packages, sorted, and compressed."""
    listed = (_run("apt-ftparchive", "packages", suite.name, directory=suite.parent) or b"").decode()
    # By name and version; how the directory is read is the file system's affair.
    stanzas = sorted(
        listed.strip().split("\n\n"), key=lambda each: re.findall("^Filename: .*", each, re.MULTILINE)
    )
    content = ("\n\n".join(stanzas) + "\n").encode()
    return [*_replace(suite / "Packages", content), *_replace(suite / "Packages.xz", lzma.compress(content))]


def _sign(suite: Path, keyring: Path, fingerprint: str) -> list[Path]:
    """Write InRelease, where what it says or who signs it has changed."""
    architectures = {
        match["architecture"] for path in suite.glob("*.deb") if (match := _NAME.fullmatch(path.name))
    }
    about = {
        "Origin": "fieldgate", "Label": "fieldgate", "Suite": suite.name, "Codename": suite.name,
        "Architectures": " ".join(sorted(architectures - {"all"})),
    }  # fmt: skip
    options = [
        word for key, value in about.items() for word in ("-o", f"APT::FTPArchive::Release::{key}={value}")
    ]
    signed = suite / "InRelease"
    with tempfile.TemporaryDirectory() as top:
        # Of the indexes alone: a Release that lists itself is another one each time.
        for name in ("Packages", "Packages.xz"):
            shutil.copy(suite / name, top)
        release = (_run("apt-ftparchive", *options, "release", ".", directory=Path(top)) or b"").decode()
    when = format_datetime(datetime.fromtimestamp(_newest(suite), UTC), usegmt=True)
    text = re.sub("^Date: .*", f"Date: {when}", release, flags=re.MULTILINE).encode()
    verify = ("gpgv", "--quiet", "--keyring", str(keyring.resolve()), "--output", "-", str(signed.resolve()))
    if signed.exists() and _run(*verify, fails=True) == text:
        return []
    sign = ("gpg", "--batch", "--local-user", fingerprint, "--digest-algo", "SHA512", "--clearsign")
    return _replace(signed, _run(*sign, input=text) or b"")


def _newest(suite: Path) -> int:
    """When the newest package was made, seconds since 1970, as its archive (ar) has it.

    The same packages make the same Release so; and it is never in the future of a mast whose clock is right.
    """
    times: list[int] = []
    for path in suite.glob("*.deb"):
        with path.open("rb") as file:
            times.append(int(file.read(36)[24:36]))
    return max(times)


def _replace(path: Path, content: bytes) -> list[Path]:
    """Write a file at once, where it changes."""
    if path.exists() and path.read_bytes() == content:
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)
    return [path]


def _run(*words: str, directory: Path | None = None, input: bytes = b"", fails: bool = False) -> bytes | None:
    """What a program prints; None where it fails and ``fails`` allows that. Raises RepositoryError."""
    done = subprocess.run(
        words,
        cwd=directory,
        input=input,
        capture_output=True,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    if done.returncode == 0:
        return done.stdout
    if fails:
        return None
    raise RepositoryError(f"{' '.join(words[:2])}: {done.stderr.decode().strip()}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the repository; the exit code."""
    parser = argparse.ArgumentParser(prog="repository.py", description="Make a signed apt repository.")
    parser.add_argument("--packages", type=Path, default=_ROOT / "dist", metavar="DIR", help="default: dist")
    parser.add_argument(
        "--output", type=Path, default=_ROOT / "dist/apt", metavar="DIR", help="default: dist/apt"
    )
    parser.add_argument(
        "--key", default=os.environ.get("KEY", ""), metavar="FINGERPRINT", help="default: $KEY"
    )
    options = parser.parse_args(arguments)
    try:
        written = make(options.packages, options.output, options.key)
    except RepositoryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    for path in written:
        sys.stdout.write(f"{path}\n")
    sys.stdout.write(f"{options.output}: {'signed' if written else 'unchanged'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
