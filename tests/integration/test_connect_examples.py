"""The examples of Connect, PostgreSQL and Grafana: as the tables and metrics are, and run where they can."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from cloud.exports import fieldgate
from gateway.status import metrics
from spark_jobs.jobs.publish import TABLES
from spark_jobs.platform.metrics import REGISTRY
from spark_jobs.platform.schemas import Table
from tests.support import connect_examples, grafana_examples
from tests.support.fleet_lake import write_fleet
from tests.support.grafana_examples import DASHBOARDS, POSTGRES, PROMETHEUS
from tests.support.postgres import SCHEMA, Postgres, running_postgres
from tests.support.status import channel, status

ROOT = Path(__file__).parents[2]
_TYPES = {
    "string": "text", "integer": "integer", "long": "bigint", "double": "double precision",
    "boolean": "boolean", "timestamp": "timestamp with time zone", "date": "date",
    "array": "jsonb", "map": "jsonb",
}  # fmt: skip
AT = "2026-05-28T20:20:00.000000Z"
_MACROS = {
    r"\$__timeFilter\((\w+)\)": r"\1 BETWEEN '2026-05-28T00:00:00Z' AND '2026-05-29T00:00:00Z'",
    r"\$__timeGroupAlias\((\w+), '1(d|h)'\)": r"date_trunc('hour', \1) AS time",
    r"\$\{gateway:sqlstring\}": "'mast-07'",
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A mast's rows of every table."""
    with running_postgres() as running:
        row: dict[str, Any] = {"gateway": "mast-07", "updated_at": AT, "date": "2026-05-28", "version": 1}
        wind = {
            "channel": "cup.wind_speed",
            "quantity": "wind_speed",
            "unit": "m/s",
            "avg": 7.5,
            "recovery": 1.0,
        }
        start = {"interval_s": 600, "interval_start": AT}
        give(running, "statistics", row | wind | start | {"gust": 9.25})
        vane = {"channel": "vane.wind_direction", "quantity": "wind_direction", "unit": "°", "avg": 271.0}
        give(running, "statistics", row | vane | start)
        give(running, "statistics", row | vane | start | {"channel": "air.t", "quantity": "temperature"})
        give(running, "mast", row | start | {"turbulence_intensity": '{"cup.wind_speed": 0.125}'})
        for name in ("cup.wind_speed", "new.co2"):
            seen = {"channel": name, "last_seen": AT, "last_time": AT, "last_value": 7.25, "state": "silent"}
            give(running, "presence", row | seen | {"lost": 3})
        give(
            running, "events", row | {"id": "5d1c", "time": AT, "kind": "site-moved", "fields": '{"m": 900}'}
        )
        alert = {"rule": "icing", "severity": "warning", "raised_at": AT, "historical": False}
        give(running, "alerts", row | {"id": "a1"} | alert)
        yield running


def give(postgres: Postgres, table: str, row: dict[str, Any]) -> None:
    (columns,) = [each for each in TABLES if each.name == table]
    key = {name: row[name] for name in columns.key}
    postgres.take(table, [(json.dumps(key), json.dumps(row))])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_sink_has_the_columns_of_its_table(table: Table) -> None:
    """After a change: ``python -m tests.support.connect_examples``."""
    file = connect_examples.PLACE / f"{table.name}-sink.properties"
    assert file.read_text(encoding="utf-8") == connect_examples.sink(table)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_as_its_panels_say(name: str) -> None:
    """After a change: ``python -m tests.support.grafana_examples``."""
    file = grafana_examples.PLACE / f"{name}.json"
    assert file.read_text(encoding="utf-8") == grafana_examples.text(name)


def test_no_other_examples_lie_there() -> None:
    sinks = {f"{table.name}-sink.properties" for table in TABLES}
    assert _names(connect_examples.PLACE) == sinks | {"worker.properties", SCHEMA.name}
    assert _names(grafana_examples.PLACE) == {f"{name}.json" for name in DASHBOARDS}


def _names(place: Path) -> set[str]:
    return {each.name for each in place.iterdir()}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_postgresql_has_the_columns_of_a_table(postgres: Postgres, table: Table) -> None:
    expected = {field.name: _TYPES[field.dataType.typeName()] for field in table.schema}
    if table.name == "events":
        expected["fields"] = "jsonb"
    assert postgres.columns(table.name) == expected


