"""Where each key of a TOML text stands: tomllib gives values without places. Pure: no I/O.

For the lines of problems (the gateway's config, the rules of alerts) and for edits of a config. It follows
every text that tomllib reads; of another it gives the places before the first mistake.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

KeyPath = tuple[str | int, ...]
"""Where a value stands: table keys, and positions in arrays counted from 0."""

Place = tuple[int, int]
"""Line and column, counted from 1; columns in characters."""

_GAP: Final = r"(?:\s|#[^\n]*)*"
_BETWEEN: Final = re.compile(_GAP)
_NEXT: Final = re.compile(rf"{_GAP}(?:,{_GAP})?")
_KEY_PART: Final = r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_KEY: Final = re.compile(rf"{_KEY_PART}(?:[ \t]*\.[ \t]*{_KEY_PART})*")
_EQUALS: Final = re.compile(r"[ \t]*=[ \t]*")
_HEADING: Final = re.compile(rf"(\[\[?)[ \t]*({_KEY.pattern})[ \t]*\]\]?")
_SCALAR: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|[^\s,\[\]{}#\"'][^,\]}#\n]*",
    re.DOTALL,
)


class Lines:
    """Places of one text's keys, found at the first request: a config without problems needs none."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._offsets: dict[KeyPath, int] | None = None

    def of(self, path: KeyPath) -> Place:
        """The place of a key; of the nearest table around it where the key isn't there."""
        if self._offsets is None:
            self._offsets = Scan(self._text).keys
        around = (path[:end] for end in range(len(path), 0, -1))
        offset = next((self._offsets[each] for each in around if each in self._offsets), 0)
        return self._text.count("\n", 0, offset) + 1, offset - self._text.rfind("\n", 0, offset)


def split_key(text: str) -> tuple[str, ...]:
    """The parts of a dotted TOML key, quoted ones included. Raises ValueError."""
    if "\n" in text or "=" in text.split('"')[0].split("'")[0]:
        raise ValueError(f"{text!r} is not a key")
    node: object = tomllib.loads(f"{text} = 0")
    parts: list[str] = []
    while isinstance(node, dict):
        (part,) = node
        parts.append(part)
        node = node[part]
    return tuple(parts)


class Scan:
    """One pass over a text.

    ``keys`` has where each key is mentioned first (a table's own heading, an array's element); ``values``
    where each value behind a = begins and ends, and those within it, in characters from 0.
    """

    def __init__(self, text: str) -> None:
        self.keys: dict[KeyPath, int] = {}
        self.values: dict[KeyPath, tuple[int, int]] = {}
        self._text = text
        self._at = 0
        # How many elements each array of tables has so far; a heading is of its last one.
        self._elements: dict[KeyPath, int] = {}
        table: KeyPath = ()
        try:
            self._take(_BETWEEN)
            while self._at < len(text):
                if text[self._at] == "[":
                    table = self._heading()
                else:
                    self._value(self._pair(table))
                self._take(_BETWEEN)
        except ValueError:
            return

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Move behind what matches here. Raises ValueError where nothing does."""
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"not understood at character {self._at}")
        self._at = found.end()
        return found

    def _heading(self) -> KeyPath:
        """Note ``[table]`` or ``[[table]]``; the path of the keys below it."""
        start = self._at
        found = self._take(_HEADING)
        parts = split_key(found[2])
        path: KeyPath = ()
        for depth, part in enumerate(parts, 1):
            path += (part,)
            self.keys.setdefault(path, start)
            if found[1] == "[[" and depth == len(parts):
                self._elements[path] = self._elements.get(path, 0) + 1
            if path in self._elements:
                path += (self._elements[path] - 1,)
                self.keys.setdefault(path, start)
        return path

    def _pair(self, table: KeyPath) -> KeyPath:
        """Note the key that begins here, and move to its value."""
        start = self._at
        path = table
        for part in split_key(self._take(_KEY)[0]):
            path += (part,)
            self.keys.setdefault(path, start)
        self._take(_EQUALS)
        return path

    def _value(self, path: KeyPath) -> None:
        """Note all keys and elements within a value, and move behind it. Not recursive: it may be deep."""
        # Path, start, and the position of the next element in an open array; None in an open inline table.
        within: list[tuple[KeyPath, int, int | None]] = []
        while True:
            start = self._at
            if self._at_one_of("[{"):
                within.append((path, start, 0 if self._text[start] == "[" else None))
                self._at += 1
            else:
                # What ends a bare value may have spaces before it.
                self.values[path] = (start, start + len(self._take(_SCALAR)[0].rstrip()))
            while within and self._ends():
                table, start, _ = within.pop()
                self.values[table] = (start, self._at)
            if not within:
                return
            table, start, position = within[-1]
            if position is None:
                path = self._pair(table)
            else:
                path = (*table, position)
                within[-1] = (table, start, position + 1)
                self.keys.setdefault(path, self._at)

    def _ends(self) -> bool:
        """Move to the next element of an array or inline table; True behind the last one."""
        self._take(_NEXT)
        ends = self._at_one_of("]}")
        self._at += ends
        return ends

    def _at_one_of(self, characters: str) -> bool:
        return self._at < len(self._text) and self._text[self._at] in characters
