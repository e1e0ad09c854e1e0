"""The config's JSON Schema, for editors (taplo and others): the keys' types, bounds and meanings.

What one key decides alone is here; what ``check`` compares isn't. Keys that several kinds of a table share
are there once: which of the others each kind has stands in ``propertyNames``, as draft 7 has no better word.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from cloud.wire.quantities import QUANTITIES
from drivers.boards.registry import BOARDS
from drivers.registry import driver_type
from gateway.config.bridges.reading import PAYLOADS
from gateway.config.model import ARRAYS, SECTIONS, SensorCommon
from gateway.config.quality import QualityRules
from gateway.config.wiring import DEFAULT_KIND

Json = dict[str, Any]

_QUALITY: Final = {"type": "object", "description": "the quality tests of its channels"}
_KIND: Final = {"description": "what the sensors are wired to"}


class _EditorSchema(GenerateJsonSchema):
    """pydantic's without nulls and titles; unknown keys are errors in dataclasses too."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> Json:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Json:
        found = super().default_schema(schema)
        if isinstance(found.get("default"), dict | list | None):
            found.pop("default", None)
        return found

    def tuple_schema(self, schema: core_schema.TupleSchema) -> Json:
        found = super().tuple_schema(schema)
        if "prefixItems" in found:
            # Draft 7 has no other word for it, and the items are alike.
            found["items"] = found.pop("prefixItems")[0]
        return found

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Json:
        return {**super().dataclass_schema(schema), "additionalProperties": False}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class _Tables:
    """The schemas of dataclasses; of those within them there are references."""

    def __init__(self, kinds: Collection[type[Any]]) -> None:
        adapters: list[Any] = [(kind, "validation", TypeAdapter(kind)) for kind in kinds]
        found, rest = TypeAdapter.json_schemas(adapters, schema_generator=_EditorSchema)
        self.references: dict[type[Any], Json] = {kind: found[kind, "validation"] for kind in kinds}
        self.definitions: Json = rest.get("$defs", {})

    def whole(self, kind: type[Any]) -> Json:
        """A dataclass' own schema, which is taken out of the definitions; None of its keys is refused."""
        table = self.references[kind]
        if "$ref" in table:
            table = self.definitions.pop(table["$ref"].rpartition("/")[2], table)
        return {key: each for key, each in table.items() if key in ("type", "properties", "required")}


def config_schema(drivers: Iterable[str]) -> Json:
    """The schema of a config whose sensors have these drivers. Raises DriverError where one is broken."""
    known = {name: driver_type(name) for name in drivers}
    options = [driver.options for driver in known.values()]
    kinds = [*SECTIONS.values(), *ARRAYS.values(), SensorCommon, QualityRules, *BOARDS.values(), *options]
    tables = _Tables(kinds)
    sensor = tables.whole(SensorCommon)
    sensor["properties"]["quality"] = _QUALITY
    sensors = {}
    for name, driver in known.items():
        own = tables.whole(driver.options)
        own["properties"]["interval_s"] = {"minimum": driver.min_interval_s}
        sensors[name] = _only({*sensor["properties"], *own["properties"]}, own)
    boards = {name: tables.whole(kind) for name, kind in BOARDS.items()}
    boards = {name: _only({"kind", *own["properties"]}, own) for name, own in boards.items()}
    board = {"type": "object", "properties": {"kind": _KIND}}
    payloads = {name: _only(keys, {}) for name, keys in PAYLOADS.items()}
    rules = tables.references[QualityRules]
    arrays = {name: tables.references[kind] for name, kind in ARRAYS.items()}
    arrays["sensor"] = _of_kinds(sensor, "driver", sensors)
    arrays["forward"] = _of_kinds(tables.whole(ARRAYS["forward"]), "payload", payloads, "reading")
    schema: Json = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "fieldgate's gateway.toml",
        "type": "object",
        "properties": {
            **{name: tables.references[kind] for name, kind in SECTIONS.items()},
            "board": _of_kinds(board, "kind", boards, DEFAULT_KIND),
            # Those of [[quantity]] too, whose names aren't known here.
            "quality": {
                "type": "object",
                "properties": dict.fromkeys(QUANTITIES, rules),
                "additionalProperties": rules,
            },
            **{name: {"type": "array", "items": table} for name, table in arrays.items()},
        },
        "required": ["gateway"],
        "additionalProperties": False,
        "$defs": tables.definitions,
    }
    text = json.dumps(schema)
    schema["$defs"] = {name: each for name, each in tables.definitions.items() if f'"#/$defs/{name}"' in text}
    return schema


def _only(names: Iterable[str], own: Json) -> Json:
    """Keys of one kind alone, with the names of all that it may have."""
    return {**own, "propertyNames": {"enum": sorted(names)}}


def _of_kinds(table: Json, key: str, kinds: Mapping[str, Json], default: str | None = None) -> Json:
    """A table of several kinds, of which ``key`` decides; ``default`` where it isn't there.

    ``if`` and ``then`` for each: where ``oneOf`` doesn't fit, an editor shows only that.
    """
    cases = []
    for name, kind in kinds.items():
        when: Json = {"properties": {key: {"const": name}}}
        if name != default:
            when["required"] = [key]
        cases.append({"if": when, "then": kind})
    choice = {**table["properties"][key], "enum": list(kinds)}
    return {**table, "properties": {**table["properties"], key: choice}, "allOf": cases}


def as_text(drivers: Iterable[str]) -> str:
    """The schema as a file has it. Raises DriverError where a driver is broken."""
    return json.dumps(config_schema(drivers), indent=1, ensure_ascii=False) + "\n"
