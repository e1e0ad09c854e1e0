"""Raw TOML values into frozen dataclasses: every wrong or unknown key found, none of them guessed right.

pydantic checks types and bounds strictly (no number from a string, no 1 for true); unknown keys are found
here, since drivers' options are plain dataclasses that would ignore them.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gateway.config.problems import KeyPath, quote

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

Report = Callable[[KeyPath, str, str | None], None]
"""Notes an error: where, what is wrong, and the nearest right word."""

_T = TypeVar("_T")

_MAX_DEPTH = 16


def validate(kind: type[_T], raw: Mapping[str, Any], path: KeyPath, report: Report) -> _T | None:
    """An instance of a dataclass from its raw keys, or None after its problems were reported."""
    problems = _unknown_keys(kind, raw, path)
    known = {key: value for key, value in raw.items() if key in field_names(kind)}
    from pydantic import ValidationError

    instance: _T | None = None
    try:
        # As JSON: in strict mode that allows a path or a date to come as a string, a tuple as a list.
        instance = _adapter(kind).validate_json(json.dumps(known, default=_as_text), strict=True)
    except ValidationError as error:
        all_details = error.errors(include_url=False, include_context=True)
        places = [_place(known, details) for details in all_details]
        for details, place in zip(all_details, places, strict=True):
            # Where text or a table may stand and a table does, that it is no text says nothing.
            deeper = any(len(other) > len(place) and other[: len(place)] == place for other in places)
            if deeper and isinstance(details["input"], Mapping):
                continue
            found = path + place
            message, suggestion = _explain(details, kind)
            if (found, message, suggestion) not in problems:
                problems.append((found, message, suggestion))
    for problem in problems:
        report(*problem)
    return instance if not problems else None


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a dataclass."""
    return tuple(field.name for field in dataclasses.fields(kind))


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word most like this one, or None where none is like it."""
    by_lower = {candidate.lower(): candidate for candidate in words}
    found = difflib.get_close_matches(word.lower()[:100], by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def unknown_key(key: str, names: Sequence[str], owner: str = "") -> tuple[str, str | None]:
    """What to say of a key that isn't one of ``names``: the one most like it, or else all of them."""
    guess = nearest(key, names)
    message = f"is not a known key of {owner}" if owner else "is not a known key"
    return (message if guess is not None else f"{message}; there are {', '.join(names) or 'none'}"), guess


def unstorable(value: object, path: KeyPath = ()) -> Iterable[tuple[KeyPath, str]]:
    """Values that TOML can write and nothing here can mean: infinite, beyond 64 bits, nested without end."""
    if len(path) > _MAX_DEPTH:
        yield path, "is nested too deeply"
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, f"must be a finite number, not {value}"
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        yield path, "is beyond 64 bits"
    elif isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        yield path, "is not UTF-8"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from unstorable(item, (*path, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from unstorable(item, (*path, position))


_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[_T]) -> TypeAdapter[_T]:
    from pydantic import TypeAdapter

    # Building one takes milliseconds, and a mast has a dozen cups.
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _unknown_keys(
    kind: type[Any], raw: Mapping[str, Any], path: KeyPath
) -> list[tuple[KeyPath, str, str | None]]:
    problems: list[tuple[KeyPath, str, str | None]] = []
    hints = get_type_hints(kind)
    for key, value in raw.items():
        if key not in field_names(kind):
            problems.append(((*path, key), *unknown_key(key, field_names(kind))))
        elif isinstance(value, Mapping):
            problems += _unknown_nested(hints[key], value, (*path, key))
        elif isinstance(value, list):
            for position, item in enumerate(value):
                if isinstance(item, Mapping):
                    problems += _unknown_nested(hints[key], item, (*path, key, position))
    return problems


def _unknown_nested(
    hint: Any, raw: Mapping[str, Any], path: KeyPath
) -> list[tuple[KeyPath, str, str | None]]:
    problems: list[tuple[KeyPath, str, str | None]] = []
    for nested in _dataclasses_of(hint):
        problems += _unknown_keys(nested, raw, path)
    if get_origin(hint) in (Mapping, dict):
        for key, item in raw.items():
            if isinstance(item, Mapping):
                problems += _unknown_nested(get_args(hint)[1], item, (*path, key))
    return problems


def _dataclasses_of(hint: Any) -> list[type[Any]]:
    """The one dataclass a hint allows, also inside a union or a tuple; none where it allows several."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return [hint]
    if get_origin(hint) in (Union, UnionType, tuple):
        found = [nested for option in get_args(hint) for nested in _dataclasses_of(option)]
        return found if len(found) == 1 else []
    return []


def _place(raw: object, details: ErrorDetails) -> KeyPath:
    """Pydantic's location without the names of union members it puts in between."""
    path: list[str | int] = []
    for depth, part in enumerate(details["loc"]):
        items: Mapping[Any, Any] = {}
        if isinstance(raw, Mapping):
            items = raw
        elif isinstance(raw, list):
            items = dict(enumerate(raw))
        if part in items:
            path.append(part)
            raw = items[part]
        elif details["type"] == "missing" and depth == len(details["loc"]) - 1:
            path.append(part)
    return tuple(path)


_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
}
_TYPES = {
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


def _explain(details: ErrorDetails, kind: type[Any]) -> tuple[str, str | None]:
    """What is wrong in the words of the file's author, and the nearest right word."""
    error, given = details["type"], details["input"]
    context = details.get("ctx", {})
    if error == "missing":
        return "is required", None
    if error in _BOUNDS:
        name, words = _BOUNDS[error]
        as_hex = details["loc"][-1:] == ("address",) and isinstance(given, int)
        show = hex if as_hex else quote
        return f"must be {words} {show(context[name])}, not {show(given)}", None
    if error in _TYPES:
        return f"must be {_TYPES[error]}, not {quote(given)}", None
    if error == "literal_error":
        choices = _choices(kind, details["loc"])
        words = ", ".join(quote(choice) for choice in choices) or context["expected"]
        guess = nearest(given, [c for c in choices if isinstance(c, str)]) if isinstance(given, str) else None
        one_of = "one of " if len(choices) > 1 else ""
        return f"must be {one_of}{words}, not {quote(given)}", guess
    if error == "value_error":
        return str(context.get("error", details["msg"])), None
    message = details["msg"]
    return f"{message[:1].lower()}{message[1:]}, not {quote(given)}", None


def _choices(kind: Any, location: tuple[int | str, ...]) -> tuple[Any, ...]:
    """What the Literal at a location allows."""
    for part in location:
        if isinstance(part, int):
            # A position in a list: what the list holds has been looked into already.
            continue
        if not dataclasses.is_dataclass(kind):
            break
        kind = get_type_hints(kind).get(str(part))
        nested = _dataclasses_of(kind)
        kind = nested[0] if nested else kind
    return tuple(_literals(kind))


def _literals(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif get_origin(hint) in (Union, UnionType, tuple):
        for option in get_args(hint):
            yield from _literals(option)
