"""Rows as ECharts' options. Pure; colours are readable on light and on dark, the background is the page's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cloud.lake.numbers import IEC_CLASSES, iec_turbulence
from cloud.lake.reader import Frame

Options = dict[str, Any]

INK: Final = "#7a8794"
GRID: Final = "rgba(128,140,152,0.18)"
BLUE: Final = "#2f7ed8"
ORANGE: Final = "#e8833a"
QUALITY: Final = {
    "good": "#35a06b", "not_evaluated": "#8fa3b5", "suspect": "#e6b02e", "fail": "#d9534f",
     "missing": "#8a63b8",
}  # fmt: skip
STATES: Final = {"online": "#35a06b", "silent": "#e6b02e", "offline": "#d9534f", "unknown": "#8fa3b5"}


def axis(name: str, kind: str = "value", **more: Any) -> Options:
    """An axis with its name beside its middle."""
    return {
        "type": kind, "name": name, "nameLocation": "middle", "nameGap": 30, "scale": True,
        "nameTextStyle": {"color": INK}, "axisLabel": {"color": INK, "hideOverlap": True},
        "axisLine": {"lineStyle": {"color": INK}}, "splitLine": {"lineStyle": {"color": GRID}}, **more,
    }  # fmt: skip


def plain(x: Options, y: Options, series: list[Options], **more: Any) -> Options:
    """Series over one pair of axes."""
    return {
        "animation": False, "grid": {"left": 56, "right": 18, "top": 34, "bottom": 48},
        "xAxis": x, "yAxis": y,
        "tooltip": {"trigger": "axis", "confine": True,
         ":valueFormatter": "v => v == null ? '–' : +(+v).toPrecision(4)"},
        "legend": legend(), "series": series, **more,
    }  # fmt: skip


def legend(*names: str) -> Options:
    """Which series can be switched off; on a phone in one line, to be turned."""
    return {
        "type": "scroll", "textStyle": {"color": INK}, "top": 2, "itemHeight": 9, "itemWidth": 16,
        "pageIconSize": 10, "pageTextStyle": {"color": INK}, "data": list(names),
    }  # fmt: skip


def described(drawn: Options, title: str, subject: str, extent: str) -> Options:
    """Adds what stands above a saved picture; a screen reader gets it too, and the names of the lines."""
    # ECharts doesn't draw a title that isn't shown; the card and the picture have it from here.
    words = ". ".join((title, subject, extent, *drawn.get("legend", {}).get("data", ())))
    return {
        **drawn,
        "title": {"show": False, "text": title, "subtext": f"{subject}\n{extent}"},
        "aria": {"enabled": True, "label": {"description": f"{words}."}},
    }


def rounded(value: float | None, digits: int = 4) -> float | None:
    """A number as short as a screen needs it; null for what is none."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def heat(columns: list[str], lines: list[str], cells: list[Any], colours: Options) -> Options:
    """Cells (column, line, value) in colours."""
    longest = max((len(line) for line in lines), default=0)
    both = {
        "axisLabel": {"color": INK, "hideOverlap": True},
        "axisTick": {"show": False},
        "axisLine": {"show": False},
    }
    return {
        "animation": False, "grid": {"left": min(190, 14 + 7 * longest), "right": 14, "top": 30,
         "bottom": 26},
        "xAxis": {"type": "category", "data": columns, **both},
        "yAxis": {"type": "category", "data": lines, "inverse": True, **both},
        "tooltip": {"confine": True},
        "visualMap": {"orient": "horizontal", "right": 8, "top": 0, "itemHeight": 90, "itemWidth": 9,
                      "textStyle": {"color": INK}, "calculable": False, **colours},
        "series": [{"type": "heatmap", "data": cells, "progressive": 0,
                    "itemStyle": {"borderWidth": 1, "borderColor": "rgba(128,140,152,0.12)"}}],
    }  # fmt: skip


def line(name: str, data: list[Any], colour: str, **more: Any) -> Options:
    """A line without dots."""
    return {
        "type": "line", "name": name, "data": data, "showSymbol": False, "itemStyle": {"color": colour},
        "lineStyle": {"color": colour, "width": 2}, **more,
    }  # fmt: skip


