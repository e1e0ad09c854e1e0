"""What tables other than the statistics say of a mast's month: records, flags by reason, runs, alerts."""

from __future__ import annotations

from typing import Any

from cloud.dashboard.report.figures import MonthView
from cloud.dashboard.report.month import Month
from cloud.lake.mast import records_in_force, within
from cloud.lake.numbers import IS_VALID
from cloud.lake.reader import Frame, LakeReader
from cloud.lake.tables import IN_FORCE, WHOLE_MAST


def calibrations(reader: LakeReader, gateway: str, month: Month) -> list[dict[str, Any]]:
    """Records of channels that were in force in the month, each with its ``periods`` in it (from, to).

    A beginning or an end outside the month, or unknown, is None. Raises Missing, LakeError.
    """
    found = records_in_force(reader, gateway, month.begin_ms, month.end_ms)
    for row in found:
        row["periods"] = [
            (begin if begin and begin > month.begin_ms else None, end if end and end < month.end_ms else None)
            for begin, end in row["spans"]
        ]
    return found


def flagged(reader: LakeReader, gateway: str, month: Month, interval_s: int) -> Frame:
    """Periods of intervals next to each other with flagged readings of one channel and reason; longest first.

    Quality 3, 4 and 9; ``readings`` is their number, ``worst`` the worst flag. Raises Missing, LakeError.
    """
    step = 1000 * interval_s
    return reader.read(
        "readings",
        f"""WITH flagged AS (
            SELECT channel, epoch_ms(time) // {step} AS slot, quality,
                unnest(if(len(coalesce(reasons, [])) = 0, ['no reason'], reasons)) AS reason
            FROM readings
            WHERE gateway = ? AND quality > 2 AND {within("time", month.begin_ms, month.end_ms)}
        ), slots AS (
            SELECT channel, reason, slot, count(*) AS readings, max(quality) AS worst
            FROM flagged GROUP BY ALL
        ), islands AS (
            SELECT *, slot - row_number() OVER (PARTITION BY channel, reason ORDER BY slot) AS island
            FROM slots
        )
        SELECT channel, reason, min(slot) * {step} AS begin_at, (max(slot) + 1) * {step} AS end_at,
            sum(readings)::BIGINT AS readings, max(worst) AS worst, count(*) AS intervals
        FROM islands GROUP BY channel, reason, island
        ORDER BY intervals DESC, begin_at, channel, reason""",  # noqa: S608 - numbers and texts of ours
        [gateway],
    )


def runs(reader: LakeReader, gateway: str, month: Month) -> list[dict[str, Any]]:
    """Runs of the gateway that reach into the month, and what they dropped, by reason."""
    return reader.read(
        "runs",
        "SELECT run, state, outbox_records, drops_unknown, map_entries(dropped_records) AS drops, "
        "epoch_ms(started) AS begin_at, epoch_ms(ended) AS end_at FROM runs "
        "WHERE gateway = ? AND started::TIMESTAMP < make_timestamp(?) "
        "AND (ended IS NULL OR ended::TIMESTAMP >= make_timestamp(?)) ORDER BY started",
        [gateway, 1000 * month.end_ms, 1000 * month.begin_ms],
    ).dicts()


def losses(reader: LakeReader, gateway: str) -> Frame:
    """Readings that are missing for good, by channel, of all runs until now."""
    return reader.read(
        "presence",
        "SELECT channel, pending, announced, lost FROM presence WHERE gateway = ? AND lost + announced > 0 "
        "ORDER BY channel",
        [gateway],
    )


def alerts(reader: LakeReader, gateway: str, month: Month) -> Frame:
    """Alerts that stood in the month, the first raised first."""
    return reader.read(
        "alerts",
        "SELECT rule, severity, channel, epoch_ms(raised_at) AS begin_at, epoch_ms(cleared_at) AS end_at, "
        "value, detail, historical FROM alerts "
        "WHERE gateway = ? AND raised_at::TIMESTAMP < make_timestamp(?) "
        "AND (cleared_at IS NULL OR cleared_at::TIMESTAMP >= make_timestamp(?)) ORDER BY raised_at, rule",
        [gateway, 1000 * month.end_ms, 1000 * month.begin_ms],
    )


def cleaning(reader: LakeReader, view: MonthView) -> Frame:
    """Marks of the cleaning log that reach into the month, and how many valid intervals each covers.

    Raises Missing, LakeError.
    """
    month, gateway = view.month, view.mast.gateway
    found = reader.read(
        "cleaning",
        f"""SELECT channel, epoch_ms("begin") AS begin_at, epoch_ms("end") AS end_at, reason, author
        FROM ({IN_FORCE}) WHERE gateway = ? AND "begin"::TIMESTAMP < make_timestamp(?)
            AND ("end" IS NULL OR "end"::TIMESTAMP > make_timestamp(?)) ORDER BY "begin", channel""",  # noqa: S608
        [gateway, 1000 * month.end_ms, 1000 * month.begin_ms],
    )
    step = 1000 * view.view.span.interval_s
    counted = [
        view.read(
            f"""SELECT count(*) FROM statistics WHERE {IS_VALID}
            AND ($1 IN ('{WHOLE_MAST}', channel) OR starts_with(channel, $1 || '.'))
            AND epoch_ms(interval_start) + {step} > $2 AND epoch_ms(interval_start) < $3""",  # noqa: S608
            channel, begin, month.end_ms if end is None else end,
        ).rows[0][0]
        for channel, begin, end, _, _ in found.rows
    ]  # fmt: skip
    return Frame(
        (*found.columns, "intervals"), [(*row, n) for row, n in zip(found.rows, counted, strict=True)]
    )


def means_without_marks(reader: LakeReader, view: MonthView) -> Frame:
    """Mean of each linear channel that is marked, with what the marks cover and without it."""
    marks = [(row["channel"], row["begin_at"], row["end_at"] or view.month.end_ms)
             for row in cleaning(reader, view).dicts()]  # fmt: skip
    step = 1000 * view.view.span.interval_s
    found = []
    for channel in view.mast.channels:
        own = [(begin, end) for name, begin, end in marks
               if name in (WHOLE_MAST, channel.name) or channel.name.startswith(f"{name}.")]  # fmt: skip
        if own and not channel.is_direction:
            marked = " OR ".join(
                f"(epoch_ms(interval_start) + {step} > {begin} AND epoch_ms(interval_start) < {end})"
                for begin, end in own
            )
            found += view.read(
                f"""SELECT channel, avg(avg) AS with_marked, avg(avg) FILTER (NOT ({marked})) AS without,
                    count(*) AS intervals, count(*) FILTER ({marked}) AS marked
                FROM statistics WHERE {IS_VALID} AND channel = ? GROUP BY channel""",  # noqa: S608
                channel.name,
            ).rows
    return Frame(("channel", "with_marked", "without", "intervals", "marked"), found)
