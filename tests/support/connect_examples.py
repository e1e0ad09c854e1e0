"""The JDBC sinks of docs/examples/connect, as they follow from the tables: ``python -m …`` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import StructField

from cloud.wire.lake_tables import lake_topic
from spark_jobs.jobs.publish import TABLES
from spark_jobs.platform.schemas import Table

PLACE: Final = Path(__file__).parents[2] / "docs" / "examples" / "connect"
_TYPES: Final = {
    "string": "string", "integer": "int32", "long": "int64", "double": "double", "boolean": "boolean",
    "date": "string",
}  # fmt: skip
_TIME: Final = {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1}
_JSON: Final = {"type": "string", "name": "io.debezium.data.Json", "version": 1}
_JSON_TEXT: Final = ("events", "fields")


def _field(table: Table, field: StructField, *, optional: bool) -> dict[str, Any]:
    kind = field.dataType.typeName()
    if kind == "timestamp":
        of_type: dict[str, Any] = _TIME
    elif kind in ("array", "map") or (table.name, field.name) == _JSON_TEXT:
        of_type = _JSON
    else:
        of_type = {"type": _TYPES[kind]}
    return {"field": field.name, "optional": optional, **of_type}


def schema(table: Table, names: list[str], *, optional: bool) -> str:
    """A JsonConverter's ``schema.content`` of these columns."""
    fields = [_field(table, table.schema[name], optional=optional) for name in names]
    return json.dumps({"type": "struct", "optional": optional, "fields": fields}, separators=(",", ":"))


def sink(table: Table) -> str:
    """A connector's properties."""
    key = schema(table, list(table.key), optional=False)
    value = schema(table, table.schema.names, optional=True)
    return f"""\
# The topic {lake_topic(table.name)} into PostgreSQL's table of schema.sql. To change: connection, topics.
name=lake-{table.name}
connector.class=io.debezium.connector.jdbc.JdbcSinkConnector
topics={lake_topic(table.name)}
connection.url=jdbc:postgresql://127.0.0.1:5432/fieldgate?stringtype=unspecified
connection.username=fieldgate
connection.password=${{file:/etc/kafka/postgresql.properties:password}}
collection.name.format={table.name}
insert.mode=upsert
delete.enabled=true
primary.key.mode=record_key
schema.evolution=none
key.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
key.converter.schema.content={key}
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=true
value.converter.schema.content={value}
"""


def main() -> None:
    for table in TABLES:
        (PLACE / f"{table.name}-sink.properties").write_text(sink(table), encoding="utf-8")


if __name__ == "__main__":
    main()