def bars(name: str, data: list[Any], colour: str, **more: Any) -> Options:
    """Bars that nearly touch."""
    style = {"color": colour, "opacity": 0.75}
    return {"type": "bar", "name": name, "data": data, "itemStyle": style, "barCategoryGap": "10%", **more}


def dots(name: str, data: list[Any], size: int, **more: Any) -> Options:
    """Points that nothing joins."""
    return {
        "type": "scatter", "name": name, "data": data, "symbolSize": size,
        "itemStyle": {"color": BLUE}, **more,
    }  # fmt: skip


def points(rows: Sequence[Mapping[str, Any]], x: str, y: str, scale: float = 1.0) -> list[Any]:
    """Two columns as points; where the second is null there is none."""
    return [[rounded(row[x]), None if row[y] is None else rounded(scale * row[y])] for row in rows]


_EACH: Final = {"trigger": "item", "confine": True}
"""A tooltip of the point under the pointer, not of all at its place."""
_SPEEDS: Final = ("#b9d7f3", "#7fb5e8", "#4a90d9", "#2f6cb3", "#f2b134", "#e0622f")
_MOST_DAYS: Final = 31
"""Lines of days that a reader can still distinguish, and that a browser draws at once."""


def wind_rose(frame: Frame) -> Options:
    """Stacked bars on the compass, a sector each, by class of speed."""
    rows = frame.dicts()
    compass = ("N", "", "NE", "", "E", "", "SE", "", "S", "", "SW", "", "W", "", "NW", "")
    stacks: list[Options] = []
    for at, colour in enumerate(_SPEEDS):
        by_sector = {row["sector"]: row["share"] for row in rows if row["from_mps"] == 3 * at}
        name = f"{3 * at}–{3 * at + 3}" if at < len(_SPEEDS) - 1 else f"≥ {3 * at} m/s"
        data = [rounded(100 * by_sector.get(22.5 * sector, 0.0), 3) for sector in range(16)]
        stacks.append({"type": "bar", "coordinateSystem": "polar", "stack": "rose", "name": name,
         "data": data,
                       "itemStyle": {"color": colour}, "barCategoryGap": "12%"})  # fmt: skip
    names = [each["name"] for each in stacks]
    # Turned by half a sector: a category's bar is drawn from its beginning, and north is its middle.
    turned = {"type": "category", "data": list(compass), "startAngle": 101.25, "axisTick": {"show": False}}
    label = {"color": INK, "interval": 1}
    return {
        "animation": False, "polar": {"center": ["50%", "54%"], "radius": ["6%", "74%"]},
        "angleAxis": {**turned, "axisLabel": label, "axisLine": {"lineStyle": {"color": GRID}},
                      "splitLine": {"show": False}},
        "radiusAxis": {"axisLabel": {"color": INK, "formatter": "{value} %", "fontSize": 10},
                       "axisLine": {"show": False}, "axisTick": {"show": False},
                       "splitNumber": 3, "splitLine": {"lineStyle": {"color": GRID}}, "z": 9},
        "tooltip": {"trigger": "item", "confine": True, ":valueFormatter": "v => v + ' %'"},
        "legend": legend(*names), "series": stacks,
    }  # fmt: skip


def distribution(frame: Frame) -> Options:
    """Bars of what was measured, a line of the Weibull distribution."""
    rows = [row | {"middle": row["from_mps"] + 0.5} for row in frame.dicts()]
    name = "Weibull: none"
    if rows and rows[0]["weibull_k"]:
        name = f"Weibull A {rows[0]['weibull_a_mps']:.2f} m/s, k {rows[0]['weibull_k']:.2f}"
    drawn = [
        bars("measured", points(rows, "middle", "share", 100), BLUE),
        line(name, points(rows, "middle", "weibull_share", 100), ORANGE, smooth=True),
    ]
    return plain(axis("m/s", min=0), axis("% of intervals", min=0), drawn, legend=legend("measured", name))


