"""A fleet's day, week or month on one page: a line for each mast, the worst first, and what comes next.

Each mast's period is in its site's time, as in its own report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from cloud.dashboard.fleet import EVIDENCE
from cloud.dashboard.report.figures import HALF_A_DAY_MS, Period, intervals_in
from cloud.dashboard.report.markup import Node, document, number, percent, table, tag, tiles
from cloud.errors import CloudError
from cloud.lake.mast import masts, newest_by, read_sites, records_in_force, within
from cloud.lake.numbers import IS_VALID
from cloud.lake.reader import LakeReader, Missing, plausible
from cloud.lake.tables import FILED, IN_FORCE

SOON: Final = timedelta(days=90)
_DISMANTLED: Final = timedelta(days=30)
"""A mast without statistics for so long before a period has none to be missed in it."""
_TREND_HOLDS: Final = timedelta(days=7)
"""Upkeep writes trends each day; older ones are none of a period's end."""
_WORK: Final = {
    "events": """SELECT gateway, epoch_ms(time) AS begin_at, CASE kind
            WHEN 'reloaded' THEN 'config reloaded'
            WHEN 'sensor-swapped' THEN concat('sensor swapped: ', try(fields->>'$.sensor'))
            ELSE concat('commissioned by ', try(fields->>'$.signed_by')) END AS what
        FROM events WHERE kind IN ('reloaded', 'sensor-swapped', 'commissioned')
            AND date >= make_timestamp(1000 * $1::BIGINT)::DATE""",
    "channels": """SELECT gateway, epoch_ms(span."begin") AS begin_at, concat('new calibration: ',
            string_agg(channel, ', ' ORDER BY channel)) AS what
        FROM (SELECT gateway, channel, unnest(coalesce(
            periods, [{'begin': valid_from, 'end': valid_to}])) AS span FROM channels) GROUP BY ALL""",
    "recalibrations": """SELECT gateway, epoch_ms(done_at) AS begin_at,
            concat(channel, ' recalibrated from ', "begin"::DATE, ' to ', "end"::DATE) AS what
        FROM recalibrations""",
    "cleaning": f"""SELECT gateway, epoch_ms(max(noted_at)) AS begin_at, concat(count(*), ' period',
            if(count(*) > 1, 's', ''), ' marked by ', author, ': ',
            string_agg(DISTINCT reason, ', ' ORDER BY reason)) AS what
        FROM ({IN_FORCE}) GROUP BY gateway, author, noted_at::DATE""",  # noqa: S608 - text of ours
    "acknowledgements": """SELECT gateway, epoch_ms(noted_at) AS begin_at,
            concat('alert acknowledged by ', author, ': ', note) AS what
        FROM acknowledgements WHERE note <> ''""",
    "documents": f"""SELECT gateway, noted_at AS begin_at,
            concat(kind, ' filed by ', author, ': ', name) AS what FROM ({FILED})""",  # noqa: S608 - text of ours
}
"""What people have done: mast, when, and words, of each table that a lake may have."""

_Rows = Mapping[str, Sequence[dict[str, Any]]]
"""Rows by mast."""


@dataclass(frozen=True)
class MastLine:
    """One mast's period. ``shares`` are each channel's of valid intervals, and of samples, of those due.

    ``alerts`` stood in it, each for its ``hours``; ``work`` was done in it; ``expiring`` are days on which
    calibrations end soon, ``wear`` trends that soon get to their limit.
    """

    gateway: str
    name: str
    period: Period
    shares: Mapping[str, tuple[float, float]]
    alerts: Sequence[Mapping[str, Any]]
    work: Sequence[Mapping[str, Any]]
    expiring: Sequence[Mapping[str, Any]]
    wear: Sequence[Mapping[str, Any]]

    @property
    def recovery(self) -> tuple[float, float] | None:
        """By intervals and by samples, means of the channels; None where nothing was due."""
        return _mean(list(self.shares.values()))

    @property
    def hours(self) -> float:
        """Hours of all its alerts in the period."""
        return float(sum(each["hours"] for each in self.alerts))


@dataclass(frozen=True)
class FleetReport:
    """A fleet's period: its masts, the worst first, and what is missing, in words."""

    period: Period
    lines: Sequence[MastLine]
    missing: Sequence[str]

    @property
    def recovery(self) -> tuple[float, float] | None:
        """By intervals and by samples, means of the masts; None where nothing was due."""
        return _mean([each.recovery for each in self.lines if each.recovery is not None])


