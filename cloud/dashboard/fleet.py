"""The fleet as rows: what each table of the lake says about each mast, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from cloud.dashboard.live import LiveReader
from cloud.errors import CloudError
from cloud.lake.acknowledgements import IS_OPEN, NEWEST, TABLE, Acknowledgement, in_force
from cloud.lake.reader import Frame, LakeReader

COLUMNS: Final = (
    "gateway", "name", "owner", "state", "last_seen_at", "wind", "day", "month", "alerts", "waiting", "lost",
    "channels", "silent", "latitude", "longitude", "elevation_m", "reported_at", "findings", "expires",
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
EVIDENCE: Final = {
    "open alerts": (
        "alerts",
        f"""SELECT gateway, rule, severity, channel IS NULL AS is_whole, count(*) AS alerts,
            cleared_at IS NOT NULL AS is_over, epoch_ms(max(raised_at)) AS newest_at,
            strftime(min(raised_at), '%Y-%m-%d %H:%M') AS since,
            list_contains(?, id) IS TRUE AS is_seen, list(id ORDER BY id) FILTER (id IS NOT NULL) AS ids,
            kind = 'calibration' OR starts_with(rule, 'calibration-') AS is_calibration,
            list(DISTINCT channel ORDER BY channel) FILTER (channel IS NOT NULL) AS channels,
            left(arg_max(detail, raised_at), 300) AS detail
        FROM alerts WHERE {IS_OPEN} AND (cleared_at IS NULL OR raised_at > ?::TIMESTAMPTZ - INTERVAL 8 DAY)
            AND NOT historical AND severity IS DISTINCT FROM 'info' AND gateway IS NOT NULL
        GROUP BY ALL ORDER BY ALL""",  # noqa: S608 - a text of ours
    ),
    # A clock that is ahead would make a report the newest one for good.
    "daily reports": (
        "health",
        """WITH newest AS (
            SELECT gateway, max(least(time, kafka_time)) AS made,
                arg_max({'daemon': daemon, 'findings': findings}, least(time, kafka_time)) AS told FROM health
            WHERE gateway IS NOT NULL AND coalesce(time, kafka_time) IS NOT NULL GROUP BY gateway
        )
        SELECT gateway, epoch_ms(made) AS reported_at, list_transform(
            list_filter(CASE WHEN told.daemon IS NULL THEN coalesce(told.findings, []) ELSE [{
                'area': 'daemon', 'severity': 'error', 'what': 'it did not answer: ' || told.daemon,
                'remedy': 'On the mast: systemctl status fieldgate; journalctl -u fieldgate'}] END,
                lambda each: each.severity IN ('error', 'warning'))[:50],
            lambda each: {'area': left(each.area, 40), 'severity': each.severity,
                'what': left(each.what, 300), 'remedy': left(each.remedy, 300)}) AS findings
        FROM newest ORDER BY gateway""",
    ),
    "calibrations": (
        "channels",
        """WITH each AS (
            SELECT gateway, channel, max(expires) AS expires FROM channels
            WHERE coalesce(in_force, true) AND gateway IS NOT NULL AND channel IS NOT NULL GROUP BY ALL
        )
        SELECT gateway, expires, list(channel ORDER BY channel) AS channels FROM each
        WHERE expires BETWEEN DATE '1900-01-01' AND DATE '9999-12-31' GROUP BY ALL ORDER BY ALL""",
    ),
}
"""Table and query of each kind of evidence that ``attention`` judges by; the first one's values are the ids
of acknowledged alerts, and the day."""
_MAY_LACK: Final = ("imports",)
"""Tables that a lake has only once something was imported. An imported mast may be in no other one of these,
or be older than a month."""


@dataclass(frozen=True)
class Fleet:
    """A row for each mast that any table names; ``missing`` is what couldn't be read, in words.

    ``evidence`` has the rows of each of ``EVIDENCE``, or why there are none.
    ``seen`` are the acknowledgements in force, by the alert's id.
    """

    masts: list[dict[str, Any]]
    missing: list[str] = field(default_factory=list)
    until_ms: int | None = None
    evidence: Mapping[str, list[dict[str, Any]] | str] = field(default_factory=dict)
    seen: Mapping[str, Acknowledgement] = field(default_factory=dict)

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
        self._parts: dict[str, tuple[object, Frame]] = {}

    def read(self) -> Fleet:
        """The fleet now."""
        now = datetime.now(UTC)
        masts: dict[str, dict[str, Any]] = {}
        missing: list[str] = []
        until: int | None = None
        for table in _QUESTIONS:
            if table in _MAY_LACK and self._reader.version(table) < 0:
                continue
            try:
                part = self._part(table, table, _QUESTIONS[table])
            except CloudError as error:
                missing.append(str(error))
                continue
            for row in part.dicts():
                until = row.pop("until_at", until)
                masts.setdefault(row["gateway"], dict.fromkeys(COLUMNS)).update(row)
        evidence: dict[str, list[dict[str, Any]] | str] = {}
        seen: Mapping[str, Acknowledgement] = {}
        try:
            if self._reader.version(TABLE) >= 0:
                seen = in_force(self._part(TABLE, TABLE, NEWEST), now)
        except CloudError as error:
            missing.append(str(error))
        for name, asked in EVIDENCE.items():
            try:
                values = (sorted(seen), str(now.date())) if name == "open alerts" else ()
                evidence[name] = given = self._part(name, *asked, values).dicts()
            except CloudError as error:
                evidence[name] = str(error)
                continue
            for row in given if name != "open alerts" else ():
                mast = masts.setdefault(row["gateway"], dict.fromkeys(COLUMNS) | {"gateway": row["gateway"]})
                if name == "calibrations":
                    mast["expires"] = min(row["expires"], mast["expires"] or row["expires"])
                else:
                    mast |= {"reported_at": row["reported_at"], "findings": len(row["findings"])}
        for gateway, last in self._live.last_seen_ms().items():
            mast = masts.setdefault(gateway, dict.fromkeys(COLUMNS) | {"gateway": gateway})
            mast["last_seen_at"] = max(last, mast["last_seen_at"] or 0)
        if self._live.problem is not None:
            missing.append(f"Last seen may be older than it says: {self._live.problem}")
        for mast in masts.values():
            mast["state"] = mast["state"] or "unknown"
            if "alerts" in self._parts:
                mast["alerts"] = mast["alerts"] or 0
        return Fleet([masts[gateway] for gateway in sorted(masts)], missing, until, evidence, seen)

    def _part(self, name: str, table: str, sql: str, values: tuple[object, ...] = ()) -> Frame:
        version = self._reader.version(table), values
        held = self._parts.get(name)
        if held is None or held[0] != version:
            held = self._parts[name] = (version, self._reader.read(table, sql, values))
        return held[1]
