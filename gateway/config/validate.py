"""Raw TOML values into the config's dataclasses, by pydantic: reports wrong, missing and unknown keys.

Strict (no number from a string, no 1 for true), and unknown keys are forbidden, also in the dataclasses of
drivers: these inherit the configuration of the adapter that validates them. What pydantic finds wrong is
reported in the words of the file's author, with what to write instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from cloud.toml_problems import BOUNDS, TYPES, KeyPath, explain, quote, show, unknown_key
from cloud.wire.quantities import QUANTITIES, Quantities
from drivers.boards.registry import BCM_AT, PLACES
from drivers.option_docs import PIN, Meaning
from gateway.config.keys import Key, field_names, keys_of, table_at
from gateway.config.values import Context

Report = Callable[[KeyPath, str, str | None], None]
"""Notes an error: where, what is wrong, and the nearest right word."""
Unknown = Callable[[str], tuple[str, str | None]]
"""What is wrong with a key that a table doesn't have, and the key that is meant."""

STRICT: Final = ConfigDict(extra="forbid", strict=True)

_T = TypeVar("_T")

_UNKNOWN: Final = "unexpected_keyword_argument"
_CHECKED: Final = "value_error"
_NUMBERS: Final = ("float_type", "int_type", "int_from_float")
_MIB: Final = 1 << 20
_NO_KEY: Final = Key("", None, None, Meaning(""))


def validate(
    kind: type[_T],
    raw: Mapping[str, Any],
    path: KeyPath,
    report: Report,
    unknown: Unknown | None = None,
    quantities: Quantities = QUANTITIES,
) -> _T | None:
    """An instance of a dataclass from its raw keys; its problems are reported.

    None where a key is missing or has a wrong type or bound. Unknown keys and values that only a check of
    ``values`` refuses leave an instance, so that its table's other problems are found too.
    """
    given = dict(raw)
    try:
        return _instance(kind, given, Context(quantities))
    except ValidationError as error:
        details = error.errors(include_url=False)
    found = [(_place(given, each), each) for each in details]
    problems: list[tuple[KeyPath, str, str | None]] = []
    for place, each in sorted(found, key=lambda item: item[1]["type"] != _UNKNOWN):
        # Where text or a table may stand and a table does, that it is no text is beside the point.
        if isinstance(each["input"], Mapping) and any(
            place == other[: len(place)] != other for other, _ in found
        ):
            continue
        problem = (path + place, *_explain(kind, path, place, each, unknown))
        if problem not in problems:
            problems.append(problem)
            report(*problem)
    if any(each["type"] not in (_CHECKED, _UNKNOWN) for each in details):
        return None
    known = {key: value for key, value in given.items() if key in field_names(kind)}
    try:
        return _instance(kind, known, Context(quantities, lenient=True))
    except ValidationError:
        return None


_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def _instance(kind: type[_T], table: Mapping[str, Any], context: Context) -> _T:
    """Raises ValidationError, whose places begin with 0."""
    if kind not in _adapters:
        # Of a tuple: a dataclass alone takes no configuration, one within another type inherits it.
        _adapters[kind] = TypeAdapter(tuple[kind], config=STRICT)  # type: ignore[valid-type]
    # As JSON: in strict mode that allows a path or a date to come as a string, a tuple as a list.
    instance: _T = _adapters[kind].validate_json(json.dumps([table]), context=context)[0]
    return instance


def _place(raw: object, details: ErrorDetails) -> KeyPath:
    """Pydantic's location without the position in the tuple and the names of union members."""
    path: list[str | int] = []
    location = details["loc"][1:]
    for depth, part in enumerate(location):
        items: Mapping[Any, Any] = {}
        if isinstance(raw, Mapping):
            items = raw
        elif isinstance(raw, list):
            items = dict(enumerate(raw))
        if part in items:
            path.append(part)
            raw = items[part]
        elif details["type"] == "missing" and depth == len(location) - 1:
            path.append(part)
    return tuple(path)


def _explain(
    kind: type[Any], path: KeyPath, place: KeyPath, details: ErrorDetails, unknown: Unknown | None
) -> tuple[str, str | None]:
    """What is wrong at a place, and the nearest right word."""
    error, given, context = details["type"], details["input"], details.get("ctx", {})
    table = table_at(kind, place[:-1])
    name = str(place[-1]) if place else ""
    keys = keys_of(table) if table is not None else ()
    key = next((each for each in keys if each.name == name), _NO_KEY)
    if error == _UNKNOWN:
        if unknown is not None and len(place) == 1:
            return unknown(name)
        return unknown_key(name, [each.name for each in keys])
    if error == "missing":
        return ": ".join(filter(None, ("is required", key.meaning.description))), None
    if error in BOUNDS:
        return _out_of_bounds(error, context, key, given) + _otherwise(key, given), None
    if error in TYPES:
        return f"must be {TYPES[error]}, not {quote(given)}{_instead(error, key, given)}", None
    return explain(details, ())


def _out_of_bounds(error: str, context: Mapping[str, Any], key: Key, given: Any) -> str:
    words, bound = BOUNDS[error], next(iter(context.values()))
    if key.name == "address":
        return f"must be {words} {bound:#x}, not {given:#x}"
    if key.meaning.unit == "bytes" and bound >= _MIB:
        return f'must be {words} "{bound >> 20}MiB", not {quote(given)}'
    # "the quantity's unit" is none to be shown.
    unit = key.meaning.unit
    shown = f" {unit}" if unit and not unit.startswith("the ") else ""
    return f"must be {words} {show(bound)}{shown}, not {quote(given)}"


def _otherwise(key: Key, given: Any) -> str:
    """What a figure out of its range may be instead."""
    if key.meaning == PIN and isinstance(given, int) and 27 < given <= PLACES:
        place = f"BCM {BCM_AT[given]}" if given in BCM_AT else "power or ground"
        return f": BCM numbers count, and place {given} on the header is {place}"
    if key.name == "address" and given == 48:
        return " (decimal 48): write 0x48"
    if key.meaning.unit == "s" and given >= 1000:
        return ": seconds count, not milliseconds"
    if key.name == "latitude" and 90 < abs(given) <= 180:
        return ": are latitude and longitude swapped?"
    return ""


def _instead(error: str, key: Key, given: Any) -> str:
    """What to write for a value of the wrong type."""
    match given:
        case str() if error in _NUMBERS:
            number = given.strip().replace(",", ".")
            whole = re.fullmatch(r"[+-]?\d+", number, re.ASCII) and key.name != "address"
            if whole or (error == "float_type" and re.fullmatch(r"[+-]?\d+\.\d+", number, re.ASCII)):
                return f": write {number}, without quotes"
            unit = f", in {key.meaning.unit}" if key.meaning.unit else ""
            return f": write the number alone{unit}" if re.search(r"\d", given) else ""
        case float() if error in _NUMBERS and given == int(given):
            return f": write {int(given)}"
        case "true" | "false" if error == "bool_type":
            return f": write {given}, without quotes"
        case bool():
            return ""
        case int() | float() if error in ("string_type", "path_type"):
            return f": write {quote(str(given))}"
        case [*texts] if error == "string_type" and texts and all(isinstance(each, str) for each in texts):
            return f": write {quote(','.join(texts))}"
    return ""
