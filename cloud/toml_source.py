"""A TOML file that people write: its values, where each stands, and all that is wrong with it.

What the gateway's config and the cloud's have in common; what a key means is theirs.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, time
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeVar

from cloud.toml_lines import Lines
from cloud.toml_models import ONE_BRACKET, TWO_BRACKETS, Context, Unknown, validate
from cloud.toml_problems import OVERRIDES, KeyPath, Problem, WrongTable, key_text, quote, unreadable
from cloud.wire.bounds import MAX_NUMBER, is_within

_T = TypeVar("_T")

MAX_BYTES: Final = 1 << 20
"""A config is a few kilobytes; a larger file is not one."""

CREDENTIALS: Final = "CREDENTIALS_DIRECTORY"
"""Where systemd puts the credentials of a service (systemd.exec(5), LoadCredential=)."""
LONGEST_SECRET: Final = 64 << 10
_OTHERS_MAY_READ: Final = 0o004
_MAX_DEPTH: Final = 16
_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
"""How tomllib's messages end."""
_KEY: Final = r"\s*[\w.\-]+\s*"
_BY_LINE: Final = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        (r"\s*\[\s*sensor\s*\]", TWO_BRACKETS.format("sensor")),
        (r"\s*\[\s*forward\s*\]", TWO_BRACKETS.format("forward")),
        (r".*[“”„‟«»‘’‚‛]", "type the plain quotes \" or ' in place of those of a phone or word processor"),
        (
            ".*[\u00a0\u200b-\u200d\u2060\u2212\ufeff]",
            "has a blank or a minus of a web page or word processor: type this line anew",
        ),
        (r"\s*(//|;|--|/\*)", "a comment begins with #"),
        (rf"{_KEY}=\s*[+-]?\d+,\d", "a number has a decimal point, not a comma"),
        (rf"{_KEY}=\s*[+-]?[\d.]+\s*([^\W\d]|°)", "a number stands alone, without its unit"),
        (rf"{_KEY}=\s*[^\W\d_]", 'text needs quotes, as in key = "text"; true and false need none'),
    )
)


