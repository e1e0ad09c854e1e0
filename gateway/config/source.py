"""A config file and its overrides, merged into one raw table; where each value came from."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from pathlib import Path
from typing import Any, Final, Literal

from cloud.toml_lines import Lines, split_key
from gateway.config.file_watch import NamedFile
from gateway.config.problems import OVERRIDES, KeyPath, Problem, key_text, nearest, quote, unreadable
from gateway.config.suggestions import ONE_BRACKET, TWO_BRACKETS, syntax_hint

MAX_BYTES: Final = 1 << 20
"""A config is a few kilobytes; a larger file is not one."""

_MAX_DEPTH: Final = 16
_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
"""How tomllib's messages end."""
PLACEHOLDER: Final = "CHANGE-ME"
"""What ``fieldgate init`` writes for what the installer has to fill in."""


class Source:
    """One file's raw values, the overrides put over them, and the problems found so far."""

    def __init__(self, path: Path, *, at_work: bool = True) -> None:
        """Read a file; ``at_work`` where the config is about to be used, not only checked."""
        self.path = path
        self.at_work = at_work
        self.raw: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.files: dict[KeyPath, NamedFile] = {}
        self.usable = True
        self._placeholders: set[KeyPath] = set()
        """Values still to be filled in: whatever else is wrong with them isn't reported."""
        # A name that isn't UTF-8 must not keep its problems from being printed.
        self._file = os.fsencode(path).decode(errors="replace")
        self._lines = Lines("")
        self._overridden: set[KeyPath] = set()
        text = self._read(path)
        if text is not None:
            self._parse(text)

    def error(
        self, path: KeyPath, message: str, suggestion: str | None = None, *, starts: bool = False
    ) -> None:
        """Note an error at a key; ``starts`` where the daemon starts all the same."""
        if path in self._placeholders:
            return
        self._note(path, message, suggestion, starts=starts)

    def warn(self, path: KeyPath, message: str) -> None:
        """Note what is allowed and likely a mistake."""
        self._note(path, message, None, warning=True)

    def absent(self, path: KeyPath, message: str, remedy: str) -> None:
        """Note what can't be read here: an error where the config is used, else a warning."""
        if self.at_work:
            self.error(path, f"{message}: {remedy}" if remedy else message, starts=True)
        else:
            self.warn(path, f"{message}; not examined here")

    def report_placeholders(self) -> None:
        """An error for each value that is still to be filled in, and no other for it."""
        for path, value in _walk(self.raw):
            if isinstance(value, str) and PLACEHOLDER in value.upper().replace("_", "-"):
                self.error(path, f"is still to be filled in: put the right value in place of {PLACEHOLDER}")
                self._placeholders.add(path)

    def errors(self) -> int:
        """How many errors that keep the daemon from starting have been noted so far."""
        return sum(problem.severity == "error" and not problem.starts for problem in self.problems)

    def line(self, path: KeyPath) -> int | None:
        """The line of a key, or None where it came from the command line."""
        if any(path[: len(over)] == over for over in self._overridden):
            return None
        return self._lines.of(path)[0]

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

    def sensor_names(self) -> tuple[str | None, ...]:
        """Each sensor's name where it is one and no other sensor has it."""
        sensors = self.raw.get("sensor")
        names = [
            sensor.get("name") if isinstance(sensor, dict) else None
            for sensor in (sensors if isinstance(sensors, list) else ())
        ]
        return tuple(name if isinstance(name, str) and names.count(name) == 1 else None for name in names)

    def override(self, overrides: Mapping[str, object]) -> None:
        """Put values over the file's, by dotted key; sensors go by name: ``sensor.cup-50m-a.slope``."""
        for key, value in overrides.items():
            try:
                parts = split_key(key)
            except ValueError:
                self._refuse_override(key, "is not a dotted key such as mqtt.port")
                continue
            problem = next(_unstorable(value), None)
            if problem is not None:
                self._refuse_override(key, problem[1])
            else:
                self._put(key, parts, value)

    def _put(self, key: str, parts: tuple[str, ...], value: object) -> None:
        table: Any = self.raw
        path: KeyPath = ()
        for part in parts[:-1]:
            if isinstance(table, list):
                names = self.sensor_names() if path == ("sensor",) else ()
                position = names.index(part) if part in names else None
                if position is None or not isinstance(table[position], dict):
                    guess = nearest(part, [name for name in names if name is not None])
                    self._refuse_override(key, f"there is no {path[-1]} {quote(part)}", guess)
                    return
                path, table = (*path, position), table[position]
                continue
            path = (*path, part)
            if part not in table:
                table[part] = {}
                self._overridden.add(path)
            table = table[part]
            if not isinstance(table, dict | list):
                self._refuse_override(key, f"{key_text(path)} is not a table")
                return
        if isinstance(table, list):
            self._refuse_override(key, f"{key_text(path)} is a list: name the one that is meant, and its key")
            return
        table[parts[-1]] = _dates_as_text(value)
        self._overridden.add((*path, parts[-1]))

    def _refuse_override(self, key: str, message: str, suggestion: str | None = None) -> None:
        key = key if key.isprintable() else quote(key)
        self.problems.append(Problem(OVERRIDES, None, key, message, suggestion))

    def _note(
        self, path: KeyPath, message: str, guess: str | None, *, warning: bool = False, starts: bool = False
    ) -> None:
        line, key = self.line(path), key_text(path, self.sensor_names())
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
            self._fail(f"{unreadable(path, error)}: fieldgate init writes one, -c names another")
            return None
        except (OSError, ValueError) as error:
            self._fail(unreadable(path, error))
            return None
        if len(content) > MAX_BYTES:
            self._fail(f"is larger than {MAX_BYTES} bytes: not a config")
            return None
        if not content.strip():
            self._fail("is empty: fieldgate init writes a file to begin with")
            return None
        if not content.strip(b"\0"):
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
            self.raw = _dates_as_text(tomllib.loads(text))
        except RecursionError:
            self._fail("is nested too deeply")
            return
        except ValueError as error:
            self._not_toml(str(error), text.replace("\r\n", "\n").split("\n"))
            return
        self._lines = Lines(text)
        for path, message in _unstorable(self.raw):
            self.usable = False
            self.error(path, message)


def _dates_as_text(value: Any) -> Any:
    """A value whose dates and times are text, as in JSON, by which tables are validated."""
    if isinstance(value, dict):
        return {key: _dates_as_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_dates_as_text(each) for each in value]
    return value.isoformat() if isinstance(value, date | time) else value


def _walk(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """A value and those within it, each with its path, down to the depth that is refused."""
    yield path, value
    within: Iterable[tuple[Any, object]] = ()
    if isinstance(value, Mapping):
        within = value.items()
    elif isinstance(value, list):
        within = enumerate(value)
    for key, item in within if len(path) <= _MAX_DEPTH else ():
        yield from _walk(item, (*path, key))


def _unstorable(raw: object) -> Iterator[tuple[KeyPath, str]]:
    """Values that TOML can write and no key can have: infinite, beyond 64 bits, nested without end."""
    for path, value in _walk(raw):
        if len(path) > _MAX_DEPTH:
            yield path, "is nested too deeply"
        elif isinstance(value, float) and not math.isfinite(value):
            yield path, f"must be a finite number, not {value}"
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            yield path, "is beyond 64 bits"
        elif isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
            yield path, "is not UTF-8"
