"""What is wrong with a config: every problem with its place, all at once."""

from __future__ import annotations

import ast
import difflib
import json
import os
import pwd
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from cloud.toml_lines import KeyPath as KeyPath

OVERRIDES: Final = "--set"
"""What stands for the file where a value came from the command line."""

_SECRET_KEY: Final = re.compile(r"passw|secret|\.pem$|\.jaas|oauthbearer\.config", re.IGNORECASE)
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong (error) or likely a mistake (warning); ``line`` is None for overrides.

    ``column`` (characters, from 1) is where the key begins, None where only its table or file is known.
    ``starts``: an error with which the daemon starts all the same, samples, stores and announces it.
    """

    file: str
    line: int | None
    key: str
    message: str
    suggestion: str | None = None
    severity: Literal["error", "warning"] = "error"
    column: int | None = None
    starts: bool = False

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f" {self.key}:" if self.key else ""
        guess = f" (did you mean {quote(self.suggestion)}?)" if self.suggestion is not None else ""
        return f"{place}:{key} {self.message}{guess}"


class ConfigError(Exception):
    """The config can't be used; ``problems`` are all its errors and warnings, in the order of their lines."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class WrongValue(ValueError):
    """A value that can't be meant; ``suggestion`` is one that may be."""

    def __init__(self, message: str, suggestion: str | None = None) -> None:
        self.suggestion = suggestion
        super().__init__(message)


class WrongTable(ValueError):
    """Keys of a table that don't go together: where each stands in it, and what is wrong."""

    def __init__(self, *problems: tuple[KeyPath, str]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message in problems))


def is_secret(key: str) -> bool:
    """Whether a key's value is one that must not be shown."""
    return _SECRET_KEY.search(key) is not None


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word most like this one, or None where none is like it."""
    by_lower = {candidate.lower(): candidate for candidate in words}
    found = difflib.get_close_matches(word.lower()[:100], by_lower, n=1, cutoff=0.61)
    return by_lower[found[0]] if found else None


def unknown_key(key: str, names: Sequence[str], owner: str = "", what: str = "key") -> tuple[str, str | None]:
    """What is wrong with a key that isn't one of ``names``, and the one most like it."""
    guess = nearest(key, names)
    message = f"is not a known {what} of {owner}" if owner else f"is not a known {what}"
    return (message if guess is not None else f"{message}; there are {', '.join(names) or 'none'}"), guess


def quote(value: object) -> str:
    """A value as it could stand in the file, on one line, at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return text if len(text) <= 60 else f"{text[:57]}..."


def no_choice(expected: str, given: Any) -> tuple[str, str | None]:
    """``expected`` are the choices as pydantic lists them: ``'zero' or 'offset'``."""
    try:
        choices = ast.literal_eval(f"[{expected.replace(' or ', ', ')}]")
    except (SyntaxError, ValueError):
        return f"must be {expected}, not {quote(given)}", None
    right = next((each for each in choices if str(each) == str(given)), None)
    if right is not None and not isinstance(given, bool):
        return f"must be {quote(right)}, not {quote(given)}", None
    guess = nearest(str(given), [each for each in choices if isinstance(each, str)])
    words = ", ".join(map(quote, choices))
    return f"must be {'one of ' if len(choices) > 1 else ''}{words}, not {quote(given)}", guess


def show(number: float) -> str:
    """A number as the file would have it, without superfluous digits."""
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else f"{number:.9g}"


def key_text(path: KeyPath, names: Sequence[str | None] = ()) -> str:
    """``sensor["cup-50m-a"].slope``; a table without one of these ``names`` by its position, from 1."""
    text = ""
    for depth, part in enumerate(path):
        if isinstance(part, int):
            name = names[part] if depth == 1 and part < len(names) else None
            text += f"[{quote(name) if name is not None else part + 1}]"
        else:
            text += ("." if text else "") + (part if _BARE_KEY.fullmatch(part) else quote(part))
    return text


def unreadable(path: Path, error: OSError | ValueError) -> str:
    """Why a file can't be opened."""
    if isinstance(error, FileNotFoundError):
        if not path.parent.is_dir():
            return f"there is no such file, nor a directory {path.parent}"
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return f"is a directory: name the file in it, such as {path / 'gateway.toml'}"
    if isinstance(error, PermissionError):
        remedy = "use sudo, or become a member of its group (ls -l shows it)"
        return f"can't be read by user {current_user()}: {remedy}"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"can't be read: {reason}"


def current_user() -> str:
    """The name of the user this process runs as, or its number."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
