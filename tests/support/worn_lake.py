"""A lake with a year of a made-up mast whose cup wears."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from spark_jobs.platform import schemas
from tests.bench.wear import FIRST, simulate
from tests.support.fleet_lake import write


def write_worn(lake: Path, until: date, latitude: float = 27.7) -> None:
    """Writes the tables; on day ``until`` the cup has worn for seventy days."""
    history = simulate(10_001, "twins")
    shift = until - FIRST - timedelta(days=history.begins + 70)
    for table, given in ((schemas.STATISTICS, "statistics"), (schemas.HEALTH, "health")):
        rows = history.tables[given]
        columns: dict[str, Any] = {name: rows[name].combine_chunks() for name in rows.column_names}
        for name in {"interval_start", "time", "kafka_time", "date"} & set(columns):
            columns[name] = [each + shift for each in columns[name].to_pylist()]
        columns["gateway"] = ["mast-07"] * rows.num_rows
        if given == "statistics":
            columns |= {"interval_s": [600] * rows.num_rows, "version": [1] * rows.num_rows}
        write(lake, table, columns)
    write(lake, schemas.CHANNELS, {
        "gateway": ["mast-07"] * 3, "sensor": ["cup-a", "cup-b", "vane"], "pair": ["cup-b", None, None],
        "channel": ["cup-a.wind_speed", "cup-b.wind_speed", "vane.wind_direction"],
        "quantity": ["wind_speed", "wind_speed", "wind_direction"], "height_m": [50.0] * 3,
    })  # fmt: skip
    write(lake, schemas.SITES, {
        "gateway": ["mast-07"], "latitude": [latitude], "longitude": [85.5],
        "valid_from": [datetime(2020, 1, 1, tzinfo=UTC)],
    })  # fmt: skip