def diurnal(frame: Frame, unit: str, *, is_direction: bool) -> Options:
    """Mean by hour with the band of 80 % of intervals; with several months a map of month and hour."""
    rows = frame.dicts()
    months = sorted({row["month"] for row in rows})
    if len(months) > 2:
        cells = [[row["hour"], months.index(row["month"]), rounded(row["mean"])] for row in rows]
        means = [cell[2] for cell in cells if cell[2] is not None]
        return heat(
            [f"{hour:02d}" for hour in range(24)], months, cells,
            {"min": min(means, default=0), "max": max(means, default=1), "inRange": {"color": ["#1f4e9c",
             "#4a90d9", "#f2e9c9", "#e0622f"]}},
        )  # fmt: skip
    drawn: list[Options] = []
    for month, colour in zip(months, (BLUE, ORANGE), strict=False):
        of = [row for row in rows if row["month"] == month]
        if not is_direction:
            band = [[row["hour"], rounded(row["p90"] - row["p10"])] for row in of]
            hidden = {"stack": month, "silent": True, "lineStyle": {"opacity": 0}, "tooltip": {"show": False}}
            shade = {"areaStyle": {"color": colour, "opacity": 0.13}}
            drawn.append(line(f"10 % {month}", points(of, "hour", "p10"), colour, **hidden))
            drawn.append(line(f"band {month}", band, colour, **hidden, **shade))
        # Directions are dots: a line from 359 to 1° would cross the whole chart.
        as_dots = {"showSymbol": True, "lineStyle": {"width": 0}} if is_direction else {}
        drawn.append(line(month, points(of, "hour", "mean"), colour, **as_dots))
    return plain(
        axis("hour of the site's day", min=0, max=23), axis(unit, nameGap=38), drawn, legend=legend(*months)
    )


def recovery(frame: Frame) -> Options:
    """A square for each channel and day, from red (none) to green."""
    rows = frame.dicts()
    days, channels = (sorted({row[name] for row in rows}) for name in ("day", "channel"))
    at_day = {day: at for at, day in enumerate(days)}
    at_channel = {channel: at for at, channel in enumerate(channels)}
    cells = [
        [at_day[row["day"]], at_channel[row["channel"]], rounded(100 * row["recovery"], 3)]
        for row in rows
        if row["recovery"] is not None
    ]
    pieces = [
        {"gte": 98, "label": "≥ 98 %", "color": "#35a06b"}, {"gte": 90, "lt": 98, "label": "90–98 %",
         "color": "#a3cf62"},
        {"gte": 50, "lt": 90, "label": "50–90 %", "color": "#e6b02e"}, {"lt": 50, "label": "< 50 %",
         "color": "#d9534f"},
    ]  # fmt: skip
    return heat(
        [day[5:] for day in days], channels, cells, {"type": "piecewise", "pieces": pieces, "itemHeight": 9}
    )


def shear(frame: Frame) -> Options:
    """Speed over height: what was measured, and the power law of the mean exponent through the highest."""
    rows = [row for row in frame.dicts() if row["mean_speed"] is not None]
    alpha = rows[0]["shear_alpha"] if rows else None
    law, name = [], "power law"
    if alpha is not None:
        top, name = rows[-1], f"power law, α {alpha:.3f}"
        heights = [top["height_m"] * (at + 1) / 12 for at in range(15)]
        law = [[rounded(top["mean_speed"] * (z / top["height_m"]) ** alpha), rounded(z)] for z in heights]
    measured = "mean, all cups above 3 m/s"
    drawn = [line(name, law, ORANGE, smooth=True), dots(measured, points(rows, "mean_speed", "height_m"), 11)]
    y = axis("m above ground", min=0, nameGap=38)
    return plain(axis("m/s"), y, drawn, legend=legend(name, measured), tooltip=_EACH)


