"""What the topics of ``publish`` hold, and the tables in the same words."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any, Final

from deltalake import DeltaTable

from cloud.wire.lake_tables import lake_topic
from spark_jobs.jobs.publish import TABLES
from spark_jobs.platform.schemas import Table
from spark_jobs.platform.settings import Settings
from tests.spark.records import rows_of
from tests.support.mast import records
from tests.support.postgres import Postgres

NESTED: Final = {
    table.name: {field.name for field in table.schema if field.dataType.typeName() in ("array", "map")}
    for table in TABLES
}
NESTED["events"].add("fields")


def topic_records(settings: Settings, table: Table) -> list[tuple[str, str | None]]:
    """All records of a table's topic that Kafka has, key and value, those of a key in their order."""
    topic = settings.prefix + lake_topic(table.name)
    found = []
    for message in records(settings.bootstrap_servers, [topic]):
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        found.append((key.decode(), None if value is None else value.decode()))
    return found


def in_topic(settings: Settings, table: Table) -> dict[str, dict[str, Any]]:
    """The newest row of each key, nested columns parsed."""
    rows: dict[str, dict[str, Any]] = {}
    for key, value in topic_records(settings, table):
        if value is None:
            rows.pop(key, None)
            continue
        row = json.loads(value)
        for name in NESTED[table.name]:
            row[name] = None if row[name] is None else json.loads(row[name])
        rows[key] = row
    return rows


def in_table(settings: Settings, table: Table) -> dict[str, dict[str, Any]]:
    """The closed rows of a table, by the key they have in the topic."""
    if not DeltaTable.is_deltatable(settings.table(table.name)):
        return {}
    # A map is a list of pairs.
    maps = {field.name for field in table.schema if field.dataType.typeName() == "map"}
    found = [
        {
            name: _plain(dict(value) if name in maps and value is not None else value)
            for name, value in row.items()
        }
        for row in rows_of(settings, table.name)
    ]
    if table.name == "events":
        found = [{**row, "fields": json.loads(row["fields"])} for row in found]
    return {key_of(table, row): row for row in found if row.get("version", 1) > 0}


def key_of(table: Table, row: dict[str, Any]) -> str:
    return json.dumps({name: row[name] for name in table.key}, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def in_postgres(postgres: Postgres, table: Table) -> dict[str, dict[str, Any]]:
    """The rows of a table in PostgreSQL, by the key they have in the topic."""
    rows = postgres.rows(f"SELECT * FROM {table.name}")  # noqa: S608
    times = {field.name for field in table.schema if field.dataType.typeName() == "timestamp"}
    for row in rows:
        for name in times:
            row[name] = row[name] and _plain(datetime.fromisoformat(row[name]).astimezone(UTC))
    return {key_of(table, row): row for row in rows}
