"""Changes values of one ``[[sensor]]`` in a TOML text and leaves every other byte as it is. Pure.

Values are replaced where they stand; what is between them is copied. The result is parsed again and must have
exactly the values that were meant, else nothing is given back: an unforeseen style is refused, never damaged,
and so are sensors between braces.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Collection, Mapping
from datetime import date
from typing import Any, Final, NamedTuple

from cloud.toml_lines import Scan
from cloud.toml_problems import nearest

_BOM: Final = "\ufeff"
_NUMBER_LIKE: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

ORDER: Final = (
    "model", "serial", "lab", "certificate", "calibrated", "expires", "recalibrate_months", "slope", "offset",
)  # fmt: skip
"""Keys of a calibration. A missing one goes behind the last of these that is there, else behind the name."""


class CannotEdit(Exception):
    """The text can't be changed as wanted; the message has the reason. Nothing was changed."""


class _Pair(NamedTuple):
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
    """A sensor's table. Raises CannotEdit."""
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
        # One typed with other digits stays as it is written.
        if key not in table or table[key] != value:
            table[key] = value
            text = _with(text, position, key, values[key])
    try:
        good = _parsed(text) == wanted
    except CannotEdit:
        good = False
    if not good:
        raise CannotEdit("the file's style is one that can't be edited safely: change it by hand")
    return (_BOM if content.startswith(_BOM.encode()) else "").encode() + text.encode()


def _with(text: str, position: int, key: str, value: str) -> str:
    pairs = _pairs(text, position)
    if key in pairs:
        return text[: pairs[key].value] + value + text[pairs[key].end :]
    known = [pair for each, pair in pairs.items() if each in ORDER]
    anchor = max(known) if known else pairs.get("name")
    if anchor is None:
        raise CannotEdit(f"there is no place for {key}: add it by hand")
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
    pair = _pairs(text, position).get(key)
    if pair is None:
        raise CannotEdit(f"{key} can't be removed from here: do it by hand")
    end = text.find("\n", pair.end)
    return text[: text.rfind("\n", 0, pair.start) + 1] + (text[end + 1 :] if end >= 0 else "")


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
    names = [each.get("name") if isinstance(each, dict) else None for each in tables]
    if names.count(name) == 1:
        return names.index(name)
    if name in names:
        raise CannotEdit(f"there are {names.count(name)} sensors called {name!r}")
    known = [each for each in names if isinstance(each, str)]
    near = nearest(name, known)
    hint = f" (did you mean {near}?)" if near else f"; there are {', '.join(known)}" if known else ""
    raise CannotEdit(f"no sensor {name!r}{hint}")


def _pairs(text: str, position: int) -> dict[str, _Pair]:
    """A sensor's own undotted keys. Raises CannotEdit."""
    scan = Scan(text)
    sensor = ("sensor", position)
    if sensor in scan.values:
        raise CannotEdit("sensors between braces can't be edited: change them by hand, or write [[sensor]]")
    return {
        str(path[2]): _Pair(scan.keys[path], *place)
        for path, place in scan.values.items()
        if len(path) == 3 and path[:2] == sensor
    }
