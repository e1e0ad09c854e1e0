"""As much of JSON Schema (draft 7) as the config's schema uses; an unknown keyword is an error.

Source: json-schema.org, draft-handrews-json-schema-validation-01.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import Any, Final

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str, date, time),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_SAYS_NOTHING: Final = {"$schema", "$defs", "title", "description", "default", "format", "then"}


def errors(schema: Any, value: Any, path: str = "", root: Any = None) -> Iterator[str]:
    """Where a value is not what a schema allows."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        if not schema:
            yield path
        return
    for keyword, wanted in schema.items():
        if keyword == "$ref":
            yield from errors(root["$defs"][wanted.removeprefix("#/$defs/")], value, path, root)
        elif keyword not in _SAYS_NOTHING:
            yield from _KEYWORDS[keyword](schema, wanted, value, path, root)


def is_valid(schema: Any, value: Any, root: Any = None) -> bool:
    """True where there are no errors."""
    return next(errors(schema, value, "", root), None) is None


def _type(_schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    names = wanted if isinstance(wanted, list) else [wanted]
    if not any(
        isinstance(value, _TYPES[name]) and (name == "boolean") == isinstance(value, bool) for name in names
    ):
        yield path


def _properties(schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in wanted.items():
            if key in value:
                yield from errors(each, value[key], f"{path}.{key}", root)


def _additional(schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key in value:
            if key not in schema.get("properties", {}):
                yield from errors(wanted, value[key], f"{path}.{key}", root)


def _property_names(_schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"{path}.{key}" for key in value if not is_valid(wanted, key, root))


def _required(_schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"{path}.{key}" for key in wanted if key not in value)


def _items(_schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    if isinstance(value, list):
        for position, each in enumerate(value):
            yield from errors(wanted, each, f"{path}[{position}]", root)


def _any_of(_schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    if not any(is_valid(each, value, root) for each in wanted):
        yield path


def _all_of(_schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    for each in wanted:
        yield from errors(each, value, path, root)


def _if(schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    if is_valid(wanted, value, root):
        yield from errors(schema["then"], value, path, root)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _enum(_schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    if not any(_same(each, value) for each in wanted):
        yield path


def _number(compare: Any) -> Any:
    def keyword(_schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
        if isinstance(value, int | float) and not isinstance(value, bool) and not compare(value, wanted):
            yield path

    return keyword


def _size(kind: type, compare: Any) -> Any:
    def keyword(_schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
        if isinstance(value, kind) and not compare(len(value), wanted):  # type: ignore[arg-type]
            yield path

    return keyword


def _pattern(_schema: Any, wanted: Any, value: Any, path: str, root: Any) -> Iterator[str]:
    if isinstance(value, str) and re.search(wanted, value) is None:
        yield path


_KEYWORDS: Final[dict[str, Any]] = {
    "type": _type,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _property_names,
    "required": _required,
    "items": _items,
    "anyOf": _any_of,
    "allOf": _all_of,
    "if": _if,
    "enum": _enum,
    "const": lambda schema, wanted, value, path, root: _enum(schema, [wanted], value, path, root),
    "minimum": _number(lambda value, limit: value >= limit),
    "maximum": _number(lambda value, limit: value <= limit),
    "exclusiveMinimum": _number(lambda value, limit: value > limit),
    "exclusiveMaximum": _number(lambda value, limit: value < limit),
    "minItems": _size(list, lambda size, limit: size >= limit),
    "maxItems": _size(list, lambda size, limit: size <= limit),
    "minProperties": _size(dict, lambda size, limit: size >= limit),
    "maxProperties": _size(dict, lambda size, limit: size <= limit),
    "pattern": _pattern,
}
