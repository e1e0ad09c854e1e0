"""Changes values of one ``[[sensor]]`` in a TOML text and leaves every other byte as it is. Pure.

Values are replaced where they stand; what is between them is copied. The result is parsed again and must have
exactly the values that were meant, else nothing is given back: an unforeseen style is refused, never damaged.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import Any, Final

from cloud.toml_lines import Scan

_BOM: Final = "\ufeff"
_NUMBER_LIKE: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

ORDER: Final = (
    "model", "serial", "lab", "certificate", "calibrated", "expires", "recalibrate_months", "slope", "offset",
)  # fmt: skip
"""Keys of a calibration. A missing one goes behind the last of these that is there, else behind the name."""


class CannotEdit(Exception):
    """The text can't be changed as wanted; the message says why. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A key of the sensor's table and its value, in characters of the text."""

    start: int
    value: int
    end: int


def number_text(text: str) -> str:
    """A number as TOML writes it, digits as they were typed. Raises ValueError."""
    typed = text.strip()
    if not _NUMBER_LIKE.fullmatch(typed):
        hint = " (with a decimal point)" if "," in typed else ""
        raise ValueError(f"{text!r} is not a number{hint}")
    try:
        value = tomllib.loads(f"x = {typed}")["x"]
    except tomllib.TOMLDecodeError:
        # .765, 1. and 007 are numbers to people.
        value = float(typed)
        typed = repr(value)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a number")
    return typed


def string_text(text: str) -> str:
    """A string as TOML writes it, quoted."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def date_text(text: str) -> str:
    """A date as TOML writes it. Raises ValueError."""
    try:
        return date.fromisoformat(text.strip()).isoformat()
    except ValueError:
        raise ValueError(f"{text!r} is not a date such as 2026-03-12") from None


def sensor_table(content: bytes, name: str) -> dict[str, Any]:
    """What the text says of a sensor. Raises CannotEdit."""
    raw = _parsed(_text(content))
    table: dict[str, Any] = raw["sensor"][_position(raw, name)]
    return table


def edited(content: bytes, name: str, values: Mapping[str, str], removed: Collection[str] = ()) -> bytes:
    """The text with these values, as TOML, of a sensor's keys, and without the removed keys.

    A removed key takes its line's comment with it. Raises CannotEdit.
    """
    text = _text(content)
    wanted = _parsed(text)
    position = _position(wanted, name)
    table = wanted["sensor"][position]
    for key in removed:
        if key in table:
            del table[key]
            text = _without(text, position, key)
    for key in sorted(values, key=lambda each: ORDER.index(each) if each in ORDER else len(ORDER)):
        value = tomllib.loads(f"x = {values[key]}")["x"]
        if key in table and _same(table[key], value):
            continue
        table[key] = value
        text = _with(text, position, key, values[key])
    if not _has(text, wanted):
        raise CannotEdit("the file's style is one that can't be edited safely: change it by hand")
    return (_BOM if content.startswith(_BOM.encode()) else "").encode() + text.encode()


def _has(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return _parsed(text) == wanted
    except CannotEdit:
        return False


def _same(before: object, after: object) -> bool:
    """1 and 1.0 are the same number; one typed with other digits stays as it is written."""
    return before == after and isinstance(before, bool) == isinstance(after, bool)


def _with(text: str, position: int, key: str, value: str) -> str:
    pairs, inline = _pairs(text, position)
    pair = pairs.get(key)
    if pair is not None:
        return text[: pair.value] + value + text[pair.end :]
    known = [pair for each, pair in pairs.items() if each in ORDER]
    anchor = max(known, key=lambda each: each.start) if known else pairs.get("name")
    if anchor is None:
        raise CannotEdit(f"there is no place for {key}: add it by hand")
    if inline:
        return f"{text[: anchor.end]}, {key} = {value}{text[anchor.end :]}"
    indent = text[text.rfind("\n", 0, anchor.start) + 1 : anchor.start]
    line = f"{indent}{key} = {value}"
    end = text.find("\n", anchor.end)
    if end < 0:
        return text + _newline(text, len(text)) + line
    return text[: end + 1] + line + _newline(text, end) + text[end + 1 :]


def _newline(text: str, at: int) -> str:
    """What ends a line here: what ends this one, else what ends the first one."""
    end = at if at < len(text) else text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _without(text: str, position: int, key: str) -> str:
    pairs, inline = _pairs(text, position)
    pair = pairs.get(key)
    if pair is None:
        raise CannotEdit(f"{key} can't be removed from here: do it by hand")
    if not inline:
        end = text.find("\n", pair.end)
        return text[: text.rfind("\n", 0, pair.start) + 1] + (text[end + 1 :] if end >= 0 else "")
    # Dotted keys between braces aren't among the pairs: the text between two of these may hold some.
    after = text[pair.end :].lstrip(" \t")
    if after.startswith(","):
        return text[: pair.start] + after[1:].lstrip(" \t")
    return text[: pair.start].rstrip(" \t").removesuffix(",") + text[pair.end :]


def _text(content: bytes) -> str:
    try:
        return content.decode().removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise CannotEdit(f"the file is no TOML: {error}") from error


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CannotEdit(f"the file is no TOML: {error}") from error


def _position(raw: Mapping[str, Any], name: str) -> int:
    sensors = raw.get("sensor")
    tables = sensors if isinstance(sensors, list) else []
    found = [at for at, each in enumerate(tables) if isinstance(each, dict) and each.get("name") == name]
    if len(found) > 1:
        raise CannotEdit(f"there are {len(found)} sensors called {name!r}")
    if not found:
        names = [str(each["name"]) for each in tables if isinstance(each, dict) and "name" in each]
        near = get_close_matches(name, names, 1)
        hint = f" (did you mean {near[0]}?)" if near else f"; there are {', '.join(names)}" if names else ""
        raise CannotEdit(f"no sensor {name!r}{hint}")
    return found[0]


def _pairs(text: str, position: int) -> tuple[dict[str, _Pair], bool]:
    """A sensor's own undotted keys, and whether they stand between braces."""
    scan = Scan(text)
    sensor = ("sensor", position)
    pairs = {
        str(path[2]): _Pair(scan.keys[path], *place)
        for path, place in scan.values.items()
        if len(path) == 3 and path[:2] == sensor
    }
    return pairs, sensor in scan.values
