"""The dashboards of docs/examples/grafana; ``python -m tests.support.grafana_examples`` writes them.

Panels read the schema of docs/examples/connect (PostgreSQL) and the programs' metrics (Prometheus).
"""

# ruff: noqa: S608 - queries are constants of this module.

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PLACE: Final = Path(__file__).parents[2] / "docs" / "examples" / "grafana"
POSTGRES, PROMETHEUS = "grafana-postgresql-datasource", "prometheus"
MAST: Final = "gateway = ${gateway:sqlstring}"
SEEN: Final = "$__timeFilter(interval_start)"
_WIDTH: Final = 24


@dataclass(frozen=True)
class Panel:
    """One panel: a query, how it is drawn, its unit and its width of 24 columns."""

    title: str
    query: str
    kind: str = "timeseries"
    unit: str = ""
    width: int = 12
    legend: str = ""

    @property
    def source(self) -> str:
        """What answers the query."""
        return POSTGRES if self.query.startswith("SELECT") else PROMETHEUS


def _channels(figure: str, quantity: str) -> str:
    return (
        f"SELECT interval_start AS time, label AS metric, {figure} AS value FROM statistics_named "
        f"WHERE {MAST} AND quantity = '{quantity}' AND {SEEN} ORDER BY 1"
    )


DASHBOARDS: Final = {
    "fleet": [
        Panel("Masts", "SELECT count(DISTINCT gateway) FROM presence", "stat", width=6),
        Panel(
            "Channels that don't send",
            "SELECT count(*) FROM presence WHERE state <> 'online'",
            "stat",
            width=6,
        ),
        Panel("Readings lost", "SELECT coalesce(sum(lost), 0) FROM presence", "stat", width=6),
        Panel(
            "Open alerts",
            "SELECT count(*) FROM alerts WHERE cleared_at IS NULL AND NOT historical",
            "stat",
            width=6,
        ),
        Panel(
            "Each mast",
            "SELECT gateway, max(last_seen) AS last_seen, count(*) AS channels, "
            "count(*) FILTER (WHERE state <> 'online') AS not_online, sum(pending) AS pending, "
            "sum(lost) AS lost FROM presence GROUP BY gateway ORDER BY not_online DESC, gateway",
            "table",
            width=24,
        ),
        Panel(
            "Recovery, mean of all channels",
            "SELECT $__timeGroupAlias(interval_start, '1d'), gateway AS metric, avg(recovery) AS value "
            f"FROM statistics WHERE {SEEN} GROUP BY 1, 2 ORDER BY 1",
            unit="percentunit",
            width=24,
        ),
    ],
    "mast": [
        Panel(
            "Last values",
            "SELECT channel, last_value, unit, last_time, state FROM last_values "
            f"WHERE {MAST} ORDER BY channel",
            "table",
            width=24,
        ),
        Panel("Wind speed, mean", _channels("avg", "wind_speed"), unit="velocityms"),
        Panel("Wind speed, gust", _channels("gust", "wind_speed"), unit="velocityms"),
        Panel("Wind direction", _channels("avg", "wind_direction"), unit="degree"),
        Panel("Temperature", _channels("avg", "temperature"), unit="celsius"),
        Panel(
            "Turbulence intensity",
            "SELECT interval_start AS time, channel AS metric, turbulence_intensity AS value "
            f"FROM mast_by_channel WHERE {MAST} AND {SEEN} ORDER BY 1",
            unit="percentunit",
        ),
        Panel(
            "Shear (power law's exponent)",
            f"SELECT interval_start AS time, shear_alpha FROM mast WHERE {MAST} AND {SEEN} ORDER BY 1",
        ),
        Panel(
            "Recovery",
            "SELECT $__timeGroupAlias(interval_start, '1h'), channel AS metric, avg(recovery) AS value "
            f"FROM statistics WHERE {MAST} AND {SEEN} GROUP BY 1, 2 ORDER BY 1",
            unit="percentunit",
        ),
        Panel(
            "Events",
            "SELECT time, kind, fields FROM events "
            f"WHERE {MAST} AND $__timeFilter(time) AND kind <> 'report' ORDER BY time DESC LIMIT 500",
            "table",
        ),
    ],
    "alerts": [
        Panel(
            "Open",
            "SELECT severity, gateway, channel, rule, raised_at, value, detail FROM alerts "
            "WHERE cleared_at IS NULL AND NOT historical ORDER BY raised_at DESC",
            "table",
            width=24,
        ),
        Panel(
            "Raised in a day",
            "SELECT $__timeGroupAlias(raised_at, '1d'), severity AS metric, count(*) AS value "
            "FROM alerts WHERE $__timeFilter(raised_at) GROUP BY 1, 2 ORDER BY 1",
        ),
        Panel(
            "Most often",
            "SELECT rule, gateway, count(*) AS alerts FROM alerts "
            "WHERE $__timeFilter(raised_at) GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 20",
            "table",
        ),
        Panel(
            "All",
            "SELECT raised_at, cleared_at, severity, gateway, channel, rule, value, detail, historical "
            "FROM alerts WHERE $__timeFilter(raised_at) ORDER BY raised_at DESC LIMIT 1000",
            "table",
            width=24,
        ),
    ],
    "pipeline": [
        Panel("Queries that run", "fieldgate_jobs_up", legend="{{query}}", unit="bool_on_off"),
        Panel("Behind: age of the oldest", "fieldgate_jobs_lag_seconds", legend="{{query}}", unit="s"),
        Panel("Behind: records or versions", "fieldgate_jobs_lag_offsets", legend="{{query}}"),
        Panel("Rows read", "rate(fieldgate_jobs_input_rows_total[5m])", legend="{{query}}", unit="rowsps"),
        Panel(
            "Duration of a batch, 95 %",
            "histogram_quantile(0.95, sum by (query, le) "
            "(rate(fieldgate_jobs_batch_duration_seconds_bucket[15m])))",
            legend="{{query}}",
            unit="s",
        ),
        Panel(
            "Rejected records",
            "sum by (reason) (increase(fieldgate_jobs_quarantined_total[1h]))",
            legend="{{reason}}",
        ),
        Panel("Records in masts' outboxes", "fieldgate_outbox_records", legend="{{mast}}"),
        Panel(
            "Since Kafka confirmed a record",
            "fieldgate_kafka_confirmed_age_seconds",
            legend="{{mast}}",
            unit="s",
        ),
        Panel(
            "Readings lost and waiting",
            "SELECT gateway, sum(pending) AS pending, sum(lost) AS lost, sum(announced) AS announced "
            "FROM presence GROUP BY gateway ORDER BY lost DESC, gateway",
            "table",
            width=24,
        ),
    ],
}


