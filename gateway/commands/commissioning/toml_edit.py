"""Changes values of one ``[[sensor]]`` in a TOML text and leaves every other byte as it is. Pure.

tree-sitter says where values stand; what is between them is copied. The result is parsed again and must say
exactly what was meant, else nothing is given back: so a style that isn't foreseen is refused, never damaged.
"""

from __future__ import annotations

import copy
import json
import math
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from cloud.toml_lines import split_key

if TYPE_CHECKING:
    from tree_sitter import Node

_BOM: Final = b"\xef\xbb\xbf"
_SENSORS: Final = ("sensor",)
_NUMBER_LIKE: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

ORDER: Final = (
    "model", "serial", "lab", "certificate", "calibrated", "expires", "recalibrate_months", "slope", "offset",
)  # fmt: skip
"""Keys of a calibration. A missing one goes behind the last of these that is there, else behind the name."""


class CannotEdit(Exception):
    """The text can't be changed as wanted; the message says why. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A key of the sensor's table and its value, as bytes of the text."""

    key: str
    start: int
    end: int
    value_start: int
    value_end: int


@dataclass(frozen=True, slots=True)
class _Sensor:
    """Where a sensor's own pairs stand: each on lines of its own, or ``inline`` between braces."""

    pairs: Mapping[str, _Pair]
    inline: bool


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
    raw = _parsed(content)
    table: dict[str, Any] = raw["sensor"][_position(raw, name)]
    return table


def edited(content: bytes, name: str, values: Mapping[str, str], removed: Collection[str] = ()) -> bytes:
    """The text with these values, as TOML, of a sensor's keys, and without the removed keys.

    A removed key takes its line's comment with it. Raises CannotEdit.
    """
    raw = _parsed(content)
    position = _position(raw, name)
    wanted = copy.deepcopy(raw)
    table = wanted["sensor"][position]
    after = content
    for key in removed:
        if key in table:
            del table[key]
            after = _without(after, position, key)
    for key in sorted(values, key=lambda each: ORDER.index(each) if each in ORDER else len(ORDER)):
        value = tomllib.loads(f"x = {values[key]}")["x"]
        if key in table and _same(table[key], value):
            continue
        table[key] = value
        after = _with(after, position, key, values[key].encode())
    if not _says(after, wanted):
        raise CannotEdit("the file's style is one that can't be edited safely: change it by hand")
    return after


def _says(content: bytes, wanted: Mapping[str, Any]) -> bool:
    try:
        return _parsed(content) == wanted
    except CannotEdit:
        return False


def _same(before: object, after: object) -> bool:
    """1 and 1.0 are the same number; what is typed anew with other digits stays as it was."""
    return before == after and isinstance(before, bool) == isinstance(after, bool)


def _with(content: bytes, position: int, key: str, value: bytes) -> bytes:
    sensor = _sensor(content, position)
    pair = sensor.pairs.get(key)
    if pair is not None:
        return content[: pair.value_start] + value + content[pair.value_end :]
    known = [each for each in sensor.pairs.values() if each.key in ORDER]
    anchor = max(known, key=lambda each: each.start) if known else sensor.pairs.get("name")
    if anchor is None:
        raise CannotEdit(f"there is no place for {key}: add it by hand")
    if sensor.inline:
        return content[: anchor.end] + b", " + key.encode() + b" = " + value + content[anchor.end :]
    begin = content.rfind(b"\n", 0, anchor.start) + 1
    indent = content[begin : anchor.start]
    line = indent + key.encode() + b" = " + value
    end = content.find(b"\n", anchor.end)
    if end < 0:
        return content + _newline(content, len(content)) + line
    return content[: end + 1] + line + _newline(content, end) + content[end + 1 :]


def _newline(content: bytes, at: int) -> bytes:
    """What ends a line here: what ends this one, else what ends the first one."""
    end = at if at < len(content) else content.find(b"\n")
    return b"\r\n" if end > 0 and content[end - 1 : end] == b"\r" else b"\n"


def _without(content: bytes, position: int, key: str) -> bytes:
    sensor = _sensor(content, position)
    pair = sensor.pairs.get(key)
    if pair is None:
        raise CannotEdit(f"{key} can't be removed from here: do it by hand")
    if not sensor.inline:
        end = content.find(b"\n", pair.end)
        return content[: content.rfind(b"\n", 0, pair.start) + 1] + (content[end + 1 :] if end >= 0 else b"")
    # Dotted keys between braces aren't among the pairs: the text between two of ours may hold some.
    comma = pair.end + len(content[pair.end :]) - len(content[pair.end :].lstrip(b" \t"))
    if content[comma : comma + 1] == b",":
        after = comma + 1
        return content[: pair.start] + content[after:].lstrip(b" \t")
    before = content[: pair.start].rstrip(b" \t")
    return before.removesuffix(b",") + content[pair.end :]


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(content.removeprefix(_BOM).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
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


def _sensor(content: bytes, position: int) -> _Sensor:
    import tree_sitter_toml
    from tree_sitter import Language, Parser

    shift = len(_BOM) if content.startswith(_BOM) else 0
    root = Parser(Language(tree_sitter_toml.language())).parse(content[shift:]).root_node
    if root.has_error:
        raise CannotEdit("the file's syntax isn't understood here: change it by hand")
    tables = list(_tables(root))
    if position >= len(tables):
        raise CannotEdit("the sensor's table isn't written as one: change it by hand")
    table, inline = tables[position]
    pairs = {pair.key: pair for pair in _pairs(table, shift)}
    return _Sensor(pairs, inline)


def _tables(root: Node) -> Iterator[tuple[Node, bool]]:
    """The nodes of the sensors' tables in order, and whether they are inline."""
    for node in root.named_children:
        if node.type == "table_array_element" and _key(node.named_children[0]) == _SENSORS:
            yield node, False
        elif node.type == "pair":
            children = _uncommented(node)
            if _key(children[0]) == _SENSORS and children[1].type == "array":
                yield from ((each, True) for each in _uncommented(children[1]))


def _pairs(table: Node, shift: int) -> Iterator[_Pair]:
    for node in table.named_children:
        if node.type != "pair":
            continue
        key, value = _uncommented(node)[:2]
        parts = _key(key)
        if len(parts) == 1:
            yield _Pair(
                parts[0],
                node.start_byte + shift,
                node.end_byte + shift,
                value.start_byte + shift,
                value.end_byte + shift,
            )


def _uncommented(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type != "comment"]


def _key(node: Node) -> tuple[str, ...]:
    try:
        return split_key((node.text or b"").decode())
    except ValueError:
        return ()