class TomlSource:
    """One file's raw values, and the problems found so far."""

    missing: ClassVar[str] = ""
    """The remedy where there is no such file."""
    empty: ClassVar[str] = ""
    """The remedy where there is nothing in it; without one that is allowed."""
    named: ClassVar[str] = ""
    """The ``[[tables]]`` that are shown by their names."""

    def __init__(self, path: Path) -> None:
        """Read a file."""
        self.path = path
        self.raw: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.usable = True
        # A name that isn't UTF-8 must not keep its problems from being printed.
        self._file = os.fsencode(path).decode(errors="replace")
        self._lines = Lines("")
        text = self._read(path)
        if text is not None:
            self._parse(text)

    def error(
        self, path: KeyPath, message: str, suggestion: str | None = None, *, starts: bool = False
    ) -> None:
        """Note an error at a key; ``starts`` where the program starts all the same."""
        self._note(path, message, suggestion, starts=starts)

    def warn(self, path: KeyPath, message: str) -> None:
        """Note what is allowed and likely a mistake."""
        self._note(path, message, None, warning=True)

    def warn_of_readers(self, path: KeyPath, file: Path) -> None:
        """Warn of a secret in a file that every user of the machine can read."""
        with suppress(OSError):
            if file.stat().st_mode & _OTHERS_MAY_READ:
                self.warn(path, f"a secret stands in a file that everybody here may read: chmod 640 {file}")

    def errors(self) -> int:
        """How many errors that keep the program from starting have been noted so far."""
        return sum(problem.severity == "error" and not problem.starts for problem in self.problems)

    def in_order(self) -> tuple[Problem, ...]:
        """The problems in the order of their lines, those of no line last, each once."""
        lines = sorted(self.problems, key=lambda problem: (problem.line is None, problem.line or 0))
        return tuple(dict.fromkeys(lines))

    def place(self, path: KeyPath) -> str:
        """File, line and key, as problems have them."""
        return f"{self._file}:{self.line(path)}: {self.key(path)}"

    def line(self, path: KeyPath) -> int | None:
        """The line of a key, or None where it came from the command line."""
        return self._lines.of(path)[0]

    def key(self, path: KeyPath) -> str:
        """A key as it is shown."""
        return key_text(path, self.names() if path[:1] == (self.named,) else ())

    def names(self) -> tuple[str | None, ...]:
        """The name of each of the ``named`` tables, where it is one and no other has it."""
        given = self.raw.get(self.named)
        tables = given if isinstance(given, list) else []
        names = [table.get("name") if isinstance(table, dict) else None for table in tables]
        return tuple(name if isinstance(name, str) and names.count(name) == 1 else None for name in names)

    @property
    def context(self) -> Context:
        """What validators may ask for."""
        return Context(base=self.path.absolute().parent)

    def model(
        self, kind: type[_T], raw: Mapping[str, Any], path: KeyPath = (), unknown: Unknown | None = None
    ) -> _T | None:
        """An instance of a model from a table's keys; its problems are noted.

        None where a key is missing or has a wrong type or bound; there is one where an error is only in what
        a check refused, or in a key that isn't known.
        """
        instance, problems = validate(kind, raw, self.context, path, unknown)
        for problem in problems:
            self.error(*problem)
        return instance

    def table(self, name: str, example: str = "") -> dict[str, Any] | None:
        """A ``[section]``, empty where the file has none; None after its problem was noted."""
        given = self.raw.get(name, {})
        if isinstance(given, dict):
            return given
        several = isinstance(given, list) and given and isinstance(given[0], dict)
        self.error((name,), ONE_BRACKET.format(name) if several else f"must be a table: [{example or name}]")
        return None

    def tables(self, name: str) -> list[tuple[KeyPath, dict[str, Any]]]:
        """The ``[[name]]`` tables, each with its path; what isn't one is noted and left out."""
        given = self.raw.get(name, [])
        if not isinstance(given, list):
            self.error((name,), TWO_BRACKETS.format(name))
            return []
        found: list[tuple[KeyPath, Any]] = [((name, position), each) for position, each in enumerate(given)]
        for path, table in found:
            if not isinstance(table, dict):
                self.error(path, f"must be a table: [[{name}]]")
        return [each for each in found if isinstance(each[1], dict)]

    def check_names(
        self, tables: Iterable[tuple[KeyPath, Mapping[str, Any]]], what: str | None = None
    ) -> list[str]:
        """The names of tables, those ``named`` or of another kind; a second one of a name is noted."""
        first: dict[str, KeyPath] = {}
        for path, table in tables:
            name, key = table.get("name"), (*path, "name")
            if isinstance(name, str) and (known := first.setdefault(name, key)) != key:
                there = f"the first: line {self.line(known)}"
                self.error(
                    key, f"{quote(name)} is a second {what or self.named}'s name ({there}): give each its own"
                )
        return list(first)

    def _note(
        self, path: KeyPath, message: str, guess: str | None, *, warning: bool = False, starts: bool = False
    ) -> None:
        line, key = self.line(path), self.key(path)
        file, column = (OVERRIDES, None) if line is None else (self._file, self._lines.of(path)[1])
        severity: Literal["error", "warning"] = "warning" if warning else "error"
        self.problems.append(Problem(file, line, key, message, guess, severity, column, starts))

    def _fail(self, message: str, line: int = 1, column: int | None = None) -> None:
        """The file can't be understood at all."""
        self.usable = False
        self.problems.append(Problem(self._file, line, "", message, column=column))

    def _read(self, path: Path) -> str | None:
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except FileNotFoundError as error:
            self._fail(f"{unreadable(path, error)}: {self.missing}")
            return None
        except (OSError, ValueError) as error:
            self._fail(unreadable(path, error))
            return None
        if len(content) > MAX_BYTES:
            self._fail(f"is larger than {MAX_BYTES} bytes: not a config")
            return None
        if self.empty and not content.strip():
            self._fail(f"is empty: {self.empty}")
            return None
        if content and not content.strip(b"\0"):
            self._fail("holds zeros only, as after a power cut while it was written: restore it from a copy")
            return None
        try:
            # Editors on Windows begin a file with a byte order mark.
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            byte = f"0x{content[error.start]:02x}"
            self._fail(f"is not UTF-8 (byte {byte} on this line): save the file as UTF-8", line)
            return None

    def _not_toml(self, error: str, lines: list[str]) -> None:
        """The parser's message and position, and what is likely wrong there."""
        place = _PLACE.search(error)
        message = error[: place.start()] if place is not None else error
        last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=1)
        line = min(int(place[1]), len(lines)) if place is not None and place[1] else last
        column = int(place[2]) if place is not None and place[2] else None
        hint = syntax_hint(lines[line - 1])
        message = f"is not valid TOML: {message[:1].lower()}{message[1:]}"
        self._fail(f"{message}: {hint}" if hint is not None else message, line, column)

    def _parse(self, text: str) -> None:
        try:
            self.raw = dates_as_text(tomllib.loads(text))
        except RecursionError:
            self._fail("is nested too deeply")
            return
        except ValueError as error:
            self._not_toml(str(error), text.replace("\r\n", "\n").split("\n"))
            return
        self._lines = Lines(text)
        for path, message in unstorable(self.raw):
            self.usable = False
            self.error(path, message)


