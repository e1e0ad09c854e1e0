"""The fleet as rows: what each table of the lake says about each mast, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cloud.dashboard.live import LiveReader
from cloud.errors import CloudError
from cloud.lake.reader import Frame, LakeReader

COLUMNS: Final = (
    "gateway", "name", "owner", "state", "last_seen_at", "wind", "day", "month", "alerts", "waiting", "lost",
    "channels", "silent", "latitude", "longitude", "elevation_m",
)  # fmt: skip
_QUESTIONS: Final = {
    "sites": """SELECT gateway, arg_max(name, valid_from) AS name, arg_max(owner, valid_from) AS owner,
        arg_max(latitude, valid_from) AS latitude, arg_max(longitude, valid_from) AS longitude,
        arg_max(elevation_m, valid_from) AS elevation_m FROM sites GROUP BY gateway""",
    "presence": """SELECT gateway, epoch_ms(max(last_seen)) AS last_seen_at,
        CASE WHEN bool_or(state = 'online') THEN 'online' WHEN bool_and(state = 'offline') THEN 'offline'
            ELSE 'silent' END AS state,
        count(*) AS channels, count(*) FILTER (state = 'silent') AS silent,
        try_cast(sum(pending) AS BIGINT) AS waiting,
        try_cast(sum(lost) AS BIGINT) AS lost,
        arg_max(last_value, channel) FILTER (channel LIKE '%.wind_speed' AND state = 'online') AS wind
        FROM presence GROUP BY gateway""",
    "statistics": """WITH newest AS (SELECT max(interval_start) AS until FROM statistics WHERE version > 0)
        SELECT gateway, avg(recovery) FILTER (interval_start > until - INTERVAL 24 HOUR) AS day,
            avg(recovery) AS month, epoch_ms(any_value(until)) AS until_at
        FROM statistics, newest
        WHERE version > 0 AND interval_start > until - INTERVAL 30 DAY
            AND date >= CAST(until - INTERVAL 30 DAY AS DATE) GROUP BY gateway""",
    "alerts": """SELECT gateway, count(*) AS alerts FROM alerts
        WHERE cleared_at IS NULL AND NOT historical GROUP BY gateway""",
    "imports": "SELECT DISTINCT gateway FROM imports",
}
_MAY_LACK: Final = ("imports",)
"""Tables that a lake has only once something was imported. An imported mast may be in no other one of these,
or be older than a month."""


@dataclass(frozen=True)
class Fleet:
    """A row for each mast that any table names; ``missing`` is what couldn't be read, in words."""

    masts: list[dict[str, Any]]
    missing: list[str] = field(default_factory=list)
    until_ms: int | None = None

    def frame(self) -> Frame:
        """Returns the masts as a table."""
        return Frame(COLUMNS, [tuple(mast[name] for name in COLUMNS) for mast in self.masts])

    def counts(self) -> Mapping[str, int]:
        """How many masts are in each state."""
        found = dict.fromkeys(("online", "silent", "offline", "unknown"), 0)
        for mast in self.masts:
            found[mast["state"]] += 1
        return found


class FleetReader:
    """The fleet, each table's part of it read again only when that has a new version, and what is live."""

    def __init__(self, reader: LakeReader, live: LiveReader) -> None:
        self._reader, self._live = reader, live
        self._parts: dict[str, tuple[int, Frame]] = {}

    def read(self) -> Fleet:
        """The fleet now."""
        masts: dict[str, dict[str, Any]] = {}
        missing: list[str] = []
        until: int | None = None
        for table in _QUESTIONS:
            if table in _MAY_LACK and self._reader.version(table) < 0:
                continue
            try:
                part = self._part(table)
            except CloudError as error:
                missing.append(str(error))
                continue
            for row in part.dicts():
                until = row.pop("until_at", until)
                masts.setdefault(row["gateway"], dict.fromkeys(COLUMNS)).update(row)
        for gateway, seen in self._live.last_seen_ms().items():
            mast = masts.setdefault(gateway, dict.fromkeys(COLUMNS) | {"gateway": gateway})
            mast["last_seen_at"] = max(seen, mast["last_seen_at"] or 0)
        if self._live.problem is not None:
            missing.append(f"Last seen may be older than it says: {self._live.problem}")
        for mast in masts.values():
            mast["state"] = mast["state"] or "unknown"
            if "alerts" in self._parts:
                mast["alerts"] = mast["alerts"] or 0
        return Fleet([masts[gateway] for gateway in sorted(masts)], missing, until)

    def _part(self, table: str) -> Frame:
        version = self._reader.version(table)
        held = self._parts.get(table)
        if held is None or held[0] != version:
            held = self._parts[table] = (version, self._reader.read(table, _QUESTIONS[table]))
        return held[1]
