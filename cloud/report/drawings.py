"""The charts of a report."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

from cloud.masts.mast import DAY_MS, Channel
from cloud.masts.numbers import (
    IEC_CLASSES,
    distribution,
    iec_turbulence,
    insolation,
    series,
    shear,
    turbulence,
    wind_rose,
)
from cloud.report.figures import MonthView, coverage
from cloud.report.markup import number
from cloud.report.svg import BLUE, COLOURS, GREEN, GRID, INK, ORANGE, Plot, Point, cells, rose

_POINTS: Final = 480
_SPEEDS: Final = ("#b9d7f3", "#7fb5e8", "#4a90d9", "#2f6cb3", "#f2b134", "#e0622f")
_RECOVERY: Final = (
    (0.98, GREEN, "≥ 98 %"), (0.9, "#a3cf62", "90–98 %"), (0.5, "#e6b02e", "50–90 %"),
    (1e-12, "#d9534f", "< 50 %"), (0.0, GRID, "none"),
)  # fmt: skip


def over_time(view: MonthView, channel: Channel) -> ET.Element:
    """A channel over the month's days: mean, and the band from the lowest to the highest reading."""
    month = view.month
    frame = series(view.view, channel.name, month.begin_ms, month.end_ms, _POINTS)
    rows = frame.dicts()
    days = [1 + (row["time"] - month.begin_ms) / DAY_MS for row in rows]
    low, high, mean = (
        [(day, row[name]) for day, row in zip(days, rows, strict=True)] for name in ("low", "high", "value")
    )
    known = [value for _, value in (*low, *high, *mean) if value is not None]
    plot = Plot([1, month.days + 1], known, names=("day of the month", channel.unit), wide=True)
    plot.x_ticks = [(day + 0.5, str(day)) for day in range(1, month.days + 1)]
    plot.band(low, high, BLUE, "lowest to highest")
    plot.line(mean, BLUE, "mean", width=1.4)
    return plot.draw(f"{channel.name} over the month")


def frequencies(view: MonthView) -> ET.Element:
    """The distribution of the speed, and Weibull's."""
    rows = distribution(view.view).dicts()
    shares = [100 * row["share"] for row in rows]
    plot = Plot([0, len(rows)], [0, *shares], names=("wind speed, m/s", "% of intervals"))
    plot.bars(((row["from_mps"], row["from_mps"] + 1, 100 * row["share"]) for row in rows), BLUE, "measured")
    first = rows[0] if rows else {}
    if first.get("weibull_k"):
        name = f"Weibull, A {number(first['weibull_a_mps'])} m/s, k {number(first['weibull_k'])}"
        plot.line([(row["from_mps"] + 0.5, 100 * row["weibull_share"]) for row in rows], ORANGE, name)
    return plot.draw("Distribution of the wind speed")


def directions(view: MonthView) -> ET.Element:
    """The wind rose."""
    shares = [[0.0] * len(_SPEEDS) for _ in range(16)]
    for row in wind_rose(view.view).dicts():
        shares[round(row["sector"] / 22.5)][int(row["from_mps"] // 3)] = row["share"]
    names = [f"{3 * at}–{3 * at + 3} m/s" for at in range(len(_SPEEDS) - 1)] + ["≥ 15 m/s"]
    return rose(shares, names, _SPEEDS, "Wind rose")


def course(channels: list[Channel], hours: list[list[float | None]], quantity: str) -> ET.Element | None:
    """The mean day of the channels of a quantity; None without one."""
    chosen = [(at, channel) for at, channel in enumerate(channels) if channel.quantity == quantity]
    lines: list[tuple[Channel, list[Point]]] = [
        (channel, [(hour + 0.5, means[at]) for hour, means in enumerate(hours)]) for at, channel in chosen
    ]
    known = [value for _, points in lines for _, value in points if value is not None]
    if not known:
        return None
    unit = lines[0][0].unit
    plot = Plot([0, 24], known, names=("hour of the day", unit))
    plot.x_ticks = [(hour, f"{hour:02d}") for hour in range(0, 25, 3)]
    for (channel, points), colour in zip(lines, COLOURS, strict=False):
        height = f"{channel.height_m:g} m" if channel.height_m else channel.name
        plot.line(points, colour, height if quantity == "wind_speed" else channel.name)
    return plot.draw(f"Mean day of {quantity.replace('_', ' ')}")


def profile(view: MonthView, exponent: float | None) -> ET.Element:
    """Speed over height, and the power law through the means."""
    rows = [row for row in shear(view.view).dicts() if row["mean_speed"] is not None]
    speeds, heights = ([row[name] for row in rows] for name in ("mean_speed", "height_m"))
    law: list[Point] = []
    if exponent is not None:
        top = rows[-1]
        law = [(top["mean_speed"] * (at / 12) ** exponent, top["height_m"] * at / 12) for at in range(2, 15)]
    tops = [0.0, *heights, *(y for _, y in law if y is not None)]
    plot = Plot([*speeds, *(x for x, _ in law)], tops, names=("m/s", "m above ground"))
    plot.line(law, ORANGE, f"power law, α {number(exponent, 3)}")
    plot.dots(list(zip(speeds, heights, strict=True)), BLUE, "mean, all cups above 3 m/s")
    return plot.draw("Shear profile")


def intensity(view: MonthView) -> ET.Element:
    """Turbulence by speed beside IEC 61400-1's classes."""
    rows = turbulence(view.view).dicts()
    most = max((row["speed_mps"] for row in rows), default=15.0)
    speeds = [at / 2 for at in range(7, int(2 * most) + 3)]
    highest = [100 * row["p90"] for row in rows]
    plot = Plot([3, most + 1], [0, *highest, 100 * iec_turbulence(0.16, 3.5)], names=("m/s", "%"))
    for (name, at_15), dash in zip(IEC_CLASSES, ("", "6 3", "2 3"), strict=True):
        plot.line([(v, 100 * iec_turbulence(at_15, v)) for v in speeds], INK, f"IEC {name}", width=1,
                  dash=dash or None)  # fmt: skip
    for name, column, colour in (("mean", "mean", BLUE), ("90th percentile", "p90", ORANGE)):
        points = [(row["speed_mps"], 100 * row[column]) for row in rows]
        plot.line(points, colour, name)
        plot.dots(points, colour, radius=2.6)
    return plot.draw("Turbulence intensity by speed")


def recovered(view: MonthView) -> ET.Element:
    """Recovery by channel and day."""
    found = {(row["channel"], row["day"]): row["recovery"] for row in coverage(view).dicts()}
    channels = sorted({channel for channel, _ in found})
    days = range(1, view.month.days + 1)

    def colour(share: float | None) -> str:
        if share is None:
            return "#ffffff"
        return next(colour for least, colour, _ in _RECOVERY if share >= least)

    return cells(
        [str(day) for day in days],
        channels,
        [[colour(found.get((channel, day))) for day in days] for channel in channels],
        [(colour, words) for _, colour, words in _RECOVERY],
        "Recovery by channel and day",
    )


def sunny_days(view: MonthView) -> ET.Element:
    """Insolation of each of the site's days."""
    rows = insolation(view.view).dicts()
    days = [(int(row["day"][8:]), row["insolation_wh_m2"] / 1000) for row in rows]
    plot = Plot([1, view.month.days + 1], [0, *(each for _, each in days)],
                names=("day of the month", "kWh/m²"), wide=True)  # fmt: skip
    plot.x_ticks = [(day + 0.5, str(day)) for day in range(1, view.month.days + 1)]
    plot.bars(((day, day + 1, value) for day, value in days), "#e0a12b")
    return plot.draw("Insolation by day")
