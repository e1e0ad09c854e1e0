"""Raw TOML values into frozen dataclasses: every wrong or unknown key found, none of them guessed right.

pydantic checks types and bounds strictly (no number from a string, no 1 for true); unknown keys are found
here, since drivers' options are plain dataclasses that would ignore them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin

from gateway.config.explain import explain
from gateway.config.keys import dataclasses_of, field_names, hints_of
from gateway.config.problems import KeyPath, quote
from gateway.config.suggestions import misplaced

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
    for key in [key for key, value in known.items() if isinstance(value, date | time)]:
        # TOML knows dates, JSON doesn't: as text they would pass for any text.
        if str in _options(hints_of(kind)[key]) and date not in _options(hints_of(kind)[key]):
            text = quote(_as_text(known.pop(key)))
            problems.append(((*path, key), f'must be a string, in "quotes": write {text}', None))
            known[key] = ""
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
            message, suggestion = explain(details, kind)
            if (found, message, suggestion) not in problems:
                problems.append((found, message, suggestion))
    for problem in problems:
        report(*problem)
    return instance if not problems else None


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


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


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
    hints = hints_of(kind)
    for key, value in raw.items():
        if key not in field_names(kind):
            problems.append(((*path, key), *misplaced(key, field_names(kind), path)))
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
    for nested in dataclasses_of(hint):
        problems += _unknown_keys(nested, raw, path)
    if get_origin(hint) in (Mapping, dict):
        for key, item in raw.items():
            if isinstance(item, Mapping):
                problems += _unknown_nested(get_args(hint)[1], item, (*path, key))
    return problems


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