def turbulence(frame: Frame) -> Options:
    """Intensity by speed beside the curves of IEC 61400-1's normal turbulence model."""
    rows = frame.dicts()
    speeds = [at / 2 for at in range(7, 2 * max((int(row["speed_mps"]) for row in rows), default=15) + 5)]
    drawn = [
        line(f"IEC {name}", [[v, rounded(100 * iec_turbulence(at_15, v))] for v in speeds], INK,
             lineStyle={"color": INK, "width": 1, "type": kind})
        for (name, at_15), kind in zip(IEC_CLASSES, ("solid", "dashed", "dotted"), strict=True)
    ]  # fmt: skip
    for name, column, colour in (("mean", "mean", BLUE), ("90th percentile", "p90", ORANGE)):
        share = points(rows, "speed_mps", column, 100)
        drawn.append(line(name, share, colour, showSymbol=True, symbolSize=6))
    y = axis("turbulence intensity, %", min=0, nameGap=38)
    return plain(axis("m/s", min=3), y, drawn, legend=legend(*(each["name"] for each in drawn)))


def pair(frame: Frame) -> Options:
    """Twins against each other, with the line on which they agree."""
    rows = frame.dicts()
    most = max((float(row[at]) for row in rows for at in ("cup", "twin")), default=1.0)
    drawn = [
        dots("intervals", points(rows, "cup", "twin"), 4, large=True,
             itemStyle={"color": BLUE, "opacity": 0.45}),
        line("equal", [[0, 0], [most, most]], INK, lineStyle={"color": INK, "type": "dashed", "width": 1}),
    ]  # fmt: skip
    return plain(axis("channel", min=0), axis("its twin", min=0, nameGap=38), drawn, tooltip=_EACH)


def shadow(frame: Frame) -> Options:
    """The twins' ratio by sector; red where one stands in the tower's shadow."""
    data = [
        {"value": [row["sector"], rounded(row["relative"])],
         "itemStyle": {"color": QUALITY["fail"] if row["shadowed"] else BLUE}}
        for row in frame.dicts() if row["relative"] is not None
    ]  # fmt: skip
    drawn = [line("ratio to the median", data, BLUE, showSymbol=True, symbolSize=6)]
    return plain(axis("direction, °", min=0, max=360, interval=90), axis("channel / twin", nameGap=40), drawn)


def irradiance(frame: Frame) -> Options:
    """The day's course: thin lines of the last days, their mean, and the highest mean of an interval."""
    rows = frame.dicts()
    days: dict[str, list[Any]] = {}
    for row in rows:
        days.setdefault(row["day"], []).append(row)
    shown = sorted(days)[-_MOST_DAYS:]
    name = "each day" if len(shown) == len(days) else f"each of the last {_MOST_DAYS} days"
    pale = {"color": INK, "width": 1, "opacity": 0.3}
    thin = {"silent": True, "tooltip": {"show": False}, "lineStyle": pale}
    by_hour = [row for _, row in sorted({row["hour"]: row for row in rows}.items())]
    drawn = [line(name, points(days[day], "hour", "value"), INK, **thin) for day in shown]
    drawn.append(line("highest", points(by_hour, "hour", "highest"), ORANGE))
    area = {"opacity": 0.25}
    drawn.append(line("mean", points(by_hour, "hour", "mean"), QUALITY["suspect"], areaStyle=area))
    x = axis("hour of the site's day", min=0, max=24, interval=3)
    return plain(x, axis("W/m²", nameGap=42), drawn, legend=legend("highest", "mean", name))


def insolation(frame: Frame) -> Options:
    """A bar for each of the site's days."""
    days = {**axis("day", "category", data=[day[5:] for day in frame.column("day")]), "scale": False}
    data = [rounded(value / 1000) for value in frame.column("insolation_wh_m2")]
    return plain(days, axis("kWh/m²", min=0, nameGap=34), [bars("insolation", data, QUALITY["suspect"])])


def rain(frame: Frame) -> Options:
    """A bar for each hour or day; paler where some of its intervals have no value."""
    rows = frame.dicts()
    is_hourly = len(rows) > 1 and rows[1]["time"] - rows[0]["time"] < 86_400_000
    # A gap of years has no bars: then a day without its year would be any year's.
    begin = 5 if len({row["local"][:4] for row in rows}) < 3 else 0
    names = [row["local"][begin : 16 if is_hourly else 10] for row in rows]
    data = [
        {"value": rounded(row["sum_mm"]),
         "itemStyle": {"color": BLUE, "opacity": 1.0 if row["intervals"] == row["due"] else 0.45}}
        for row in rows
    ]  # fmt: skip
    x = {**axis("hour" if is_hourly else "day", "category", data=names), "scale": False}
    return plain(x, axis("mm", min=0, nameGap=34), [bars("rain", data, BLUE)])