def syntax_hint(line: str) -> str | None:
    """What is likely wrong with a line that the parser refuses, beside the parser's own message."""
    return next((hint for pattern, hint in _BY_LINE if pattern.match(line)), None)


def leaves(
    table: Mapping[str, Any], path: KeyPath, references: Collection[str]
) -> Iterator[tuple[KeyPath, Any]]:
    """The values within a table and its tables, each with its path, so that dotted and quoted keys are equal.

    A table with one of ``references`` among its keys is a value.
    """
    for key, value in table.items():
        if isinstance(value, Mapping) and value and not any(each in value for each in references):
            yield from leaves(value, (*path, key), references)
        else:
            yield (*path, key), value


def by_dotted_name(given: Any, references: Collection[str] = ()) -> Any:
    """A table's values by dotted name: what TOML makes of dotted keys is what quoted ones are.

    What is no table stays as it is. Raises WrongTable where a name is given both ways.
    """
    if not isinstance(given, Mapping):
        return given
    found: dict[str, Any] = {}
    for path, value in leaves(given, (), references):
        name = ".".join(map(str, path))
        if name in found:
            raise WrongTable((path, f"{name} is given twice, dotted and quoted"))
        found[name] = value
    return found


def dates_as_text(value: Any) -> Any:
    """A value whose dates and times are text, as in JSON, by which tables are validated."""
    if isinstance(value, dict):
        return {key: dates_as_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [dates_as_text(each) for each in value]
    return value.isoformat() if isinstance(value, date | time) else value


def walk(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """A value and those within it, each with its path, down to the depth that is refused."""
    yield path, value
    within: Iterable[tuple[Any, object]] = ()
    if isinstance(value, Mapping):
        within = value.items()
    elif isinstance(value, list):
        within = enumerate(value)
    for key, item in within if len(path) <= _MAX_DEPTH else ():
        yield from walk(item, (*path, key))


def unstorable(raw: object) -> Iterator[tuple[KeyPath, str]]:
    """Values that TOML can write and no key can have: beyond all bounds, nested without end."""
    for path, value in walk(raw):
        if len(path) > _MAX_DEPTH:
            yield path, "is nested too deeply"
        elif isinstance(value, float) and not math.isfinite(value):
            yield path, f"must be a finite number, not {value}"
        elif isinstance(value, float) and not is_within(value):
            yield path, f"must be a number between -{MAX_NUMBER:g} and {MAX_NUMBER:g}, not {value:g}"
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            yield path, "is beyond 64 bits"
        elif isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
            yield path, "is not UTF-8"


def secret_text(content: bytes) -> str | None:
    """A secret in a file's content; None where it is none."""
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return None
    return None if len(content) > LONGEST_SECRET or "\0" in text else text or None
