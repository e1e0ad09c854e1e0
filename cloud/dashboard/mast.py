"""One mast: its channels with their records, its site, and the tables below its charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from cloud.dashboard.reading import Frame, LakeReader
from cloud.errors import CloudError

DAY_MS: Final = 86_400_000


@dataclass(frozen=True)
class Channel:
    """A channel of the mast; height and twin are those of its record, where ``channels`` has one."""

    name: str
    quantity: str
    unit: str
    height_m: float | None = None
    twin: str | None = None


@dataclass(frozen=True)
class Mast:
    """What a mast is. ``begin_ms`` and ``end_ms`` its statistics' whole time; ``missing`` is in words."""

    gateway: str
    channels: tuple[Channel, ...]
    intervals_s: tuple[int, ...]
    begin_ms: int
    end_ms: int
    site: dict[str, Any]
    missing: tuple[str, ...] = ()

    @property
    def offset_min(self) -> int:
        """Minutes that local time is ahead of UTC; 0 without a site."""
        return int(self.site.get("utc_offset_min") or 0)

    def of(self, quantity: str) -> list[Channel]:
        """Its channels of a quantity, the highest first."""
        found = [each for each in self.channels if each.quantity == quantity]
        return sorted(found, key=lambda each: (-(each.height_m or 0.0), each.name))

    def named(self, name: str | None) -> Channel | None:
        """The channel of that name, else the highest cup, else the first."""
        known = [each for each in self.channels if each.name == name]
        return next(iter((*known, *self.of("wind_speed"), *self.channels)), None)

    def vane_for(self, cup: Channel | None) -> Channel | None:
        """The vane nearest in height."""
        height = (cup and cup.height_m) or 0.0
        return min(
            self.of("wind_direction"), key=lambda each: abs((each.height_m or 0.0) - height), default=None
        )


def read_mast(reader: LakeReader, gateway: str) -> Mast:
    """What the lake has of a mast. Raises Missing without statistics, LakeError."""
    found = reader.read(
        "statistics",
        "SELECT channel, any_value(quantity) AS quantity, any_value(unit) AS unit, "
        "epoch_ms(min(interval_start)) AS begin_at, epoch_ms(max(interval_start)) AS end_at, "
        "list(DISTINCT interval_s) AS intervals FROM statistics WHERE gateway = ? GROUP BY channel "
        "ORDER BY channel",
        [gateway],
    ).dicts()
    missing: list[str] = []
    records = _or_nothing(reader, "channels", "channel, sensor, quantity, height_m, pair", gateway, missing)
    sites = _or_nothing(reader, "sites", _SITE, gateway, missing)
    newest = {row["channel"]: row for row in sorted(records, key=lambda row: row["valid_from_at"] or 0)}
    sensors = {row["sensor"]: row["channel"] for row in newest.values()}
    channels = []
    for row in found:
        record = newest.get(row["channel"], {})
        pair, quantity = record.get("pair"), row["quantity"]
        twin = f"{pair}.{quantity}" if pair else None
        # Either of two twins may name the other.
        named_by = [
            each["channel"]
            for each in newest.values()
            if each["pair"] == record.get("sensor")
            and each["pair"] in sensors
            and each["quantity"] == quantity
        ]
        channels.append(
            Channel(
                row["channel"],
                quantity,
                row["unit"],
                record.get("height_m"),
                twin or next(iter(named_by), None),
            )
        )
    intervals = sorted({each for row in found for each in row["intervals"]})
    return Mast(
        gateway,
        tuple(channels),
        tuple(intervals),
        min((row["begin_at"] for row in found), default=0),
        max((row["end_at"] for row in found), default=0) + 1000 * (intervals or [0])[-1],
        max(sites, key=lambda row: row["valid_from_at"], default={}),
        tuple(missing),
    )


_SITE: Final = "name, owner, latitude, longitude, elevation_m, utc_offset_min"


def _or_nothing(
    reader: LakeReader, table: str, columns: str, gateway: str, missing: list[str]
) -> list[dict[str, Any]]:
    try:
        return reader.read(
            table,
            f"SELECT {columns}, epoch_ms(valid_from) AS valid_from_at FROM {table} WHERE gateway = ?",  # noqa: S608
            [gateway],
        ).dicts()
    except CloudError as error:
        missing.append(str(error))
        return []


def details(reader: LakeReader, gateway: str) -> dict[str, Frame | str]:
    """Tables below the charts, or what is missing of each."""
    found: dict[str, Frame | str] = {}
    for title, (table, sql) in _DETAILS.items():
        try:
            found[title] = reader.read(table, sql, [gateway])
        except CloudError as error:
            found[title] = str(error)
    # Of a mast that measured all of it itself, as most do, there is nothing to say.
    imported = found[_IMPORTED]
    if isinstance(imported, str) or not imported.rows:
        del found[_IMPORTED]
    return found


_IMPORTED: Final = "Imported from other loggers"


_DETAILS: Final[dict[str, tuple[str, str]]] = {
    "Live": (
        "presence",
        "SELECT channel, last_value, state, epoch_ms(last_time) AS last_at FROM presence WHERE gateway = ? "
        "ORDER BY channel",
    ),
    "Calibration in force": (
        "channels",
        'SELECT channel, cal, model, serial, slope, "offset", certificate, expires::VARCHAR AS expires, '
        "height_m, boom_deg "
        "FROM channels WHERE gateway = ? AND (in_force AND valid_to IS NULL OR driver = 'import') "
        "QUALIFY in_force OR NOT bool_or(in_force) OVER (PARTITION BY channel) ORDER BY channel",
    ),
    _IMPORTED: (
        "imports",
        'SELECT file, "into", count(DISTINCT channel) AS channels, epoch_ms(min(begin)) AS begin_at, '
        'epoch_ms(max("end")) AS end_at, sum("rows")::BIGINT AS "rows", '
        "epoch_ms(max(imported_at)) AS imported_at FROM imports WHERE gateway = ? GROUP BY ALL "
        "ORDER BY begin_at DESC LIMIT 20",
    ),
    "Alerts": (
        "alerts",
        "SELECT rule, severity, channel, epoch_ms(raised_at) AS raised_at, "
        "epoch_ms(cleared_at) AS cleared_at, detail "
        "FROM alerts WHERE gateway = ? ORDER BY raised_at DESC LIMIT 50",
    ),
    "Runs": (
        "runs",
        "SELECT run, state, epoch_ms(started) AS started_at, epoch_ms(ended) AS ended_at, outbox_records "
        "FROM runs WHERE gateway = ? ORDER BY started DESC LIMIT 20",
    ),
    "Losses": (
        "presence",
        "SELECT channel, pending, announced, lost FROM presence WHERE gateway = ? AND lost + announced > 0 "
        "ORDER BY lost DESC",
    ),
}