DRAW: Final[dict[str, Callable[[Frame], Options]]] = {
    "wind-rose": wind_rose, "distribution": distribution, "shear": shear, "turbulence": turbulence,
     "pair": pair,
    "shadow": shadow, "irradiance": irradiance, "insolation": insolation, "rain": rain,
    "recovery": recovery,
}  # fmt: skip
"""How each chart of ``mast.CHARTS`` is drawn; ``diurnal`` needs the channel's unit too."""


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
    frame: Frame,
    channel: str,
    unit: str,
    begin_ms: int,
    end_ms: int,
    *,
    is_direction: bool,
    bands: Options,
    events: Sequence[Options] = (),
) -> Options:
    """A channel over time: mean and band, dots where quality is poor; events above, shares of quality below.

    ``bands`` are those of ``marked``, ``events`` points with a name, in the order of time or not.
    """
    low, band, value, suspect, fail, *shares = series_data(frame)
    hidden = {"stack": "band", "silent": True, "lineStyle": {"opacity": 0}, "tooltip": {"show": False}}
    shade = {"areaStyle": {"color": BLUE, "opacity": 0.16}}
    # Directions are dots: a line from 359 to 1° would cross the whole chart.
    as_dots = {"showSymbol": True, "symbol": "circle", "symbolSize": 3} if is_direction else {}
    width = {"color": BLUE, "width": 0 if is_direction else 1.5}
    drawn: list[Options] = [
        line("lowest", low, BLUE, **hidden),
        line("lowest to highest", band, BLUE, **hidden, **shade),
        line(channel, value, BLUE, connectNulls=False, markArea=bands, lineStyle=width, **as_dots),
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
        {"type": "scatter", "name": "events", "data": list(events), "xAxisIndex": 2, "yAxisIndex": 2,
         "symbolSize": 9, "itemStyle": {"color": INK}, "tooltip": {"formatter": "{b}"}},
    ]  # fmt: skip
    sides = {"left": 56, "right": 18}
    time = {"type": "time", "min": begin_ms, "max": end_ms, "axisLine": {"lineStyle": {"color": INK}}}
    return {
        "animation": False, "useUTC": True,
        # Else the first would get narrower than the others where its last label needs room.
        "grid": [{**sides, "top": 44, "bottom": 96, "outerBoundsMode": "none"},
                 {**sides, "height": 14, "bottom": 54},
                 {**sides, "height": 14, "top": 26, "tooltip": {"trigger": "item"}}],
        "legend": legend(*(name.replace("_", " ") for name in QUALITY)),
        "tooltip": {"trigger": "axis", "confine": True,
         ":valueFormatter": "v => v == null ? '–' : +(+v).toPrecision(4)"},
        "axisPointer": {"link": [{"xAxisIndex": [0, 1]}]},
        "xAxis": [
            {**time, "axisLabel": {"color": INK, "hideOverlap": True, "formatter": _DAYS,
                                   "alignMaxLabel": "right"},
             "splitLine": {"show": True, "lineStyle": {"color": GRID}}},
            {**time, "gridIndex": 1, "axisLabel": {"show": False}, "axisTick": {"show": False}},
            {**time, "gridIndex": 2, "show": False, "axisPointer": {"show": False}},
        ],
        "yAxis": [
            {**axis(unit, nameGap=38), **({"min": 0, "max": 360, "interval": 90} if is_direction else {})},
            {"type": "value", "gridIndex": 1, "min": 0, "max": 1, "show": False},
            {"type": "value", "gridIndex": 2, "min": -1, "max": 1, "show": False},
        ],
        "dataZoom": [
            {"type": "inside", "xAxisIndex": [0, 1, 2], "filterMode": "none", "zoomOnMouseWheel": "ctrl",
             "throttle": 150},
            {"type": "slider", "xAxisIndex": [0, 1, 2], "filterMode": "none", "height": 22, "bottom": 8,
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
