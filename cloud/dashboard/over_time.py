"""A channel over time as ECharts' options. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cloud.dashboard.plots import BLUE, GRID, INK, QUALITY, Options, axis, legend, rounded
from cloud.lake.reader import Frame

VALUE: Final = 2
"""Which of the lines has the value, and the bands of what is marked."""
_LONGEST_REASON: Final = 24
_DAYS: Final = {"year": "{d} {MMM} {yyyy}", "month": "{d} {MMM}", "day": "{d} {MMM}"}
"""A day with its month: alone it could be any."""


def series_data(frame: Frame) -> list[list[list[Any]]]:
    """The data of each line of ``series``, in its order: what a zoom puts in their place."""
    rows = frame.dicts()
    low = [[row["time"], rounded(row["low"], 5)] for row in rows]
    band = [
        [
            row["time"],
            None if row["low"] is None or row["high"] is None else rounded(row["high"] - row["low"], 5),
        ]
        for row in rows
    ]
    value = [[row["time"], rounded(row["value"], 5)] for row in rows]
    marked = [
        [
            [row["time"], rounded(row["value"], 5)]
            for row in rows
            if _worst(row) == name and row["value"] is not None
        ]
        for name in ("suspect", "fail")
    ]
    shares = [
        [[row["time"], rounded(row[name] or 0.0, 3) if row["good"] is not None else 0.0] for row in rows]
        for name in list(QUALITY)[:-1]
    ]
    missing = [
        [row["time"], 1.0 if row["good"] is None else rounded(max(0.0, 1.0 - sum(row[each] or 0.0 for each in
         ("good", "not_evaluated", "suspect", "fail"))), 3)] for row in rows
    ]  # fmt: skip
    return [low, band, value, *marked, *shares, missing]


def _worst(row: Mapping[str, Any]) -> str | None:
    """What at least a twentieth of a bucket's samples are, the worse first."""
    return next((name for name in ("fail", "suspect") if (row[name] or 0.0) >= 0.05), None)


def series(
    frame: Frame, channel: str, unit: str, begin_ms: int, end_ms: int, *, is_direction: bool, bands: Options
) -> Options:
    """A channel over time: mean and band, dots where quality is poor, and shares of quality below.

    ``bands`` are those of ``marked``.
    """
    low, band, value, suspect, fail, *shares = series_data(frame)
    line: Options = {"type": "line", "showSymbol": False, "connectNulls": False}
    hidden = {
        **line,
        "stack": "band",
        "silent": True,
        "lineStyle": {"opacity": 0},
        "tooltip": {"show": False},
    }
    drawn: list[Options] = [
        {**hidden, "name": "lowest", "data": low},
        {**hidden, "name": "lowest to highest", "data": band, "areaStyle": {"color": BLUE, "opacity": 0.16}},
        # Directions are dots: a line from 359 to 1° would cross the whole chart.
        {**line, "name": channel, "data": value, "itemStyle": {"color": BLUE}, "markArea": bands,
         "lineStyle": {"color": BLUE, "width": 0 if is_direction else 1.5},
         **({"showSymbol": True, "symbol": "circle", "symbolSize": 3} if is_direction else {})},
        *(
            {"type": "scatter", "name": f"{name} mean", "data": data, "symbolSize": 5, "silent": True,
             "itemStyle": {"color": QUALITY[name]}, "tooltip": {"show": False}, "z": 5}
            for name, data in (("suspect", suspect), ("fail", fail))
        ),
        *(
            {"type": "bar", "name": name.replace("_", " "), "stack": "quality", "data": data, "xAxisIndex": 1,
             "yAxisIndex": 1, "itemStyle": {"color": QUALITY[name]}, "barCategoryGap": "0%", "silent": True,
              "large": False}
            for name, data in zip(QUALITY, shares, strict=True)
        ),
    ]  # fmt: skip
    time = {"type": "time", "min": begin_ms, "max": end_ms, "axisLine": {"lineStyle": {"color": INK}}}
    return {
        "animation": False, "useUTC": True,
        "grid": [{"left": 56, "right": 18, "top": 34, "bottom": 96}, {"left": 56, "right": 18, "height": 14,
         "bottom": 54}],
        "legend": legend(*(name.replace("_", " ") for name in QUALITY)),
        "tooltip": {"trigger": "axis", "confine": True,
         ":valueFormatter": "v => v == null ? '–' : +(+v).toPrecision(4)"},
        "axisPointer": {"link": [{"xAxisIndex": "all"}]},
        "xAxis": [
            {**time, "axisLabel": {"color": INK, "hideOverlap": True, "formatter": _DAYS},
             "splitLine": {"show": True, "lineStyle": {"color": GRID}}},
            {**time, "gridIndex": 1, "axisLabel": {"show": False}, "axisTick": {"show": False}},
        ],
        "yAxis": [
            {**axis(unit, nameGap=38), **({"min": 0, "max": 360, "interval": 90} if is_direction else {})},
            {"type": "value", "gridIndex": 1, "min": 0, "max": 1, "show": False},
        ],
        "dataZoom": [
            {"type": "inside", "xAxisIndex": [0, 1], "filterMode": "none", "zoomOnMouseWheel": "ctrl",
             "throttle": 150},
            {"type": "slider", "xAxisIndex": [0, 1], "filterMode": "none", "height": 22, "bottom": 8,
             "throttle": 150,
             "borderColor": GRID, "showDataShadow": False, "textStyle": {"color": INK}},
        ],
        "series": drawn,
    }  # fmt: skip


def marked(marks: Sequence[Mapping[str, Any]], end_ms: int) -> Options:
    """Shaded bands, each with the reason: ``begin_at`` to ``end_at``, which None leaves open."""
    bands = []
    for mark in marks:
        reason = str(mark["reason"])
        shown = reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"
        end = end_ms if mark["end_at"] is None else mark["end_at"]
        bands.append([{"name": shown, "xAxis": mark["begin_at"]}, {"xAxis": end}])
    return {
        "silent": True, "data": bands, "itemStyle": {"color": QUALITY["missing"], "opacity": 0.2},
        "label": {"color": INK, "fontSize": 11},
    }  # fmt: skip
