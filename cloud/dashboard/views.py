"""A mast's charts: what the address asks for, each chart with its title, or in words why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cloud.dashboard import charts
from cloud.dashboard.charts import described
from cloud.dashboard.frame import address, end_ms, moment, time_ms
from cloud.errors import CloudError
from cloud.lake.mast import DAY_MS, MOST_CHANNELS, masts, read_mast
from cloud.lake.numbers import CHARTS, IS_COVERED, IS_VALID, View, channels_of, subject
from cloud.lake.reader import Frame, LakeReader, Span

_LISTED: Final = 20


@dataclass(frozen=True)
class Request:
    """What the page's address says; empty texts and None are left to the page."""

    gateway: str
    channel: str | None = None
    begin: str | None = None
    end: str | None = None
    interval_s: int | None = None
    is_clean: bool = False

    def address(self, path: str, **other: object) -> str:
        """The same view at another path, or with other values."""
        query = {"channel": self.channel, "from_": self.begin, "to": self.end, "interval": self.interval_s,
                 "marks": "without" if self.is_clean else None}  # fmt: skip
        return address(path, **(query | other))


def open_view(reader: LakeReader, request: Request) -> View:
    """The statistics that an address asks for. Raises Missing, CloudError."""
    mast = read_mast(reader, request.gateway, most=MOST_CHANNELS, wanted=request.channel)
    channel = mast.named(request.channel)
    if channel is None and mast.channels:
        names = [each.name for each in mast.channels]
        raise CloudError(
            f"{request.gateway} has no statistics of a channel {request.channel}; it has "
            f"{', '.join(names[:_LISTED])}{', …' if len(names) > _LISTED else ''}."
        )
    if channel is None:
        known = masts(reader)
        there = ", ".join(known[:_LISTED]) + (", …" if len(known) > _LISTED else "")
        raise CloudError(
            f"No statistics of {request.gateway} in the lake: fieldgate jobs run statistics makes them of "
            f"its readings, fieldgate import of other loggers' files. The lake has {there or 'no mast yet'}."
        )
    lengths = mast.intervals_s
    interval_s = next((each for each in (request.interval_s, 600) if each in lengths), lengths[0])
    end = min(end_ms(request.end) or mast.end_ms, mast.end_ms)
    asked = time_ms(request.begin)
    begin = end - 7 * DAY_MS if asked is None else asked
    if begin >= end:
        raise CloudError(f"Nothing from {moment(begin)} to {moment(end)}: the mast's statistics are from "
                         f"{moment(mast.begin_ms)} to {moment(mast.end_ms)}.")  # fmt: skip
    span = Span(request.gateway, interval_s, max(begin, mast.begin_ms), end, request.is_clean, mast.chosen)
    return View(mast, reader, span, channel)


_OTHER_TIME: Final = "Choose another time above."
_STATISTICS: Final = "fieldgate jobs run statistics"
_NO_ROWS_OF_MAST: Final = (
    "Table mast has nothing of this mast in this time: fieldgate jobs run mast makes it of closed intervals."
)
_VALUES: Final = {
    "shear": "mean_speed", "shadow": "relative", "rain": "sum_mm", "recovery": "recovery", "series": "value",
}  # fmt: skip
"""The column of a chart that has rows without a value: a chart has nothing to draw where all are null."""
_NEEDS: Final = {
    "shear": "In no interval of this time were all cups above 3 m/s.",
    "turbulence": "Nothing to draw from in this time. It needs three intervals above 3 m/s in a bin of "
    "speed, and the cup's standard deviation (of an import its column sd).",
    "shadow": "No sector has ten intervals in which vane and twins have values and both cups are above "
    "3 m/s.",
    "insolation": "Table mast has no insolation in this time: it needs half of an interval's samples.",
    "recovery": f"No interval of this time is closed yet: {_STATISTICS} closes each a little after its end.",
}
"""What charts need that aren't of the values of a few channels alone."""


def why_no_chart(view: View, name: str, frame: Frame) -> str | None:
    """Why the rows of a chart, or of ``series``, have nothing to draw, if so. Raises Missing."""
    column = _VALUES.get(name)
    if frame.rows and (column is None or any(each is not None for each in frame.column(column))):
        return None
    if name in ("turbulence", "insolation") and not _mast_has_rows(view):
        return _NO_ROWS_OF_MAST
    return f"{_NEEDS[name]} {_OTHER_TIME}" if name in _NEEDS else _no_value(view, channels_of(view, name))


