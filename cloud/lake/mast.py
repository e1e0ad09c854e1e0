"""One mast: its channels with their records, its site, and the tables below its charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cloud.errors import CloudError
from cloud.lake.acknowledgements import IS_OPEN, with_acknowledged
from cloud.lake.reader import Frame, LakeReader
from cloud.lake.tables import FILED
from cloud.toml_problems import nearest
from cloud.wire.quantities import QUANTITIES

DAY_MS: Final = 86_400_000
USUAL_S: Final = 600
"""The length of intervals that is meant where none is named, if a mast has some; else its shortest."""
MOST_CHANNELS: Final = 200
"""The bound of a mast's channels on a page or in a report: whoever may publish for it can name thousands."""
FOREVER_MS: Final = 100_000 * DAY_MS
LONGEST_GAP: Final = 5_000
"""The longest gap, in intervals (of ten minutes 34 days), of which a file has a line for each.

One interval with a wrong date, decades away, would otherwise make millions of lines.
"""


@dataclass(frozen=True)
class Channel:
    """A channel of the mast; height and twin are those of its record, where ``channels`` has one."""

    name: str
    quantity: str
    unit: str
    height_m: float | None = None
    twin: str | None = None
    kind: str = "linear"

    @property
    def is_direction(self) -> bool:
        """Whether its means are those of unit vectors."""
        return self.kind == "direction"


@dataclass(frozen=True)
class Mast:
    """What a mast is. ``begin_ms`` and ``end_ms`` are its statistics' time; ``missing`` is in words.

    ``chosen`` names its channels where others are left out.
    """

    gateway: str
    channels: tuple[Channel, ...]
    intervals_s: tuple[int, ...]
    begin_ms: int
    end_ms: int
    site: dict[str, Any]
    missing: tuple[str, ...] = ()
    chosen: tuple[str, ...] | None = None

    @property
    def offset_min(self) -> int:
        """Minutes that local time is ahead of UTC; 0 without a site."""
        return int(self.site.get("utc_offset_min") or 0)

    def of(self, quantity: str) -> list[Channel]:
        """Its channels of a quantity, the highest first."""
        found = [each for each in self.channels if each.quantity == quantity]
        return sorted(found, key=lambda each: (-(each.height_m or 0.0), each.name))

    def named(self, name: str | None) -> Channel | None:
        """The channel of that name, if there is one; without a name the highest cup, else the first."""
        if name:
            return next((each for each in self.channels if each.name == name), None)
        return next(iter((*self.of("wind_speed"), *self.channels)), None)

    def vane_for(self, cup: Channel | None) -> Channel | None:
        """The vane nearest in height."""
        height = (cup and cup.height_m) or 0.0
        return min(
            self.of("wind_direction"), key=lambda each: abs((each.height_m or 0.0) - height), default=None
        )


def read_mast(
    reader: LakeReader,
    gateway: str,
    begin_ms: int = 0,
    end_ms: int = FOREVER_MS,
    *,
    most: int | None = None,
    wanted: str | None = None,
) -> Mast:
    """What the lake has of a mast from and to, exclusive; records and site are the newest until then.

    ``most`` channels: the ``wanted`` one, then those with a record, then those with most intervals. Raises
    Missing without statistics, LakeError.
    """
    found = reader.read(
        "statistics",
        "SELECT channel, any_value(quantity) AS quantity, any_value(unit) AS unit, "  # noqa: S608
        "epoch_ms(min(interval_start)) AS begin_at, epoch_ms(max(interval_start)) AS end_at, "
        "list(DISTINCT interval_s) AS intervals, count(*) AS n FROM statistics WHERE gateway = ? "
        f"AND {within('interval_start', begin_ms, end_ms)} GROUP BY channel ORDER BY channel",
        [gateway],
    ).dicts()
    missing: list[str] = []
    newest = newest_by("channel", rows_of(reader, "channels", _RECORD, gateway, missing), end_ms)
    chosen = None
    if most is not None and len(found) > most:
        found.sort(key=lambda row: (row["channel"] != wanted, row["channel"] not in newest, -row["n"]))
        missing.append(
            f"{len(found) - most:,} of its {len(found):,} channels are left out: `fieldgate query` has them "
            "all, and the dashboard the one that an address names, /mast/ID?channel=NAME."
        )
        found = sorted(found[:most], key=lambda row: str(row["channel"]))
        chosen = tuple(row["channel"] for row in found)
    # Either of two twins may name the other.
    twins = {row["channel"]: f"{row['pair']}.{row['quantity']}" for row in newest.values() if row["pair"]}
    named_by = {twin: channel for channel, twin in reversed(twins.items())}
    channels = []
    for row in found:
        name, quantity = row["channel"], row["quantity"]
        record, known = newest.get(name, {}), QUANTITIES.get(quantity)
        kind = record.get("kind") or (known.kind if known is not None else "linear")
        twin = twins.get(name) or named_by.get(name)
        channels.append(Channel(name, quantity, row["unit"], record.get("height_m"), twin, kind))
    intervals = sorted({each for row in found for each in row["intervals"]})
    return Mast(
        gateway,
        tuple(channels),
        tuple(intervals),
        min((row["begin_at"] for row in found), default=0),
        max((row["end_at"] for row in found), default=0) + 1000 * (intervals or [0])[-1],
        read_site(reader, gateway, end_ms, missing),
        tuple(missing),
        chosen,
    )


