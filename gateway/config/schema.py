"""The config's JSON Schema, for editors: pydantic's, of the dataclasses that validate it, plug-ins included.

It has each key by itself; relations of keys (pins, pairs, overlapping filters) are ``fieldgate check``'s.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Union

from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.config import ExtraValues
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from cloud.toml_problems import show
from cloud.wire.quantities import QUANTITIES
from drivers.boards.registry import BOARDS
from drivers.option_docs import Meaning
from drivers.registry import driver_type
from gateway.config.board import DEFAULT_KIND
from gateway.config.bridges.forwards import PAYLOADS
from gateway.config.bridges.model import DownlinkConfig
from gateway.config.keys import flat
from gateway.config.model import SECTIONS, SensorCommon
from gateway.config.outputs.model import ActuatorConfig, InterlockConfig
from gateway.config.quality_rules import QualityRules
from gateway.config.quantities import QuantityConfig

Json = dict[str, Any]

_DEFAULT_CHOICES: Final = {"kind": DEFAULT_KIND, "payload": "reading"}
"""Which table is meant where the key that decides isn't there."""
_CHOICES: Final = {
    "kind": "what the sensors are wired to",
    "payload": "what the device publishes",
    "driver": "what kind of sensor it is",
}


class _EditorSchema(GenerateJsonSchema):
    """pydantic's without nulls and titles, and with the problems of a table's own kind."""

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

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> Json:
        """``if`` and ``then`` for each kind: of ``oneOf`` an editor shows only that none fits."""
        key = str(schema["discriminator"])
        default = _DEFAULT_CHOICES.get(key)
        cases = []
        for name, table in schema["choices"].items():
            when: Json = {"properties": {key: {"const": name}}}
            if name != default:
                when["required"] = [key]
            cases.append({"if": when, "then": self.generate_inner(table)})
        choice = {"enum": list(schema["choices"]), "description": _CHOICES[key]}
        required = {} if default is not None else {"required": [key]}
        return {"type": "object", "properties": {key: choice}, **required, "allOf": cases}


def config_schema(drivers: Iterable[str]) -> Json:
    """The schema of a config whose sensors have these drivers. Raises DriverError where one is broken."""
    tables: dict[str, Any] = {
        **SECTIONS,
        "board": _one_of([flat(kind, options, kind=kind) for kind, options in BOARDS.items()], "kind"),
        "quantity": list[QuantityConfig],
        # With those of [[quantity]], whose names aren't known here.
        "quality": _table("quality", dict.fromkeys(QUANTITIES, (QualityRules, None)), extra="allow"),
        "sensor": list[_one_of([_sensor(driver) for driver in drivers], "driver")],  # type: ignore[misc]
        "actuator": list[ActuatorConfig],
        "interlock": list[InterlockConfig],
        "forward": list[_one_of(PAYLOADS.values(), "payload")],  # type: ignore[misc]
        "downlink": list[DownlinkConfig],
    }
    optional = {name: (table, None) for name, table in tables.items() if name != "gateway"}
    config = _table("Config", {"gateway": (tables["gateway"], ...), **optional})
    schema = config.model_json_schema(schema_generator=_EditorSchema)
    about = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "fieldgate's gateway.toml"}
    return {**about, **{key: value for key, value in schema.items() if key != "title"}}


def _one_of(tables: Iterable[type[Any]], key: str) -> Any:
    """A table of several kinds, of which ``key`` decides."""
    return Annotated[Union[tuple(tables)], Field(discriminator=key)]  # noqa: UP007


def _table(name: str, keys: dict[str, Any], extra: ExtraValues = "forbid") -> type[BaseModel]:
    return create_model(name, __config__=ConfigDict(extra=extra), **keys)


def _sensor(driver: str) -> type[Any]:
    """A sensor's table: the keys of all sensors and those of its driver."""
    known = driver_type(driver)
    least = known.min_interval_s
    interval_s = Annotated[
        float, Ge(least), Le(3600), Meaning(f"one reading each so often, at least {show(least)}", "s")
    ]
    tests = Annotated[Mapping[str, Any] | None, Meaning("the quality tests of its channels")]
    own = dataclasses.make_dataclass(
        "own",
        [
            ("interval_s", interval_s, dataclasses.field(default=max(1.0, least))),
            ("quality", tests, dataclasses.field(default=None)),
        ],
    )
    return flat(driver, SensorCommon, own, known.options, driver=driver)


def as_text(drivers: Iterable[str]) -> str:
    """The schema as a file has it. Raises DriverError where a driver is broken."""
    return json.dumps(config_schema(drivers), indent=1, ensure_ascii=False) + "\n"