def _mean(pairs: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    count = len(pairs)
    return (sum(a for a, _ in pairs) / count, sum(b for _, b in pairs) / count) if count else None


@dataclass(frozen=True)
class _Asked:
    """What is asked of the lake: each mast's period, a time that all are in; ``day`` is today or its end."""

    reader: LakeReader
    periods: Mapping[str, Period]
    begin_ms: int
    end_ms: int
    now_ms: int
    day: date

    def by_mast(self, rows: Iterable[dict[str, Any]], *, at: str = "") -> dict[str, list[dict[str, Any]]]:
        """Rows of these masts; with ``at`` those alone whose time of that name is in their mast's period."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            period = self.periods.get(row["gateway"])
            if period is not None and (not at or period.begin_ms <= row[at] < period.end_ms):
                found[row["gateway"]].append(row)
        return found


def read_fleet(reader: LakeReader, period: Period, *, now_ms: int) -> FleetReport:
    """Returns what the lake has of a period of the reader's masts. Raises LakeError without a lake."""
    period, missing = replace(period, offset_min=0), list[str]()
    sites: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_sites(reader, missing):
        sites[row["gateway"]].append(row)
    periods = {each: period.in_time_of(sites[each]) for each in masts(reader)}
    day = min(period.after, datetime.fromtimestamp(now_ms / 1000, UTC).date())
    widest = period.begin_ms - HALF_A_DAY_MS, period.end_ms + HALF_A_DAY_MS
    asked = _Asked(reader, periods, *widest, now_ms, day)
    found: list[_Rows] = []
    for question in (_records, _counted, _alerts, _work, _expiring, _wear):
        try:
            found.append(question(asked))
        except CloudError as error:
            missing.append(str(error))
            found.append({})
    records, counted, *others = found
    gone = _gone(asked, [mast for mast in periods if mast not in counted])
    if gone:
        missing.append(f"Left out, without statistics for {_DISMANTLED.days} days and more: {_names(gone)}.")
    newest_ms = max((row["until_at"] for rows in counted.values() for row in rows), default=asked.begin_ms)
    lines = []
    for mast, own in ((each, period) for each, period in periods.items() if each not in gone):
        until_ms = own.end_ms if now_ms >= own.end_ms else min(own.end_ms, newest_ms)
        lines.append(MastLine(
            mast, newest_by("gateway", sites[mast], own.end_ms).get(mast, {}).get("name") or "", own,
            _shares(counted.get(mast, ()), records.get(mast, ()), own, until_ms),
            *(rows.get(mast, ()) for rows in others),
        ))  # fmt: skip
    # Before a mast's first day there is nothing to say of it.
    lines = [each for each in lines if each.shares or each.alerts or each.work or each.expiring or each.wear]
    # The worst first: by recovery in whole percent, then by the hours of alerts.
    lines.sort(key=lambda each: (round(100 * each.recovery[0]) if each.recovery else -1, -each.hours))
    if any(now_ms < each.period.end_ms for each in lines):
        missing.append(f"The {period.unit} isn't over: this is until {period.local(newest_ms)} UTC.")
    return FleetReport(period, lines, list(dict.fromkeys(missing)))


def _gone(asked: _Asked, silent: Sequence[str]) -> list[str]:
    """Those of the masts without statistics in the period whose last ones are from long before it."""
    since_ms = asked.begin_ms - _DISMANTLED // timedelta(milliseconds=1)
    sql = f"""SELECT gateway FROM statistics WHERE version > 0 AND list_contains(?, gateway)
        AND {within("interval_start", 0, asked.end_ms)}
        GROUP BY gateway HAVING epoch_ms(max(interval_start)) < {since_ms} ORDER BY gateway"""  # noqa: S608 - numbers of ours
    try:
        return asked.reader.read("statistics", sql, [silent]).column("gateway") if silent else []
    except CloudError:
        # That there are no statistics is said already.
        return []


def _records(asked: _Asked) -> _Rows:
    """Calibration records that were in force in their mast's period."""
    found = asked.by_mast(records_in_force(asked.reader, None, asked.begin_ms, asked.end_ms))
    for mast, rows in found.items():
        begin_ms, end_ms = asked.periods[mast].begin_ms, asked.periods[mast].end_ms
        found[mast] = [
            row for row in rows
            if any((begin or 0) < end_ms and (end is None or end > begin_ms) for begin, end in row["spans"])
        ]  # fmt: skip
    return found


def _counted(asked: _Asked) -> _Rows:
    """Closed intervals of each channel and length: valid ones, and the sum of their recoveries."""
    found: dict[str, list[dict[str, Any]]] = {}
    offsets = {each.offset_min: each for each in asked.periods.values()}
    for offset_min, period in offsets.items():
        there = [mast for mast, each in asked.periods.items() if each.offset_min == offset_min]
        sql = f"""SELECT gateway, channel, interval_s, count(*) FILTER ({IS_VALID}) AS valid,
                coalesce(sum(recovery), 0.0) AS recovered,
                epoch_ms(max(interval_start)) + 1000 * interval_s AS until_at
            FROM (SELECT * REPLACE ({plausible("avg", "statistics")}) FROM statistics WHERE version > 0
                AND list_contains(?, gateway) AND {within("interval_start", period.begin_ms, period.end_ms)})
            GROUP BY gateway, channel, interval_s"""  # noqa: S608 - numbers and texts of ours
        found |= asked.by_mast(asked.reader.read("statistics", sql, [there]).dicts())
    return found


def _shares(
    counted: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]], period: Period, until_ms: int
) -> dict[str, tuple[float, float]]:
    """What each channel has of what was due: of one that was to measure and has nothing 0."""
    lengths = {row["interval_s"] for row in counted}
    length_s = 600 if 600 in lengths else min(lengths, default=600)
    due = intervals_in(period.begin_ms, until_ms, length_s)
    if not due:
        return {}
    return {row["channel"]: (0.0, 0.0) for row in records} | {
        row["channel"]: (row["valid"] / due, row["recovered"] / due)
        for row in counted if row["interval_s"] == length_s
    }  # fmt: skip


