"""What pydantic found wrong with a value, in the words of the file's author: what to write instead."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from datetime import date
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, Union, get_args, get_origin

from drivers.boards.pi_header import BCM_AT, PLACES
from drivers.option_docs import PIN
from gateway.config.keys import Key, dataclasses_of, hints_of, keys_of, nearest
from gateway.config.problems import quote, show
from gateway.config.suggestions import number_in

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_BOUNDS: Final = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
}
_TYPES: Final = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": 'a string, in "quotes"',
    "bool_type": "true or false",
    "path_type": 'a path, in "quotes"',
    "date_type": "a date, as in 2026-11-21",
    "date_parsing": "a date, as in 2026-11-21",
    "date_from_datetime_parsing": "a date, as in 2026-11-21",
    "date_from_datetime_inexact": "a date without a time of day, as in 2026-11-21",
    "tuple_type": "a list, in [brackets]",
    "list_type": "a list, in [brackets]",
    "dict_type": "a table",
    "dataclass_type": "a table, as in { key = value }",
    "dataclass_exact_type": "a table, as in { key = value }",
}
_NUMBERS: Final = ("float_type", "int_type", "int_from_float")
_MIB: Final = 1 << 20


def explain(details: ErrorDetails, kind: type[Any]) -> tuple[str, str | None]:
    """What is wrong, and the nearest right word."""
    error, given = details["type"], details["input"]
    context = details.get("ctx", {})
    name = next((part for part in reversed(details["loc"]) if isinstance(part, str)), "")
    key = _key_at(kind, details["loc"])
    if error == "missing":
        return _required(key), None
    if error in _BOUNDS:
        return _out_of_bounds(error, context, name, key, given), None
    if error in _TYPES:
        return f"must be {_TYPES[error]}, not {quote(given)}{_instead(error, name, key, given)}", None
    if error == "literal_error":
        return _no_choice(kind, details)
    if error == "value_error":
        return str(context.get("error", details["msg"])), None
    message = details["msg"]
    return f"{message[:1].lower()}{message[1:]}, not {quote(given)}", None


def _required(key: Key | None) -> str:
    if key is None or key.meaning is None:
        return "is required"
    unit = f" ({key.meaning.unit})" if key.meaning.unit else ""
    return f"is required: {key.meaning.text}{unit}"


def _out_of_bounds(error: str, context: Mapping[str, Any], name: str, key: Key | None, given: Any) -> str:
    limit, words = _BOUNDS[error]
    bound, unit = context[limit], key.meaning.unit if key is not None and key.meaning is not None else ""
    if name == "address" and isinstance(given, int):
        hexed = int(str(given), 16) if given >= 0 else 0
        right = f" (decimal {given}): write {hexed:#x}" if 0x48 <= hexed <= 0x4B and given != hexed else ""
        return f"must be {words} {bound:#x}, not {given:#x}{right}"
    if unit.startswith("the "):
        # "the quantity's unit" says nothing here.
        unit = ""
    if unit == "bytes" and bound >= _MIB:
        return f'must be {words} "{bound >> 20}MiB", not {quote(given)}'
    shown = show(bound) if isinstance(bound, int | float) else quote(bound)
    least = f"must be {words} {shown}{' ' + unit if unit else ''}, not {quote(given)}"
    return least + _otherwise(name, key, given)


def _otherwise(name: str, key: Key | None, given: Any) -> str:
    """What a figure out of its range may be instead."""
    if key is not None and key.meaning == PIN and isinstance(given, int) and 27 < given <= PLACES:
        if given in BCM_AT:
            return f": BCM numbers count, and place {given} on the header is BCM {BCM_AT[given]}"
        return f": BCM numbers count, and place {given} on the header is power or ground"
    if key is not None and key.meaning is not None and key.meaning.unit == "s" and given >= 1000:
        return ": seconds count, not milliseconds"
    if name == "latitude" and isinstance(given, int | float) and 90 < abs(given) <= 180:
        return ": are latitude and longitude swapped?"
    return ""


def _instead(error: str, name: str, key: Key | None, given: Any) -> str:
    """What to write for a value of the wrong type."""
    if error in _NUMBERS and isinstance(given, str):
        number = number_in(given) if name != "address" else None
        if number is not None and (error == "float_type" or "." not in number):
            return f": write {number}, without quotes"
        unit = f", in {key.meaning.unit}" if key is not None and key.meaning and key.meaning.unit else ""
        return f": write the number alone{unit}" if re.search(r"\d", given) else ""
    if error in _NUMBERS and isinstance(given, float) and given == int(given):
        return f": write {int(given)}"
    if error == "bool_type" and isinstance(given, str) and given.lower() in ("true", "false"):
        return f": write {given.lower()}, without quotes"
    if (
        error in ("string_type", "path_type")
        and isinstance(given, int | float)
        and not isinstance(given, bool)
    ):
        return f": write {quote(str(given))}"
    if error == "string_type" and isinstance(given, list) and all(isinstance(each, str) for each in given):
        return f": write {quote(','.join(given))}" if given else ""
    if error == "string_type" and isinstance(given, date):
        return f": write {quote(given.isoformat())}"
    return ""


def _no_choice(kind: type[Any], details: ErrorDetails) -> tuple[str, str | None]:
    given = details["input"]
    choices = _choices(kind, details["loc"])
    words = ", ".join(quote(choice) for choice in choices) or details.get("ctx", {})["expected"]
    texts = [choice for choice in choices if isinstance(choice, str)]
    guess = nearest(str(given), texts) if isinstance(given, str | int | float) else None
    right = next((choice for choice in choices if str(choice) == str(given)), None)
    if right is not None and not isinstance(given, bool):
        return f"must be {quote(right)}, not {quote(given)}", None
    return f"must be {'one of ' if len(choices) > 1 else ''}{words}, not {quote(given)}", guess


def _key_at(kind: Any, location: tuple[int | str, ...]) -> Key | None:
    """The key at a location; None within a list or where several types are allowed."""
    found: Key | None = None
    for part in location:
        if not dataclasses.is_dataclass(kind) or not isinstance(kind, type):
            break
        found = next((key for key in keys_of(kind) if key.name == part), None)
        nested = dataclasses_of(hints_of(kind).get(str(part)))
        kind = nested[0] if nested else None
    return found


def _choices(kind: Any, location: tuple[int | str, ...]) -> tuple[Any, ...]:
    """What the Literal at a location allows."""
    for part in location:
        if isinstance(part, int):
            # A position in a list: what the list holds has been looked into already.
            continue
        if not dataclasses.is_dataclass(kind) or not isinstance(kind, type):
            break
        kind = hints_of(kind).get(str(part))
        nested = dataclasses_of(kind)
        kind = nested[0] if nested else kind
    return tuple(_literals(kind))


def _literals(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif get_origin(hint) in (Union, UnionType, tuple):
        for option in get_args(hint):
            yield from _literals(option)