def masts(reader: LakeReader) -> list[str]:
    """Those that the lake has anything of."""
    found: set[str] = set()
    for table in ("sites", "channels", "presence", "statistics"):
        if reader.version(table) >= 0:
            found.update(reader.read(table, f"SELECT DISTINCT gateway FROM {table}").column("gateway"))  # noqa: S608
    return sorted(found)


def check_known(reader: LakeReader, gateway: str) -> None:
    """Raises CloudError, which names the masts there are, where the lake has nothing of this one."""
    known = masts(reader)
    if gateway in known:
        return
    near = nearest(gateway, known)
    meant = f"; did you mean {near}?" if near else ""
    there = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
    raise CloudError(f"no mast {gateway} in the lake, which has {there or 'none yet'}{meant}")


def utc_offset(minutes: int) -> str:
    """An offset from UTC, such as +05:45."""
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}"


def within(time: str, begin_ms: int, end_ms: int) -> str:
    """The condition that a time of a table that has a ``date`` lies there: other days' files aren't read."""
    if (begin_ms, end_ms) == (0, FOREVER_MS):
        return "true"
    begin, end = (f"make_timestamp({1000 * each})" for each in (begin_ms, end_ms))
    return (
        f"{time}::TIMESTAMP >= {begin} AND {time}::TIMESTAMP < {end} "
        f"AND date BETWEEN {begin}::DATE AND {end}::DATE"
    )


def stretches(
    read: Callable[[str], Frame],
    starts: str,
    begin_ms: int,
    end_ms: int,
    step_ms: int,
    longest: int = LONGEST_GAP,
) -> tuple[tuple[int, int], ...]:
    """Returns the parts of a time, from and to, between gaps of more than ``longest`` steps without a row.

    ``starts`` is SQL with one column, ``start``, in milliseconds; ``read`` answers it. Raises CloudError.
    """
    rows = read(
        f"""WITH starts AS ({starts} UNION SELECT {begin_ms - step_ms} UNION SELECT {end_ms})
        SELECT previous, start
        FROM (SELECT start, lag(start) OVER (ORDER BY start) AS previous FROM starts)
        WHERE start - previous > {(longest + 1) * step_ms} ORDER BY start"""  # noqa: S608 - numbers and texts of ours
    ).rows
    begins = (begin_ms, *(start for _, start in rows))
    ends = (*(previous + step_ms for previous, _ in rows), end_ms)
    return tuple(
        (begin, min(end, end_ms)) for begin, end in zip(begins, ends, strict=True) if begin < min(end, end_ms)
    )


def read_site(reader: LakeReader, gateway: str, end_ms: int, missing: list[str]) -> dict[str, Any]:
    """The mast's site as it was before then, else its first; empty without. ``missing`` gets why."""
    sites = rows_of(reader, "sites", _SITE, gateway, missing)
    return newest_by("gateway", sites, end_ms).get(gateway, {})


def newest_by(key: str, rows: Iterable[dict[str, Any]], end_ms: int) -> dict[str, dict[str, Any]]:
    """The newest row of each value of ``key`` of those from before then, else its first."""
    newest: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["valid_from_at"] or 0, str(row.get("updated_at") or ""))):
        if row[key] not in newest or (row["valid_from_at"] or 0) < end_ms:
            newest[row[key]] = row
    return newest


_RECORD: Final = ("channel", "quantity", "height_m", "pair", "kind", "updated_at")
_SITE: Final = ("gateway", "name", "owner", "latitude", "longitude", "elevation_m", "utc_offset_min")


