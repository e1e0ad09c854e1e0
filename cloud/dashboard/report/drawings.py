"""The charts of a report: SVG by matplotlib, which is part of the extra ``report``."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from cloud.dashboard.charts import Options
from cloud.dashboard.report.figures import Period, PeriodView, coverage
from cloud.dashboard.report.markup import tag
from cloud.lake.mast import DAY_MS, Channel
from cloud.lake.numbers import insolation, series

_INK, _GRID, _BLUE, _ORANGE = "#4a5560", "#dfe4e8", "#2f7ed8", "#d8701f"
_COLOURS: Final = (_BLUE, _ORANGE, "#35a06b", "#8a63b8", "#b08900", "#d9534f")
_DASHES: Final = {"solid": "-", "dashed": "--", "dotted": ":"}
_RECOVERY: Final = (
    (0.0, _GRID, "none"), (1e-12, "#d9534f", "< 50 %"), (0.5, "#e6b02e", "50–90 %"),
    (0.9, "#a3cf62", "90–98 %"), (0.98, "#35a06b", "≥ 98 %"),
)  # fmt: skip
_POINTS: Final = 480
_NARROW, _WIDE = (4.8, 3.0), (9.8, 2.6)
_LOOKS: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans", "font.size": 8.5, "text.color": _INK, "axes.labelcolor": _INK,
    "axes.edgecolor": _INK, "xtick.color": _INK, "ytick.color": _INK, "axes.axisbelow": True,
    "axes.spines.left": False, "axes.spines.right": False, "axes.spines.top": False, "ytick.major.size": 0,
    "grid.color": _GRID, "legend.frameon": False, "lines.linewidth": 1.6,
}  # fmt: skip


def over_time(view: PeriodView, channel: Channel) -> ET.Element:
    """A channel over the period's days: mean, and the band from the lowest to the highest reading."""
    period = view.period
    rows = series(view, channel.name, period.begin_ms, period.end_ms, _POINTS).dicts()
    days = [1 + (row["time"] - period.begin_ms) / DAY_MS for row in rows]
    low, high, mean = (_floats(row[name] for row in rows) for name in ("low", "high", "value"))
    figure, axes = _axes("", channel.unit, _WIDE)
    axes.fill_between(days, low, high, color=_BLUE, alpha=0.18, linewidth=0, label="lowest to highest")
    axes.plot(days, mean, color=_BLUE, linewidth=1.1, label="mean")
    _name_days(axes, period)
    return _picture(figure, f"{channel.name} over the period")


def chart(options: Options, label: str) -> ET.Element:
    """A chart of the pages, lines, bars and dots over one pair of axes, by its options for ECharts."""
    x, y = options["xAxis"], options["yAxis"]
    figure, axes = _axes(x["name"], y["name"])
    for each in options["series"]:
        name, colour = each["name"], each["itemStyle"]["color"]
        places, values = (_floats(point[at] for point in each["data"]) for at in (0, 1))
        if each["type"] == "bar":
            axes.bar(places, values, 0.9, color=colour, alpha=0.8, label=name)
        elif each["type"] == "scatter":
            axes.plot(places, values, "o", color=colour, label=name)
        else:
            style, dot = each["lineStyle"], "o" if each["showSymbol"] else ""
            dash = dot + _DASHES[style.get("type", "solid")]
            width = 0.8 * style["width"]
            axes.plot(places, values, dash, color=colour, linewidth=width, markersize=3, label=name)
    axes.set(xlim=(x.get("min"), None), ylim=(y.get("min"), None))
    return _picture(figure, label)


def rose(options: Options) -> ET.Element:
    """The pages' wind rose: for each of 16 sectors its share, by speed."""
    with mpl.rc_context(_LOOKS | {"axes.spines.left": True}):
        figure = Figure(_NARROW, layout="constrained")
        axes: Any = figure.add_subplot(projection="polar")
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        axes.set_thetagrids(range(0, 360, 90), "NESW")
        axes.yaxis.set_major_formatter("{x:g} %")
        axes.yaxis.set_major_locator(mpl.ticker.MaxNLocator(3))
        axes.spines[:].set_visible(False)
        sectors, floor = np.arange(16) * np.pi / 8, np.zeros(16)
        for each in options["series"]:
            colour = each["itemStyle"]["color"]
            axes.bar(sectors, each["data"], 0.34, floor, color=colour, edgecolor="white", linewidth=0.3,
                     label=each["name"])  # fmt: skip
            floor += each["data"]
        axes.legend(loc="center left", bbox_to_anchor=(1.15, 0.5))
    return _picture(figure, "Wind rose")


