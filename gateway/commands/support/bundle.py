"""Writes a bundle: a .tar.gz with one file for each part, and a manifest of what is in it and what is not."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.commands.support.redaction import Redactor

MAX_PART_BYTES: Final = 2 << 20
MAX_BYTES: Final = 5 << 20
"""Of all parts together, before compression."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part by its name without ending: a JSON value, or lines of a log, the newest last.

    ``missing`` is the reason why it can't be read.
    """

    name: str
    content: Any = None
    lines: tuple[Any, ...] | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A file of the bundle; ``note`` states what was cut off."""

    name: str
    content: bytes
    note: str | None = None


def files_of(parts: Iterable[Part], redactor: Redactor, about: dict[str, Any]) -> list[File]:
    """The files of a bundle, as they may be shown; the manifest first. ``about`` begins the manifest."""
    files: list[File] = []
    missing: list[dict[str, str]] = []
    left = MAX_BYTES
    for part in parts:
        if part.missing is not None:
            missing.append({"part": part.name, "why": redactor.text(part.missing)})
            continue
        if part.lines is None:
            file = File(f"{part.name}.json", _encoded(redactor.value(part.content)))
        else:
            file = _lines_file(part.name, part.lines, redactor)
        if len(file.content) > min(left, MAX_PART_BYTES):
            size = f"{len(file.content)} bytes; a part may have {MAX_PART_BYTES}, the bundle {MAX_BYTES}"
            missing.append({"part": part.name, "why": size})
            continue
        left -= len(file.content)
        files.append(file)
    manifest = {**redactor.value(about), "files": [_entry(file) for file in files], "missing": missing}
    return [File("manifest.json", _encoded(manifest)), *files]


def _entry(file: File) -> dict[str, Any]:
    digest = hashlib.sha256(file.content).hexdigest()
    note = {"note": file.note} if file.note else {}
    return {"name": file.name, "bytes": len(file.content), "sha256": digest, **note}


def _lines_file(name: str, lines: Sequence[Any], redactor: Redactor) -> File:
    """Keeps the newest lines that fit."""
    kept: list[bytes] = []
    size = 0
    for line in reversed(lines):
        encoded = json.dumps(redactor.value(line), ensure_ascii=False).encode(errors="replace") + b"\n"
        size += len(encoded)
        if size > MAX_PART_BYTES:
            break
        kept.append(encoded)
    note = f"the newest {len(kept)} of {len(lines)} lines" if len(kept) < len(lines) else None
    return File(f"{name}.jsonl", b"".join(reversed(kept)), note)


def _encoded(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, indent=1, default=str)
    return text.encode(errors="replace") + b"\n"


def archive(files: Iterable[File], folder: str, time_s: int) -> bytes:
    """The files as a .tar.gz, in one folder; ``time_s`` is their time, in seconds since the epoch."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=time_s) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for file in files:
            entry = tarfile.TarInfo(f"{folder}/{file.name}")
            entry.size, entry.mtime, entry.mode = len(file.content), time_s, 0o640
            tar.addfile(entry, io.BytesIO(file.content))
    return packed.getvalue()