def read_sites(reader: LakeReader, missing: list[str]) -> list[dict[str, Any]]:
    """All sites of all masts, for ``newest_by``; ``missing`` gets why there are none."""
    return rows_of(reader, "sites", _SITE, None, missing)


def rows_of(
    reader: LakeReader, table: str, columns: Sequence[str], gateway: str | None, missing: list[str]
) -> list[dict[str, Any]]:
    """Rows of ``sites`` or ``channels``, of a mast or all; without them none, and ``missing`` gets why."""
    try:
        return reader.read(
            table,
            f"SELECT {', '.join(columns)}, epoch_ms(valid_from) AS valid_from_at FROM {table} "  # noqa: S608
            "WHERE coalesce(gateway = ?, true)",
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
    if isinstance(alerts := found["Alerts"], Frame):
        found["Alerts"] = with_acknowledged(reader, alerts)
    # Of a mast that measured all of it itself, as most do, there is nothing to say.
    for title in (_IMPORTED, DOCUMENTS):
        rare = found[title]
        if isinstance(rare, str) or not rare.rows:
            del found[title]
    return found


DEVIATING: Final = """epoch_ms(interval_start) AS interval_start_at, interval_s, score, threshold,
    coalesce(channels[1].channel, nullif(split_part(rules[1], ':', 2), '')) AS channel,
    array_to_string(list_transform(channels[:3],
        lambda each: printf('%s %.0f %%', each.channel, 100 * each.share)), ', ') AS deviating,
    array_to_string(rules, ', ') AS rules FROM anomalies WHERE (score > threshold OR len(rules) > 0)"""
"""Of ``anomalies``: when, how far, and who deviates most, with shares of the score; it may go on with AND."""


_IMPORTED: Final = "Imported from other loggers"
DOCUMENTS: Final = "Documents"


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
    DOCUMENTS: ("documents", f"{FILED} AND gateway = ? ORDER BY noted_at DESC, name LIMIT 100"),
    _IMPORTED: (
        "imports",
        'SELECT file, "into", count(DISTINCT channel) AS channels, epoch_ms(min(begin)) AS begin_at, '
        'epoch_ms(max("end")) AS end_at, sum("rows")::BIGINT AS "rows", '
        "epoch_ms(max(imported_at)) AS imported_at FROM imports WHERE gateway = ? GROUP BY ALL "
        "ORDER BY begin_at DESC LIMIT 20",
    ),
    "Alerts": (
        "alerts",
        f"""SELECT rule, kind, severity, channel, epoch_ms(raised_at) AS raised_at,
        epoch_ms(cleared_at) AS cleared_at, value, detail,
        CASE WHEN NOT historical AND {IS_OPEN} THEN id END AS id
        FROM alerts WHERE gateway = ? ORDER BY alerts.raised_at DESC LIMIT 50""",  # noqa: S608 - a text of ours
    ),
    "Anomalies": (
        "anomalies",
        f"SELECT {DEVIATING} AND gateway = ? ORDER BY anomalies.interval_start DESC LIMIT 50",
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


def records_in_force(
    reader: LakeReader, gateway: str | None, begin_ms: int, end_ms: int
) -> list[dict[str, Any]]:
    """Records of a mast's or all channels that were in force in a time, with their ``spans`` in it.

    From and to, in milliseconds since 1970; None is an unknown beginning, or no end yet. Raises Missing,
    LakeError.
    """
    rows = reader.read(
        "channels",
        """SELECT gateway, channel, cal, sensor, quantity, unit, raw_unit, driver, slope, "offset", model,
            serial, certificate, lab, height_m, boom_deg, pair, in_force, calibrated::VARCHAR AS calibrated,
            expires::VARCHAR AS expires, epoch_ms(valid_from) AS from_at, epoch_ms(valid_to) AS to_at,
            list_transform(periods, lambda each: [epoch_ms(each."begin"), epoch_ms(each."end")]) AS spans
        FROM channels WHERE coalesce(gateway = ?, true) ORDER BY gateway, channel, valid_from""",
        [gateway],
    ).dicts()
    for row in rows:
        row["spans"] = [
            (begin, end)
            for begin, end in row["spans"] or [(row["from_at"], row["to_at"])]
            if (begin or 0) < end_ms and (end is None or end > begin_ms)
        ]
    return [row for row in rows if row["spans"]]
