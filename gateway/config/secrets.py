"""Secrets that a config names and doesn't hold: ``{ credential = "name" }`` of systemd or ``{ file = "…" }``.

Their values are never in a problem, a log line or the status page: only here and where they are used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

from cloud.toml_problems import KeyPath, quote, unknown_key
from cloud.toml_source import CREDENTIALS, LONGEST_SECRET, secret_text
from gateway.config.file_watch import named_file
from gateway.config.named_files import note_hidden, note_unreadable
from gateway.config.source import Source

KINDS: Final = ("credential", "file")
_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,255}", re.ASCII)


def is_reference(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a table names a secret; any other table is one of dotted keys."""
    return isinstance(value, Mapping) and bool(value) and any(kind in value for kind in KINDS)


def read_secret(source: Source, path: KeyPath, reference: Mapping[str, Any]) -> str | None:
    """The secret that a table names; None after its problem was noted.

    Where the service isn't running (``fieldgate check``, on any machine) a credential is a warning: systemd
    gives it to the service only. So is a file that can't be read, where nobody can say what the service can.
    """
    for key in [key for key in reference if key not in KINDS]:
        source.error((*path, key), *unknown_key(key, KINDS))
        return None
    if len(reference) > 1:
        source.error(path, "names a credential and a file: keep one of them")
        return None
    ((kind, name),) = reference.items()
    if not isinstance(name, str) or not name:
        source.error((*path, kind), f'must be a string, in "quotes", not {quote(name)}')
        return None
    directory = source.path.absolute().parent if kind == "file" else os.environ.get(CREDENTIALS)
    if kind == "credential" and (_NAME.fullmatch(name) is None or name in (".", "..")):
        source.error((*path, kind), f"must be the name given to LoadCredential=, not {quote(name)}")
        return None
    add = f"add LoadCredential={name}:/path/of/its/file to the service"
    if directory is None:
        source.absent((*path, kind), f"systemd gives {quote(name)} to the running service only", add)
        return None
    remedy = (add,) if kind == "credential" else ()
    return _content(source, (*path, kind), Path(directory) / name, *remedy)


def resolve(source: Source, path: KeyPath, raw: dict[str, Any]) -> None:
    """Put the secret that a section's key names in the place of its name."""
    key = str(path[-1])
    given = raw.get(key)
    if is_reference(given):
        raw[key] = read_secret(source, path, given)
    elif isinstance(given, str):
        source.warn_of_readers(path, source.path)
    elif key in raw:
        source.error(path, 'must be a string, in "quotes", or { credential = "name" }')
        del raw[key]


def _content(source: Source, path: KeyPath, file: Path, *remedy: str) -> str | None:
    source.files[path] = named_file(file)
    try:
        with file.open("rb") as opened:
            content = opened.read(LONGEST_SECRET + 1)
    except (OSError, ValueError) as error:
        note_unreadable(source, path, file, error, *remedy)
        return None
    note_hidden(source, path, file)
    text = secret_text(content)
    if text is None:
        source.error(path, f"{file} must hold one secret as text, at most 64 KiB")
        return None
    source.warn_of_readers(path, file)
    return text