def course(channels: list[Channel], hours: list[list[float | None]], quantity: str) -> ET.Element | None:
    """The mean day of the channels of a quantity; None without one."""
    lines = [
        (channel, _floats(means[at] for means in hours))
        for at, channel in enumerate(channels)
        if channel.quantity == quantity
    ]
    if all(np.isnan(means).all() for _, means in lines):
        return None
    figure, axes = _axes("hour of the day", lines[0][0].unit)
    for (channel, means), colour in zip(lines, _COLOURS, strict=False):
        height = f"{channel.height_m:g} m" if channel.height_m else channel.name
        name = height if quantity == "wind_speed" else channel.name
        axes.plot([hour + 0.5 for hour in range(len(hours))], means, color=colour, label=name)
    axes.set(xlim=(0, 24), xticks=range(0, 25, 3), xticklabels=[f"{hour:02d}" for hour in range(0, 25, 3)])
    return _picture(figure, f"Mean day of {quantity.replace('_', ' ')}")


def recovered(view: PeriodView) -> ET.Element:
    """Recovery by channel and day."""
    found = {(row["channel"], row["day"]): row["recovery"] for row in coverage(view).dicts()}
    channels = sorted({channel for channel, _ in found}, reverse=True)
    days = range(1, view.period.days + 1)
    shares = np.array([_floats(found.get((channel, day)) for day in days) for channel in channels])
    figure, axes = _axes("", "", (_WIDE[0], 0.5 + 0.18 * len(channels)))
    classes = np.digitize(shares, [least for least, _, _ in _RECOVERY]).astype(float)
    classes[np.isnan(shares)] = np.nan
    colours = [colour for _, colour, _ in _RECOVERY]
    edges = np.arange(0.5, view.period.days + 1)
    axes.pcolormesh(edges, np.arange(len(channels) + 1), classes, cmap=ListedColormap(colours), vmin=1,
                    vmax=len(colours), edgecolor="white", linewidth=1)  # fmt: skip
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set(yticks=np.arange(len(channels)) + 0.5, yticklabels=channels, xticks=list(days))
    axes.set_xticklabels(_days(view.period))
    axes.tick_params(length=0)
    legend = [Patch(color=colour, label=words) for _, colour, words in reversed(_RECOVERY)]
    return _picture(figure, "Recovery by channel and day", legend)


def sunny_days(view: PeriodView) -> ET.Element:
    """Insolation of each of the site's days."""
    rows = insolation(view).dicts()
    figure, axes = _axes("", "kWh/m²", _WIDE)
    days = [(date.fromisoformat(row["day"]) - view.period.first).days + 1.5 for row in rows]
    axes.bar(days, [row["insolation_wh_m2"] / 1000 for row in rows], 0.94, color="#e0a12b", alpha=0.8)
    _name_days(axes, view.period)
    return _picture(figure, "Insolation by day")


def _axes(x: str, y: str, size: tuple[float, float] = _NARROW) -> tuple[Figure, Any]:
    """Returns a figure of a size in inches, with one pair of axes of these names."""
    with mpl.rc_context(_LOOKS):
        figure = Figure(size, layout="constrained")
        axes = figure.add_subplot(xlabel=x, ylabel=y)
        axes.grid(axis="y")
    return figure, axes


def _days(period: Period) -> list[str]:
    """Returns each day's number in its month."""
    return [str((period.first + timedelta(days=each)).day) for each in range(period.days)]


def _name_days(axes: Any, period: Period) -> None:
    if period.days == 1:
        axes.set(xlim=(1, 2), xlabel="hour", xticks=[1 + hour / 24 for hour in range(0, 25, 3)])
        axes.set_xticklabels([str(hour) for hour in range(0, 25, 3)])
        return
    axes.set(xlim=(1, period.days + 1), xlabel="day of the month", xticks=np.arange(period.days) + 1.5)
    axes.set_xticklabels(_days(period))


def _floats(values: Iterable[float | None]) -> list[float]:
    return [np.nan if value is None else value for value in values]


def _picture(figure: Figure, label: str, legend: Sequence[Patch] | None = None) -> ET.Element:
    """Returns the figure as an element of the page, with its words for those who don't see it."""
    (axes,) = figure.axes
    named = legend or axes.get_legend_handles_labels()[0]
    with mpl.rc_context(_LOOKS | {"svg.fonttype": "none", "svg.hashsalt": label}):
        if named and axes.get_legend() is None:
            figure.legend(handles=named, loc="outside upper left", ncols=len(named), handlelength=1.5)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawn = ET.fromstring(text.getvalue())  # noqa: S314 - of matplotlib
    for each in list(drawn.iter()):
        each.tag = each.tag.rpartition("}")[2]
        each.attrib = {key.rpartition("}")[2]: value for key, value in each.attrib.items()}
        if each.tag == "g":
            # The same in each picture, and nothing refers to them.
            each.attrib.pop("id", None)
    if (about := drawn.find("metadata")) is not None:
        drawn.remove(about)
    drawn.set("role", "img")
    drawn.insert(0, tag("title", label))
    return tag("div", drawn, class_="chart wide" if figure.get_figwidth() == _WIDE[0] else "chart")