def _target(panel: Panel) -> dict[str, Any]:
    if panel.source == PROMETHEUS:
        return {"refId": "A", "expr": panel.query, "legendFormat": panel.legend}
    shape = "time_series" if panel.kind == "timeseries" else "table"
    return {"refId": "A", "rawSql": panel.query, "rawQuery": True, "editorMode": "code", "format": shape}


def _source(kind: str) -> dict[str, str]:
    return {"type": kind, "uid": "${postgresql}" if kind == POSTGRES else "${prometheus}"}


def dashboard(name: str) -> dict[str, Any]:
    """What Grafana imports."""
    shown: list[dict[str, Any]] = []
    x = y = 0
    for number, panel in enumerate(DASHBOARDS[name], 1):
        height = 4 if panel.kind == "stat" else 8
        if x + panel.width > _WIDTH:
            x, y = 0, y + shown[-1]["gridPos"]["h"]
        place = {"x": x, "y": y, "w": panel.width, "h": height}
        x += panel.width
        shown.append(
            {
                "id": number, "type": panel.kind, "title": panel.title, "gridPos": place,
                "datasource": _source(panel.source), "targets": [_target(panel)],
                "fieldConfig": {"defaults": {"unit": panel.unit} if panel.unit else {}, "overrides": []},
            }
        )  # fmt: skip
    kinds = sorted({panel.source for panel in DASHBOARDS[name]})
    variables: list[dict[str, Any]] = [
        {"name": _source(kind)["uid"][2:-1], "type": "datasource", "query": kind} for kind in kinds
    ]
    if any(MAST in panel.query for panel in DASHBOARDS[name]):
        query = "SELECT DISTINCT gateway FROM presence ORDER BY gateway"
        gateway = {"name": "gateway", "label": "Mast", "type": "query", "query": query, "refresh": 1}
        variables.append({**gateway, "datasource": _source(POSTGRES)})
    return {
        "title": f"fieldgate: {name}", "uid": f"fieldgate-{name}", "tags": ["fieldgate"], "timezone": "utc",
        "schemaVersion": 39, "refresh": "1m", "time": {"from": "now-7d", "to": "now"},
        "templating": {"list": variables}, "panels": shown,
    }  # fmt: skip


def text(name: str) -> str:
    """A dashboard's file."""
    return json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    for name in DASHBOARDS:
        (PLACE / f"{name}.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
