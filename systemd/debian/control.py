"""What dpkg reads: version, control, checksums, maintainer scripts, and the copyright of what is inside."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesParser
from pathlib import Path, PurePosixPath
from typing import Final

from cross import libraries
from products import Product
from targets import Target
from tree import Stage

_SCRIPTS: Final = ("preinst", "postinst", "prerm", "postrm")


def version(root: Path, project: str, release: int, codename: str, epoch: int) -> str:
    """The package's version: the project's at its tag, else a pre-release of it, named by date and commit.

    The Debian release comes last, so that packages for two releases differ in name and rise with the release.
    """
    commit = _git(root, "rev-parse", "--short=7", "HEAD") or "uncommitted"
    clean = not _git(root, "status", "--porcelain")
    own = f"+deb{release}.{codename}"
    if clean and f"v{project}" in _git(root, "tag", "--points-at", "HEAD").split():
        return project + own
    when = datetime.fromtimestamp(epoch, UTC).strftime("%Y%m%d%H%M%S")
    return f"{project}~dev{when}.{commit}{'' if clean else '.changed'}{own}"


def commit_time(root: Path) -> int | None:
    """When the tree was committed, seconds since 1970; None without a commit."""
    committed = _git(root, "log", "-1", "--format=%ct")
    return int(committed) if committed else None


def write(stage: Stage, product: Product, target: Target, full_version: str) -> None:
    """Write DEBIAN/ for the files that are staged."""
    directory = stage.top / "DEBIAN"
    directory.mkdir()
    directory.chmod(0o755)
    files = list(stage.files())
    size_kib = sum(-(-(stage.top / path).stat().st_size // 1024) for path in files)
    _write(directory / "control", control(product, target, full_version, size_kib))
    sums = (f"{hashlib.md5((stage.top / path).read_bytes()).hexdigest()}  {path}\n" for path in files)  # noqa: S324
    _write(directory / "md5sums", "".join(sums))
    words = {
        "@SYSUSERS@": _names(files, "usr/lib/sysusers.d"),
        "@TMPFILES@": _names(files, "usr/lib/tmpfiles.d"),
        "@UNITS@": _names(files, "usr/lib/systemd/system"),
    }
    for name in _SCRIPTS:
        source = Path(__file__).parent / product.scripts / name
        if not source.exists():
            continue
        text = source.read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(word, value)
        _write(directory / name, text, 0o755)


def control(product: Product, target: Target, full_version: str, size_kib: int) -> str:
    """The control file. Python is pinned to one minor version: the C extensions inside are for that one."""
    python = target.release.python
    major, minor = python.split(".")
    depends = product.depends
    if target.architecture == "armhf":
        # What wheels of others bring with them, ours take from Debian.
        depends = ", ".join([depends, *libraries(target)])
    return "".join(
        f"{key}: {value}\n"
        for key, value in (
            ("Package", product.name),
            ("Version", full_version),
            ("Architecture", target.architecture),
            ("Maintainer", "fieldgate <fieldgate@fieldgate.invalid>"),
            ("Installed-Size", size_kib),
            ("Depends", f"python3 (>= {python}~), python3 (<< {major}.{int(minor) + 1}~), {depends}"),
            ("Recommends", product.recommends),
            ("Suggests", product.suggests),
            ("Section", "science"),
            ("Priority", "optional"),
            ("Description", product.description.format(release=target.release.name, python=python)),
        )
        if value
    )


def copyright_of(product: Product, wheels: Iterable[Path]) -> str:
    """Licences: our own, and of each package inside as its metadata has it; the texts are beside them."""
    lines = [
        "fieldgate: Copyright 2026 the authors of fieldgate. Licensed under the Apache License, Version 2.0;",
        "its text is in /usr/share/common-licenses/Apache-2.0.",
        "",
        f"Inside are these Python packages, whose licence texts are in /{product.library}/*.dist-info:",
        "",
    ]
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as file:
            [name] = [each for each in file.namelist() if each.endswith(".dist-info/METADATA")]
            metadata = BytesParser().parsebytes(file.read(name))
        lines.append(f"{metadata['Name']} {metadata['Version']}: {_licence(metadata)}")
    return "\n".join(lines) + "\n"


def _licence(metadata: Message) -> str:
    prefix = "License :: "
    classified = [
        each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier", []) if each.startswith(prefix)
    ]
    named = metadata["License-Expression"] or ", ".join(classified) or metadata["License"] or "see its files"
    return str(named).splitlines()[0]


def _names(files: Iterable[PurePosixPath], directory: str) -> str:
    return " ".join(path.name for path in files if str(path.parent) == directory)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _git(root: Path, *words: str) -> str:
    """What git prints; nothing where it fails, as in a tree without a commit."""
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=False
    ).stdout.strip()
