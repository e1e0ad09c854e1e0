"""A config file and its overrides, merged into one raw table; where each value came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from cloud.toml_lines import split_key
from cloud.toml_problems import OVERRIDES, KeyPath, Problem, key_text, nearest, quote
from cloud.toml_source import TomlSource, dates_as_text, unstorable, walk
from cloud.wire.quantities import QUANTITIES, Quantities
from gateway.config.values import Context

EVERY_S: Final = 3600.0
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file and a digest of its content, None where it couldn't be read."""

    path: Path
    digest: str | None


def named_file(path: Path) -> NamedFile:
    """A file as it is now. Never raises."""
    try:
        with path.open("rb") as file:
            return NamedFile(path, hashlib.sha256(file.read(_MAX_BYTES)).hexdigest())
    except (OSError, ValueError):
        return NamedFile(path, None)


class FileWatch:
    """Reads files again each hour; a content is reported once, also where it wasn't taken over."""

    def __init__(self, files: Mapping[KeyPath, NamedFile]) -> None:
        self.begin(files)
        self._next_s: float | None = None

    def begin(self, files: Mapping[KeyPath, NamedFile]) -> None:
        """Watch these from now on."""
        self._files = dict(files)

    def changed(self, now_s: float) -> list[Path]:
        """The files with another content than last time; none before an hour has passed."""
        if self._next_s is None:
            self._next_s = now_s + EVERY_S
        if now_s < self._next_s:
            return []
        self._next_s = now_s + EVERY_S
        before, self._files = self._files, {key: named_file(file.path) for key, file in self._files.items()}
        return [file.path for key, file in self._files.items() if file != before[key]]


PLACEHOLDER: Final = "CHANGE-ME"
"""What ``fieldgate init`` writes for what the installer has to fill in."""


class Source(TomlSource):
    """One file's raw values, the overrides put over them, and the problems found so far."""

    missing: ClassVar = "fieldgate init writes one, -c names another"
    empty: ClassVar = "fieldgate init writes a file to begin with"
    named: ClassVar = "sensor"

    def __init__(self, path: Path, *, at_work: bool = True) -> None:
        """Read a file; ``at_work`` where the config is about to be used, not only checked."""
        self.at_work = at_work
        self.files: dict[KeyPath, NamedFile] = {}
        self.quantities: Quantities = QUANTITIES
        """What this config may name; its own once they are read."""
        self._placeholders: set[KeyPath] = set()
        """Values still to be filled in: whatever else is wrong with them isn't reported."""
        self._overridden: set[KeyPath] = set()
        super().__init__(path)

    def error(
        self, path: KeyPath, message: str, suggestion: str | None = None, *, starts: bool = False
    ) -> None:
        """Note an error at a key; ``starts`` where the daemon starts all the same."""
        if path not in self._placeholders:
            super().error(path, message, suggestion, starts=starts)

    @property
    def context(self) -> Context:
        """What validators may ask for."""
        return Context(base=self.path.absolute().parent, quantities=self.quantities)

    def unit_of(self, quantity: str) -> str | None:
        """A quantity's unit; None where it is neither built in nor the config's own."""
        known = self.quantities.get(quantity)
        return None if known is None else known.unit

    def absent(self, path: KeyPath, message: str, remedy: str) -> None:
        """Note what can't be read here: an error where the config is used, else a warning."""
        if self.at_work:
            self.error(path, f"{message}: {remedy}" if remedy else message, starts=True)
        else:
            self.warn(path, f"{message}; not examined here")

    def report_placeholders(self) -> None:
        """An error for each value that is still to be filled in, and no other for it."""
        for path, value in walk(self.raw):
            if isinstance(value, str) and PLACEHOLDER in value.upper().replace("_", "-"):
                self.error(path, f"is still to be filled in: put the right value in place of {PLACEHOLDER}")
                self._placeholders.add(path)

    def line(self, path: KeyPath) -> int | None:
        """The line of a key, or None where it came from the command line."""
        if any(path[: len(over)] == over for over in self._overridden):
            return None
        return super().line(path)

    def override(self, overrides: Mapping[str, object]) -> None:
        """Put values over the file's, by dotted key; sensors go by name: ``sensor.cup-50m-a.slope``."""
        for key, value in overrides.items():
            try:
                parts = split_key(key)
            except ValueError:
                self._refuse_override(key, "is not a dotted key such as mqtt.port")
                continue
            problem = next(unstorable(value), None)
            if problem is not None:
                self._refuse_override(key, problem[1])
            else:
                self._put(key, parts, value)

    def _put(self, key: str, parts: tuple[str, ...], value: object) -> None:
        table: Any = self.raw
        path: KeyPath = ()
        for part in parts[:-1]:
            if isinstance(table, list):
                names = self.names() if path == ("sensor",) else ()
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
        table[parts[-1]] = dates_as_text(value)
        self._overridden.add((*path, parts[-1]))

    def _refuse_override(self, key: str, message: str, suggestion: str | None = None) -> None:
        key = key if key.isprintable() else quote(key)
        self.problems.append(Problem(OVERRIDES, None, key, message, suggestion))