def _alerts(asked: _Asked) -> _Rows:
    """Alerts that stood in their mast's period: for how long, whether they still did, who has seen them."""
    reader, seen = asked.reader, set[str]()
    if reader.version("acknowledgements") >= 0:
        seen.update(reader.read("acknowledgements", "SELECT alert FROM acknowledgements").column("alert"))
    rows = reader.read(
        "alerts",
        "SELECT gateway, id, epoch_ms(raised_at) AS begin_at, epoch_ms(cleared_at) AS end_at FROM alerts "
        "WHERE raised_at::TIMESTAMP < make_timestamp($2) "
        "AND (cleared_at IS NULL OR cleared_at::TIMESTAMP >= make_timestamp($1))",
        [1000 * asked.begin_ms, 1000 * asked.end_ms],
    )
    found = asked.by_mast(rows.dicts())
    for mast, own in found.items():
        period = asked.periods[mast]
        until_ms = min(period.end_ms, asked.now_ms)
        found[mast] = [
            row | {"seen": row["id"] in seen, "stands": row["end_at"] is None or row["end_at"] > until_ms,
                   "hours": max(0, min(row["end_at"] or until_ms, until_ms)
                                - max(row["begin_at"], period.begin_ms)) / 3_600_000}
            for row in own
            if row["begin_at"] < period.end_ms and (row["end_at"] or until_ms) >= period.begin_ms
        ]  # fmt: skip
    return found


def _work(asked: _Asked) -> _Rows:
    """What people have done: when, and in words."""
    rows: list[dict[str, Any]] = []
    for name, sql in _WORK.items():
        if asked.reader.version(name) >= 0:
            bounded = f"SELECT * FROM ({sql}) WHERE begin_at BETWEEN $1 AND $2"  # noqa: S608 - texts of ours
            rows += asked.reader.read(name, bounded, [asked.begin_ms, asked.end_ms]).dicts()
    return asked.by_mast(sorted(rows, key=lambda row: row["begin_at"]), at="begin_at")


def _expiring(asked: _Asked) -> _Rows:
    """Calibrations in force that end soon after the period, by mast and day: as they are now."""
    table, sql = EVIDENCE["calibrations"]
    rows = asked.reader.read(table, sql).dicts()
    return asked.by_mast(row for row in rows if row["expires"] <= asked.day + SOON)