def _no_value(view: View, names: Sequence[str]) -> str:
    """Why there is no interval in which all the channels of these names have a value."""
    for name in names:
        counts = view.held.read(
            f"""SELECT count(*), count(*) FILTER ({IS_VALID}),
                count(*) FILTER (version > 0 AND coalesce(count, 0) = 0), count(*) FILTER (version = 0),
                count(*) FILTER (version > 0 AND count > 0 AND NOT {IS_COVERED})
            FROM statistics WHERE channel = ?""",  # noqa: S608 - texts of ours
            [name],
        ).rows[0]
        rows, valid, silent, is_open, few = counts
        rest = rows - silent - is_open - few
        if not rows:
            begin, end = moment(view.mast.begin_ms), moment(view.mast.end_ms)
            return (
                f"Table statistics has nothing of {name} in this time, of the mast from {begin} to {end}: "
                f"{_STATISTICS} makes it of readings. {_OTHER_TIME}"
            )
        if not valid:
            parts = (
                (silent, "have no reading that counts (missing, or failed a test of quality)"),
                (few, "have less than half of their samples"),
                (rest, "have readings that make no value together"),
                (is_open, f"are not closed yet, which {_STATISTICS} does soon after their end"),
            )
            words = ", ".join(f"{n:,} {what}" for n, what in parts if n)
            return f"None of {rows:,} intervals of {name} in this time has a value: {words}. {_OTHER_TIME}"
    return f"{' and '.join(names)} have no interval together in this time. {_OTHER_TIME}"


def _mast_has_rows(view: View) -> bool:
    """Raises Missing where there is no such table."""
    (count,) = view.held.read("SELECT count(*) FROM mast").rows[0]
    return bool(count)


NO_ROWS: Final = {
    "Calibration in force": "None of this mast. Its gateway publishes its channels' records at each start; "
    "fieldgate jobs run ingest stores them.",
    "Alerts": "None of this mast so far: fieldgate jobs run alerts raises them by the rules of its --rules.",
    "Anomalies": "No interval of this mast above its threshold, and no rule broken. "
    "Scores need a model: fieldgate jobs train.",
    "Runs": "No run of this mast: gateways publish them, fieldgate jobs run ingest stores them; an import "
    "has none.",
    "Losses": "None: no reading of this mast is lost or was dropped, as far as table presence has counted.",
}
"""What a table below the charts says that has no rows."""


TITLES: Final = {
    "wind-rose": "Wind rose", "distribution": "Wind speed distribution", "diurnal": "Course of the day",
    "shear": "Shear profile", "turbulence": "Turbulence intensity", "pair": "Redundant pair",
    "shadow": "Pair by direction: tower shadow", "irradiance": "Irradiance by time of day",
    "insolation": "Insolation by day", "rain": "Rain", "recovery": "Recovery by channel and day",
}  # fmt: skip


def draw(view: View, name: str) -> dict[str, Any] | str:
    """A chart's options, or why there is none."""
    try:
        frame = CHARTS[name](view)
        if (why := why_no_chart(view, name, frame)) is not None:
            return why
    except CloudError as error:
        return str(error)
    if name == "diurnal":
        drawn = charts.diurnal(frame, view.channel.unit, is_direction=view.channel.is_direction)
    else:
        drawn = charts.DRAW[name](frame)
    span = view.span
    extent = f"{moment(span.begin_ms)} to {moment(span.end_ms)} UTC"
    if name in ("pair", "irradiance"):
        extent += f", {len(frame.rows):,} intervals"
    elif "intervals" in frame.columns:
        # Each row of the shear's has the number of all.
        counts = frame.column("intervals")[: 1 if name == "shear" else None]
        extent += f", {sum(counts):,} intervals"
    return described(drawn, f"{span.gateway}: {TITLES[name]}", subject(view, name), extent)


def draw_series(
    view: View, frame: Frame, bands: dict[str, Any], events: Sequence[dict[str, Any]] = ()
) -> dict[str, Any] | str:
    """The channel over the span, or why there is nothing of it; ``bands`` and ``events`` as of ``charts``."""
    if (why := why_no_chart(view, "series", frame)) is not None:
        return why
    span, channel = view.span, view.channel
    drawn = charts.series(
        frame, channel.name, channel.unit, span.begin_ms, span.end_ms,
        is_direction=channel.is_direction, bands=bands, events=events,
    )  # fmt: skip
    return about_series(view, drawn, span.begin_ms, span.end_ms)


def about_series(view: View, drawn: dict[str, Any], begin_ms: int, end_ms: int) -> dict[str, Any]:
    """Options with title and text alternative of what is seen."""
    extent = f"{moment(begin_ms)} to {moment(end_ms)} UTC, {view.span.interval_s / 60:g}-minute statistics"
    return described(drawn, f"{view.mast.gateway}: over time", view.channel.name, extent)
