"""What ECharts' options have in common: colours, readable on light and on dark, axes, and a map of cells."""

from __future__ import annotations

import math
from typing import Any, Final

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
        "animation": False, "grid": {"left": 56, "right": 18, "top": 34, "bottom": 48}, "xAxis": x,
         "yAxis": y,
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


def described(drawn: Options, title: str, subject: str, extent: str, figures: str) -> Options:
    """With what a screen reader says of it, main figures too, and what a saved picture has above it."""
    words = {"enabled": True, "label": {"description": f"{title}. {subject}. {extent}. {figures}."}}
    # ECharts doesn't draw a title that isn't shown; the card and the picture have it from here.
    return {
        **drawn,
        "title": {"show": False, "text": title, "subtext": f"{subject}\n{extent}"},
        "aria": words,
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
