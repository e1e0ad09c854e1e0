"""Why a config file, or one that it names, can't be read, and what to do about it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def unreadable(path: Path, error: OSError | ValueError) -> str:
    """Why a file can't be opened."""
    if isinstance(error, FileNotFoundError):
        if not path.parent.is_dir():
            return f"there is no such file, nor a directory {path.parent}"
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return f"is a directory: name the file in it, such as {path / 'gateway.toml'}"
    if isinstance(error, PermissionError):
        return f"can't be read by user {_user()}: become a member of its group (ls -l shows it), or use sudo"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"can't be read: {reason}"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
