"""Why a config file, or one that it names, can't be read, and what to do about it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final

_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


def unreadable(path: Path, error: OSError | ValueError) -> str:
    """Why a file can't be opened."""
    if isinstance(error, FileNotFoundError):
        if not path.parent.is_dir():
            return f"there is no such file, nor a directory {path.parent}"
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return f"is a directory: name the file in it, such as {path / 'gateway.toml'}"
    if isinstance(error, PermissionError):
        return f"can't be read by user {_user()}{_rights(path)}"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"can't be read: {reason}"


def no_text(content: bytes) -> str | None:
    """What is wrong with a file as a whole, by its bytes; None where it may be text."""
    if not content.strip():
        return "is empty: fieldgate init writes a file to begin with"
    if not content.strip(b"\0"):
        return "holds zeros only, as after a power cut while it was written: restore it from a copy"
    if content.startswith(_UTF16):
        return "is UTF-16: save it as UTF-8"
    if b"\r" in content and b"\n" not in content:
        return "has line ends of old Macs: save it with those of Unix or Windows"
    return None


def _rights(path: Path) -> str:
    """The owner of the file; or of the first directory on the way that bars it."""
    for each in (*reversed(path.absolute().parents), path):
        try:
            mode = each.stat().st_mode
            if os.access(each, os.R_OK if each == path else os.X_OK, effective_ids=True):
                continue
            owner = f"user {each.owner()}, group {each.group()}, mode {mode & 0o777:04o}"
        except (OSError, KeyError):
            return ""
        which = "it belongs to" if each == path else f"the directory {each} belongs to"
        return f": {which} {owner}; become a member of the group, or use sudo"
    return ""


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