def _wear(asked: _Asked) -> _Rows:
    """Trends that get to their limit soon after the period's end, as they were then."""
    sql = "SELECT max(date) FROM trends WHERE date BETWEEN ? AND ?"
    ((newest,),) = asked.reader.read("trends", sql, [asked.day - _TREND_HOLDS, asked.day]).rows
    if newest is None:
        raise Missing(f"The table trends has nothing of the week before {asked.day}.")
    sql = (
        "SELECT gateway, coalesce(channel, '') AS channel, crosses, detail FROM trends WHERE date = ? "
        "AND crosses <= ? AND crosses_until IS NOT NULL ORDER BY crosses, channel"
    )
    return asked.by_mast(asked.reader.read("trends", sql, [newest, asked.day + SOON]).dicts())


def _names(channels: Sequence[str]) -> str:
    return ", ".join(channels[:3]) + (f" and {len(channels) - 3} more" if len(channels) > 3 else "")


def write_fleet_page(report: FleetReport, *, now_ms: int, version: str) -> str:
    """The report as HTML, one file."""
    return document(
        f"Fleet, {report.period.title}",
        tag(
            "main",
            tag("h1", f"Fleet, {report.period.title}"),
            *(tag("p", each, class_="missing") for each in report.missing),
            _tiles(report),
            *_masts(report),
            tag("h2", f"Calibrations that have ended, or do within {SOON.days} days"),
            table(("last day", "*mast", "*channels"), sorted(
                (str(row["expires"]), line.gateway, _names(row["channels"]))
                for line in report.lines for row in line.expiring
            )),
            tag("h2", f"Trends that get to their limit within {SOON.days} days"),
            table(("limit on", "*mast", "*channel", "*what"), sorted(
                (str(row["crosses"]), line.gateway, row["channel"], row["detail"])
                for line in report.lines for row in line.wear
            )),
            tag("h2", "Work done"),
            table(("mast", "*site's time", "*what"), [
                (line.gateway, line.period.local(row["begin_at"]), " ".join(row["what"].split())[:200])
                for line in report.lines for row in line.work
            ]),
            tag("footer", f"Made {report.period.local(now_ms)} UTC by fieldgate {version}."),
            class_="landscape",
        ),
    )  # fmt: skip


def _tiles(report: FleetReport) -> Node:
    alerts = [each for line in report.lines for each in line.alerts]
    recovery = report.recovery or (None, None)
    return tiles((
        ("masts", f"{len(report.lines):,}", "with anything in this time"),
        ("recovery, intervals", f"{percent(recovery[0])} %", "mean of the masts"),
        ("recovery, samples", f"{percent(recovery[1])} %", "mean of the masts"),
        ("alerts", f"{len(alerts):,}", f"{sum(each['seen'] for each in alerts):,} acknowledged"),
        ("hours of alerts", number(sum(line.hours for line in report.lines), 1),
         f"{sum(each['stands'] for each in alerts):,} stood at the end"),
    ))  # fmt: skip


def _masts(report: FleetReport) -> list[Node]:
    rows = []
    for line in report.lines:
        by_intervals, by_samples = line.recovery or (None, None)
        least = min(line.shares.items(), key=lambda each: (each[1], each[0]), default=("", (1.0, 1.0)))
        rows.append((
            line.gateway, line.name, percent(by_intervals), percent(by_samples),
            f"{percent(least[1][0])} {least[0]}" if least[1][0] < 1 else "", f"{len(line.alerts):,}",
            number(line.hours, 1), f"{sum(each['seen'] for each in line.alerts):,}",
            f"{sum(each['stands'] for each in line.alerts):,}", f"{len(line.work):,}",
            *(str(min(each)) if each else "" for each in (
                [row["expires"] for row in line.expiring], [row["crosses"] for row in line.wear])),
        ))  # fmt: skip
    head = ("mast", "*name", "intervals, %", "samples, %", "*least, %", "alerts", "hours", "seen", "stand",
            "work", "*calibration ends", "*limit on")  # fmt: skip
    words = (
        "The worst first: by recovery in whole percent, then by hours of alerts. Recovery is the mean of a "
        "mast's channels, of all that was due; one that was to measure and has nothing counts 0. Hours are "
        "those of each alert in this time, together; seen: acknowledged; stand: not cleared at the end."
    )
    return [table(head, rows), tag("p", words, class_="note")]
