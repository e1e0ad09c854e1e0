"""The config's JSON Schema, for editors: derived from the dataclasses that validate it, plug-ins included.

Draft 7, which the TOML editors understand. It knows each key by itself; what keys say of one another
(pins, pairs, overlapping filters) only ``fieldgate check`` knows.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt

from cloud.wire.schema import UNITS
from drivers.boards.registry import BOARDS
from drivers.registry import driver_type
from gateway.config.board import DEFAULT_KIND
from gateway.config.keys import Key, keys_of
from gateway.config.model import SECTIONS, SHORTEST_TOKEN, ForwardConfig, SensorCommon
from gateway.config.quality_rules import QualityOptions

_SIZE: Final = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^\s*\d{1,15}(\.\d{1,9})?\s*([kKmMgGtT][iI]?)?[bB]?\s*$"},
    ]
}
_REFERENCE: Final = {
    "type": "object",
    "properties": {
        "credential": {"type": "string", "description": "its name in LoadCredential= of the service"},
        "file": {"type": "string", "description": "the file that holds it"},
    },
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}
_PROPERTIES: Final = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "number", "boolean"]},
            {
                "type": "object",
                "description": "a dotted key; or { credential = … } or { file = … }",
            },
        ]
    },
}
_SPELT: Final[Mapping[tuple[str, str], dict[str, Any]]] = {
    ("gateway", "id"): {"type": "string", "pattern": "^[a-z0-9-]{1,63}$"},
    ("mqtt", "password"): {"anyOf": [{"type": "string"}, _REFERENCE]},
    ("status", "token"): {
        "anyOf": [{"type": "string", "pattern": f"^[A-Za-z0-9_-]{{{SHORTEST_TOKEN},}}$"}, _REFERENCE]
    },
    ("kafka", "properties"): _PROPERTIES,
    ("outbox", "max_bytes"): _SIZE,
    ("outbox", "min_free_disk"): _SIZE,
    ("sensor", "name"): {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
}
"""Values that the file spells otherwise than the dataclass, or whose spelling is checked by hand."""
_LIMITS: Final = {Ge: ("ge", "minimum"), Le: ("le", "maximum"), Gt: ("gt", "exclusiveMinimum"),
                  Lt: ("lt", "exclusiveMaximum")}  # fmt: skip
_PLAIN: Final[Mapping[Any, str]] = {
    str: "string", Path: "string", int: "integer", float: "number", bool: "boolean", date: "string",
}  # fmt: skip


def config_schema(drivers: Iterable[str]) -> dict[str, Any]:
    """The schema of a config whose sensors have these drivers. Raises DriverError where one is broken."""
    sections = {name: _table(kind, name) for name, kind in SECTIONS.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "fieldgate's gateway.toml",
        "type": "object",
        "properties": {
            **sections,
            "board": _board(),
            "quality": _by_quantity(),
            "sensor": {"type": "array", "items": _sensor(tuple(drivers))},
            "forward": {"type": "array", "items": _table(ForwardConfig, "forward")},
        },
        "definitions": {"tests": _table(QualityOptions, "quality")},
        "required": ["gateway"],
        "additionalProperties": False,
    }


def as_text(drivers: Iterable[str]) -> str:
    """The schema as a file has it. Raises DriverError where a driver is broken."""
    return json.dumps(config_schema(drivers), indent=1, ensure_ascii=False) + "\n"


def _table(kind: type[Any], section: str, also: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A table with the keys of a dataclass, and ``also`` these; no others."""
    keys = keys_of(kind)
    table: dict[str, Any] = {
        "type": "object",
        "properties": {**(also or {}), **{key.name: _key(key, section) for key in keys}},
        "additionalProperties": False,
    }
    required = [key.name for key in keys if key.required]
    return {**table, "required": required} if required else table


def _by_quantity() -> dict[str, Any]:
    """The quality tests of each quantity."""
    tests = {quantity: {"$ref": "#/definitions/tests"} for quantity in UNITS}
    return {"type": "object", "properties": tests, "additionalProperties": False}


def _board() -> dict[str, Any]:
    kind = {"enum": list(BOARDS), "default": DEFAULT_KIND, "description": "what the sensors are wired to"}
    cases = []
    for name, options in BOARDS.items():
        given: dict[str, Any] = {"properties": {"kind": {"const": name}}}
        if name != DEFAULT_KIND:
            given["required"] = ["kind"]
        cases.append({"if": given, "then": _table(options, "board", {"kind": {"const": name}})})
    return {"type": "object", "properties": {"kind": kind}, "allOf": cases}


def _sensor(drivers: tuple[str, ...]) -> dict[str, Any]:
    """A sensor: which keys it has depends on its driver."""
    own = _table(SensorCommon, "sensor")
    # Its tests, or a table of tests for each of its quantities; which they are, check knows.
    own["properties"]["quality"] = {"type": "object", "description": "the quality tests of its channels"}
    own["properties"]["driver"] |= {"enum": list(drivers)}
    cases = []
    for name in drivers:
        known = driver_type(name)
        table = _table(known.options, "sensor")
        # What is said of every sensor is said once, above; here it is only allowed.
        common: dict[str, Any] = dict.fromkeys(own["properties"], True)
        least = known.min_interval_s
        default = max(1.0, least)
        common["interval_s"] = {
            "minimum": least,
            "default": int(default) if default == int(default) else default,
        }
        table["properties"] = {**common, **table["properties"]}
        cases.append(
            {"if": {"properties": {"driver": {"const": name}}, "required": ["driver"]}, "then": table}
        )
    del own["additionalProperties"]
    return {**own, "allOf": cases}


def _key(key: Key, section: str) -> dict[str, Any]:
    value = dict(_SPELT.get((section, key.name)) or _value(key.hint, section))
    if key.meaning is not None:
        unit = f" ({key.meaning.unit})" if key.meaning.unit else ""
        value["description"] = f"{key.meaning.text}{unit}"
    if not key.required and isinstance(key.default, str | int | float | bool):
        value["default"] = key.default
    elif isinstance(key.default, Path):
        value["default"] = str(key.default)
    return value


def _value(hint: Any, section: str) -> dict[str, Any]:
    """The schema of a type with its bounds."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = [each for each in arguments[1:] if type(each) in _LIMITS]
        limits = {_LIMITS[type(each)][1]: getattr(each, _LIMITS[type(each)][0]) for each in bounds}
        return {**_value(arguments[0], section), **limits}
    if origin in (Union, UnionType):
        options = [_value(each, section) for each in arguments if each is not type(None)]
        return options[0] if len(options) == 1 else {"anyOf": options}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return {"type": "array", "items": _value(arguments[0], section)}
        size = len(arguments)
        return {"type": "array", "items": _value(arguments[0], section), "minItems": size, "maxItems": size}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _table(hint, "")
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _value(arguments[1], section)}
    return {"type": _PLAIN[hint]} if hint in _PLAIN else {}