def test_views_name_the_last_value_and_the_statistics(postgres: Postgres) -> None:
    last = {row["channel"]: row for row in postgres.rows("SELECT * FROM last_values")}
    cup = last["cup.wind_speed"]
    assert (cup["sensor"], cup["quantity"], cup["unit"], cup["last_value"]) == (
        "cup",
        "wind_speed",
        "m/s",
        7.25,
    )
    assert last["new.co2"]["unit"] is None
    (row,) = postgres.rows("SELECT * FROM statistics_named WHERE sensor = 'cup'")
    assert (row["label"], row["interval_end"]) == ("cup wind speed (m/s)", "2026-05-28T20:30:00+00:00")


def test_only_a_newer_row_replaces_one(postgres: Postgres) -> None:
    row = {"gateway": "m", "channel": "c", "interval_s": 600, "interval_start": AT, "date": "2026-05-28"}
    for version, updated_at in ((2, "2026-05-28T22:00:00Z"), (1, "2026-05-28T21:59:59.999999Z")):
        give(postgres, "statistics", row | {"version": version, "updated_at": updated_at})
    one = "SELECT version FROM statistics WHERE gateway = 'm'"
    assert postgres.rows(one) == [{"version": 2}]
    # A lake that was made anew.
    give(postgres, "statistics", row | {"version": 1, "updated_at": "2026-06-01T00:00:00Z"})
    assert postgres.rows(one) == [{"version": 1}]
    postgres.run("-c", "DELETE FROM statistics WHERE gateway = 'm'")


def test_the_pages_copy_is_the_lakes_table(postgres: Postgres, tmp_path: Path) -> None:
    write_fleet(tmp_path / "lake", 1, 1, end=datetime(2026, 5, 30, tzinfo=UTC))
    page = (ROOT / "docs" / "connect.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"^```sh\n(createdb.*?)^```$", page, re.MULTILINE | re.DOTALL)
    given = commands.replace(".venv/bin/fieldgate", f"{sys.executable} -m gateway.cli")
    given = given.replace("docs/examples", f"{ROOT}/docs/examples")
    again = given.splitlines()[-1]
    environment = {**os.environ, **postgres.environment, "PYTHONPATH": str(ROOT)}
    means = "SELECT channel, avg(avg), count(*) FROM statistics GROUP BY channel ORDER BY channel"
    ask = f"psql -d fieldgate -XqAt -F ' ' -c '{means}'"
    done = subprocess.run(
        ("bash", "-e", "-o", "pipefail", "-c", f"exec 3>&1 >/dev/null\n{given}{again}\n{ask} >&3"),
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = fieldgate.open(tmp_path / "lake").sql(means).to_pandas()
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [(name, int(count)) for name, _, count in rows] == [
        (channel, count) for channel, _, count in expected.itertuples(index=False)
    ]
    assert [float(mean) for _, mean, _ in rows] == pytest.approx(expected.iloc[:, 1].tolist())


@pytest.mark.parametrize(
    "panel",
    [panel for panels in DASHBOARDS.values() for panel in panels if panel.source == POSTGRES],
    ids=lambda panel: panel.title,
)
def test_a_panels_query_has_an_answer(postgres: Postgres, panel: grafana_examples.Panel) -> None:
    query = panel.query
    for macro, own in _MACROS.items():
        query = re.sub(macro, own, query)
    assert "$" not in query
    rows = postgres.rows(query)
    assert rows
    if panel.kind == "timeseries":
        assert {"time", "value"} <= set(rows[0]) or "shear_alpha" in rows[0]


def test_every_metric_of_a_panel_is_there() -> None:
    of_mast = metrics.render(status(channels={"cup.wind_speed": channel()}), resident=1 << 26).decode()
    exported = set(re.findall(r"^([a-z_0-9]+)[{ ]", of_mast, re.MULTILINE))
    for family in REGISTRY.collect():
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        exported |= {f"{family.name}{ending}" for ending in endings}
    queries = [
        panel.query for panels in DASHBOARDS.values() for panel in panels if panel.source == PROMETHEUS
    ]
    named = {name for query in queries for name in re.findall(r"\bfieldgate_[a-z0-9_]+", query)}
    assert len(named) >= len(queries)
    assert named - exported == set()
