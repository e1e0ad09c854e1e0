"""Why a config file, or one that it names, can't be read, in words that say whose move it is."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import Final

_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


def unreadable(path: Path, error: OSError | ValueError) -> str:
    """What to say of a file that can't be opened."""
    if isinstance(error, FileNotFoundError):
        if not path.parent.is_dir():
            return f"there is no such file, nor a directory {path.parent}"
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return f"is a directory: name the file in it, such as {path / 'gateway.toml'}"
    if isinstance(error, PermissionError):
        return f"can't be read by {_user(os.geteuid())}{_rights(path)}"
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
    """Whose the file is; or the first directory on the way that bars it."""
    for each in (*reversed(path.absolute().parents), path):
        try:
            found = each.stat()
        except OSError:
            return ""
        barred = not os.access(each, os.R_OK if each == path else os.X_OK, effective_ids=True)
        if barred:
            owner = f"{_user(found.st_uid)}, group {_group(found.st_gid)}, mode {found.st_mode & 0o777:04o}"
            which = "it belongs to" if each == path else f"the directory {each} belongs to"
            return f": {which} {owner}; become a member of the group, or use sudo"
    return ""


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"{gid}"
