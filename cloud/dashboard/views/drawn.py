"""Each chart of a mast as ECharts' options, with its text alternative; or in words why there is none."""

from __future__ import annotations

from typing import Any, Final

from cloud.dashboard import charts, over_time
from cloud.dashboard.frame import moment
from cloud.dashboard.plots import described
from cloud.dashboard.views.empty import why_no_chart, why_no_series
from cloud.dashboard.views.figures import FIGURES, of_diurnal, of_series
from cloud.errors import CloudError
from cloud.lake.numbers import CHARTS, View, subject
from cloud.lake.reader import Frame

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
        is_direction = view.channel.quantity == "wind_direction"
        drawn = charts.diurnal(frame, view.channel.unit, is_direction=is_direction)
        figures = of_diurnal(frame, view.channel.unit, is_direction=is_direction)
    else:
        drawn, figures = charts.DRAW[name](frame), FIGURES[name](frame)
    span = view.span
    extent = f"{moment(span.begin_ms)} to {moment(span.end_ms)} UTC"
    if "intervals" in frame.columns and name != "shear":
        extent += f", {sum(frame.column('intervals')):,} intervals"
    elif name in ("pair", "irradiance"):
        extent += f", {len(frame.rows):,} intervals"
    return described(drawn, f"{span.gateway}: {TITLES[name]}", subject(view, name), extent, figures)


def draw_series(view: View, frame: Frame, bands: dict[str, Any]) -> dict[str, Any] | str:
    """The channel over the span, or why there is nothing of it; ``bands`` are what is marked."""
    if (why := why_no_series(view, frame)) is not None:
        return why
    span, channel = view.span, view.channel
    drawn = over_time.series(
        frame, channel.name, channel.unit, span.begin_ms, span.end_ms,
        is_direction=channel.quantity == "wind_direction", bands=bands,
    )  # fmt: skip
    return about_series(view, frame, drawn, span.begin_ms, span.end_ms)


def about_series(
    view: View, frame: Frame, drawn: dict[str, Any], begin_ms: int, end_ms: int
) -> dict[str, Any]:
    """Options with title and text alternative of what is seen."""
    extent = f"{moment(begin_ms)} to {moment(end_ms)} UTC, {view.span.interval_s / 60:g}-minute statistics"
    title = f"{view.mast.gateway}: over time"
    return described(drawn, title, view.channel.name, extent, of_series(frame, view.channel))
