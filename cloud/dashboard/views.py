"""A mast's charts: what the address asks for, each chart with its text, or in words why there is none.

The main figures of a chart stand in a sentence, for who can't see it: they are of the rows it is drawn of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cloud.dashboard import charts
from cloud.dashboard.charts import described
from cloud.dashboard.frame import address, end_ms, moment, number, time_ms
from cloud.errors import CloudError
from cloud.lake.mast import DAY_MS, MOST_CHANNELS, Channel, masts, read_mast
from cloud.lake.numbers import CHARTS, IEC_CLASSES, IS_COVERED, IS_VALID, View, iec_turbulence, subject
from cloud.lake.reader import Frame, LakeReader, Missing, Span

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


_Reason = Callable[[View, Frame], str | None]
_Of = Callable[[View], tuple[Channel | str | None, ...]]
_OTHER_TIME: Final = "Choose another time above."
_NO_ROWS_OF_MAST: Final = (
    "Table mast has nothing of this mast in this time: fieldgate jobs run mast makes it of closed intervals."
)


def why_no_chart(view: View, name: str, frame: Frame) -> str | None:
    """Why a chart's rows have nothing to draw; None where they have. Raises Missing."""
    return _REASONS[name](view, frame)


def why_no_series(view: View, frame: Frame) -> str | None:
    """The same of the channel over time."""
    if any(value is not None for value in frame.column("value")):
        return None
    return _no_value(view, view.channel)


def _no_value(view: View, *channels: Channel | str | None) -> str:
    """Why there is no interval in which all of them, or those of that name, have a value."""
    names = [each.name if isinstance(each, Channel) else each for each in channels if each is not None]
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
                f"fieldgate jobs run statistics makes it of readings. {_OTHER_TIME}"
            )
        if not valid:
            parts = (
                (silent, "have no reading that counts (missing, or failed a test of quality)"),
                (few, "have less than half of their samples"),
                (rest, "have readings that make no value together"),
                (
                    is_open,
                    "are not closed yet, which fieldgate jobs run statistics does soon after their end",
                ),
            )
            words = ", ".join(f"{n:,} {what}" for n, what in parts if n)
            return f"None of {rows:,} intervals of {name} in this time has a value: {words}. {_OTHER_TIME}"
    return f"{' and '.join(names)} have no interval together in this time. {_OTHER_TIME}"


def _needs_rows(of: _Of) -> _Reason:
    """A reason for no rows at all; ``of`` gives the channels that the chart is of."""

    def why(view: View, frame: Frame) -> str | None:
        return None if frame.rows else _no_value(view, *of(view))

    return why


def _mast_has_rows(view: View) -> bool:
    """Raises Missing where there is no such table."""
    (count,) = view.held.read("SELECT count(*) FROM mast").rows[0]
    return bool(count)


def _why_no_shear(view: View, frame: Frame) -> str | None:
    if any(value is not None for value in frame.column("mean_speed")):
        return None
    cups = ", ".join(frame.column("channel"))
    return f"In no interval of this time were all of {cups} above 3 m/s. {_OTHER_TIME}"


def _why_no_turbulence(view: View, frame: Frame) -> str | None:
    if len(frame.rows) > 1:
        return None
    if not _mast_has_rows(view):
        return _NO_ROWS_OF_MAST
    return (
        "Nothing to draw from in this time. It needs two bins of speed with three intervals above 3 m/s, and "
        f"the cup's standard deviation (of an import its column sd). {_OTHER_TIME}"
    )


def _why_no_shadow(view: View, frame: Frame) -> str | None:
    if any(value is not None for value in frame.column("relative")):
        return None
    return (
        "No sector has ten intervals in which vane and twins have values and both cups are above 3 m/s. "
        f"{_OTHER_TIME}"
    )


def _why_no_insolation(view: View, frame: Frame) -> str | None:
    if frame.rows:
        return None
    if not _mast_has_rows(view):
        return _NO_ROWS_OF_MAST
    return f"Table mast has no insolation in this time: it needs half of an interval's samples. {_OTHER_TIME}"


def _why_no_rain(view: View, frame: Frame) -> str | None:
    if any(frame.column("intervals")):
        return None
    return _no_value(view, view.gauge)


def _why_no_recovery(view: View, frame: Frame) -> str | None:
    if any(value is not None for value in frame.column("recovery")):
        return None
    return (
        "No interval of this time is closed yet: fieldgate jobs run statistics closes each a little "
        f"after its end. {_OTHER_TIME}"
    )


_REASONS: Final[Mapping[str, _Reason]] = {
    "wind-rose": _needs_rows(lambda view: (view.cup, view.vane)),
    "distribution": _needs_rows(lambda view: (view.cup,)),
    "diurnal": _needs_rows(lambda view: (view.channel,)), "shear": _why_no_shear,
    "turbulence": _why_no_turbulence, "pair": _needs_rows(lambda view: (view.cup, view.twin)),
    "shadow": _why_no_shadow, "irradiance": _needs_rows(lambda view: (view.sun,)),
    "insolation": _why_no_insolation, "rain": _why_no_rain, "recovery": _why_no_recovery,
}  # fmt: skip
"""What says why a chart is empty, by its name, from a view and the chart's rows."""


def why_no_numbers(view: View, found: Mapping[str, Any]) -> dict[str, str]:
    """What each of ``summary``'s numbers that is null needs, short enough for a tile."""
    mast, cup = view.mast, view.cup
    heights = {each.height_m for each in mast.of("wind_speed") if each.height_m}
    of_cup = "" if cup else "a cup: a channel of wind_speed"
    air = [each for each in ("temperature", "pressure") if not mast.of(each)]
    try:
        table = "" if _mast_has_rows(view) else "table mast to have this time: fieldgate jobs run mast"
    except Missing:
        table = "table mast: fieldgate jobs run mast"
    nothing = "intervals with values in this time"
    needs = {
        "mean": of_cup or nothing,
        "gust": of_cup or "a sample each second, or gust in an import's mapping",
        "highest": of_cup or "samples, or max in an import's mapping",
        "ti": of_cup or table or "sd, and wind above 3 m/s",
        "alpha": ("" if len(heights) > 1 else "cups at two heights: height_m") or table
                 or "all cups above 3 m/s",
        "density": (f"a channel of {' and '.join(air)}" if air else "") or table or nothing,
        "insolation": ("" if mast.of("irradiance") else "a pyranometer: a channel of irradiance") or table
                      or nothing,
        "recovery": "a closed interval: fieldgate jobs run statistics",
    }  # fmt: skip
    return {name: f"needs {needs[name]}" for name, value in found.items() if value is None}


_NO_RUNS: Final = (
    "No run of this mast: gateways publish them, fieldgate jobs run ingest stores them; an import has none."
)
NO_ROWS: Final = {
    "Calibration in force": "None of this mast. Its gateway publishes its channels' records at each start; "
    "fieldgate jobs run ingest stores them.",
    "Alerts": "None of this mast so far: fieldgate jobs run alerts raises them by the rules of its --rules.",
    "Anomalies": "No interval of this mast above its threshold, and no rule broken. "
    "Scores need a model: fieldgate jobs train.",
    "Runs": _NO_RUNS,
    "Losses": "None: no reading of this mast is lost or was dropped, as far as table presence has counted.",
}
"""What a table below the charts says that has no rows."""


_COMPASS: Final = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE",
                   "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")  # fmt: skip
_RATED_MPS: Final = 15.0
"""The speed at which IEC 61400-1 names its classes of turbulence."""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def of_rose(frame: Frame) -> str:
    """The prevailing sector with its share."""
    sectors: dict[float, list[Mapping[str, Any]]] = {}
    for row in frame.dicts():
        sectors.setdefault(row["sector"], []).append(row)
    at = max(sectors, key=lambda each: sum(row["share"] for row in sectors[each]))
    n = sum(row["intervals"] for row in sectors[at])
    speed = sum(row["mean_speed"] * row["intervals"] for row in sectors[at]) / n
    share = _percent(sum(row["share"] for row in sectors[at]))
    name = _COMPASS[round(at / 22.5) % 16]
    return f"Prevailing sector {name} ({at:g}°) with {share}, there {speed:.1f} m/s on average"


def of_distribution(frame: Frame) -> str:
    """Mean, A and k."""
    row = frame.dicts()[0]
    fitted = "no Weibull distribution fits"
    if row["weibull_k"] is not None:
        fitted = f"Weibull A {row['weibull_a_mps']:.2f} m/s, k {row['weibull_k']:.2f}"
    return f"Mean {row['mean_mps']:.2f} m/s; {fitted}"


def of_diurnal(frame: Frame, unit: str, *, is_direction: bool) -> str:
    """Lowest and highest hour; of directions, which have none, every sixth."""
    rows = [row for row in frame.dicts() if row["mean"] is not None]
    if not rows:
        return "No mean"
    several = len({row["month"] for row in rows}) > 1

    def at(row: Mapping[str, Any]) -> str:
        return f"{number(row['mean'], 3, unit)} at {row['hour']:02d} h" + (
            f" in {row['month']}" if several else ""
        )

    if is_direction:
        newest = max(row["month"] for row in rows)
        return "Mean " + ", ".join(at(row) for row in rows if row["month"] == newest and row["hour"] % 6 == 0)
    low, high = (of(rows, key=lambda row: row["mean"]) for of in (min, max))
    return f"Lowest mean {at(low)}, highest {at(high)}"


def of_shear(frame: Frame) -> str:
    """The exponent, and the speed at each height."""
    rows = frame.dicts()
    alpha = "No exponent"
    if rows[0]["shear_alpha"] is not None:
        alpha = f"Exponent α {rows[0]['shear_alpha']:.3f}, mean of {rows[0]['intervals']:,} intervals"
    speeds = (f"{row['height_m']:g} m {number(row['mean_speed'], 3, 'm/s')}" for row in reversed(rows))
    return f"{alpha}; {', '.join(speeds)}"


def of_turbulence(frame: Frame) -> str:
    """Intensity at 15 m/s, or at the speed nearest to it, beside the classes."""
    row = min(frame.dicts(), key=lambda each: abs(each["speed_mps"] - _RATED_MPS))
    speed = row["speed_mps"]
    nearest = "" if speed == _RATED_MPS else f", the nearest to {_RATED_MPS:g}"
    classes = ", ".join(f"{name} {_percent(iec_turbulence(at, speed))}" for name, at in IEC_CLASSES)
    return (
        f"At {speed:g} m/s{nearest}: mean {_percent(row['mean'])}, 90th percentile {_percent(row['p90'])}; "
        f"IEC {classes}"
    )


def of_pair(frame: Frame) -> str:
    """Mean difference, and how far the two go together."""
    cups, twins = ([float(row[at]) for row in frame.rows] for at in (1, 2))
    difference = _mean(a - b for a, b in zip(cups, twins, strict=True))
    mean, twin_mean = _mean(cups), _mean(twins)
    product = sum((a - mean) * (b - twin_mean) for a, b in zip(cups, twins, strict=True))
    spread = math.sqrt(sum((a - mean) ** 2 for a in cups) * sum((b - twin_mean) ** 2 for b in twins))
    together = f", correlation {product / spread:.4f}" if spread > 0 else ""
    return f"The channel is {difference:+.3f} m/s off its twin on average{together}"


def of_shadow(frame: Frame) -> str:
    """The sectors in which one is in the tower's shadow."""
    rows = [row for row in frame.dicts() if row["relative"] is not None]
    low, high = (of(rows, key=lambda row: row["relative"]) for of in (min, max))
    shadowed: dict[str, list[str]] = {}
    for row in rows:
        if row["shadowed"]:
            shadowed.setdefault(row["shadowed"], []).append(f"{row['sector']:g}°")
    shadows = [f"{cup} in the shadow at {', '.join(at)}" for cup, at in shadowed.items()]
    return (
        f"Ratio from {low['relative']:.3f} at {low['sector']:g}° to {high['relative']:.3f} at "
        f"{high['sector']:g}°; {'; '.join(shadows) or 'no shadow'}"
    )


def of_irradiance(frame: Frame) -> str:
    """When the mean is highest, and the highest interval."""
    rows = frame.dicts()
    top = max(rows, key=lambda row: row["mean"])
    hour, minute = divmod(round(60 * top["hour"]), 60)
    highest = max(row["value"] for row in rows)
    days = len({row["day"] for row in rows})
    return (
        f"The mean of {days} days is highest at {hour:02d}:{minute:02d}, {top['mean']:.0f} W/m²; "
        f"highest interval {highest:,.0f} W/m²"
    )


def of_insolation(frame: Frame) -> str:
    """Sum, mean and best day."""
    rows = frame.dicts()
    total = sum(row["insolation_wh_m2"] for row in rows) / 1000
    best = max(rows, key=lambda row: row["insolation_wh_m2"])
    return (
        f"{total:.1f} kWh/m² in {len(rows)} days, {total / len(rows):.2f} a day; most on {best['day']}, "
        f"{best['insolation_wh_m2'] / 1000:.2f}"
    )


def of_rain(frame: Frame) -> str:
    """Sum, the most, and what lacks values."""
    rows = [row for row in frame.dicts() if row["sum_mm"] is not None]
    most = max(rows, key=lambda row: row["sum_mm"])
    short = sum(row["intervals"] < row["due"] for row in frame.dicts())
    lacks = f"; {short} of {len(frame.rows)} bars lack intervals" if short else ""
    total = sum(row["sum_mm"] for row in rows)
    return f"{total:.1f} mm; most {most['sum_mm']:.1f} mm from {most['local']}{lacks}"


def of_recovery(frame: Frame) -> str:
    """The mean of all squares, and the poorest channel."""
    shares: dict[str, list[float]] = {}
    for row in frame.dicts():
        if row["recovery"] is not None:
            shares.setdefault(row["channel"], []).append(row["recovery"])
    means = {channel: _mean(each) for channel, each in shares.items()}
    poorest = min(means, key=lambda channel: means[channel])
    all_of_them = _mean(each for every in shares.values() for each in every)
    return (
        f"{_percent(all_of_them)} on average of {len(means)} channels; least {poorest} with "
        f"{_percent(means[poorest])}"
    )


def of_series(frame: Frame, channel: Channel) -> str:
    """Mean, or sum, of the points, the lowest and the highest, and how many points have no value."""
    rows = frame.dicts()
    values = [row["value"] for row in rows if row["value"] is not None]
    if not values:
        return "No value"
    unit, gaps = channel.unit, len(rows) - len(values)
    if channel.is_direction:
        angles = [math.radians(each) for each in values]
        mean = math.degrees(math.atan2(_mean(map(math.sin, angles)), _mean(map(math.cos, angles)))) % 360
        words = f"Mean {number(mean, 3, unit)}"
    elif channel.kind == "accumulated":
        words = f"Sum {number(sum(values), 4, unit)}, most {number(max(values), 3, unit)}"
    else:
        lows, highs = ([row[name] for row in rows if row[name] is not None] for name in ("low", "high"))
        low, high = number(min(lows or values), 3, unit), number(max(highs or values), 3, unit)
        words = f"Mean {number(_mean(values), 3, unit)}, from {low} to {high}"
    return words + (f"; {gaps} of {len(rows)} points have no value" if gaps else "")


def of_sites(masts: Iterable[Mapping[str, Any]]) -> str:
    """How many masts are in each state."""
    states: dict[str, int] = {}
    for mast in masts:
        states[mast["state"]] = states.get(mast["state"], 0) + 1
    return ", ".join(f"{count} {state}" for state, count in states.items())


FIGURES: Final[dict[str, Callable[[Frame], str]]] = {
    "wind-rose": of_rose, "distribution": of_distribution, "shear": of_shear, "turbulence": of_turbulence,
    "pair": of_pair, "shadow": of_shadow, "irradiance": of_irradiance, "insolation": of_insolation,
    "rain": of_rain, "recovery": of_recovery,
}  # fmt: skip
"""The charts by their name in the address; ``of_diurnal`` needs the channel's unit too."""


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
        is_direction = view.channel.is_direction
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


def draw_series(
    view: View, frame: Frame, bands: dict[str, Any], events: Sequence[dict[str, Any]] = ()
) -> dict[str, Any] | str:
    """The channel over the span, or why there is nothing of it; ``bands`` and ``events`` as of ``charts``."""
    if (why := why_no_series(view, frame)) is not None:
        return why
    span, channel = view.span, view.channel
    drawn = charts.series(
        frame, channel.name, channel.unit, span.begin_ms, span.end_ms,
        is_direction=channel.is_direction, bands=bands, events=events,
    )  # fmt: skip
    return about_series(view, frame, drawn, span.begin_ms, span.end_ms)


def about_series(
    view: View, frame: Frame, drawn: dict[str, Any], begin_ms: int, end_ms: int
) -> dict[str, Any]:
    """Options with title and text alternative of what is seen."""
    extent = f"{moment(begin_ms)} to {moment(end_ms)} UTC, {view.span.interval_s / 60:g}-minute statistics"
    title = f"{view.mast.gateway}: over time"
    return described(drawn, title, view.channel.name, extent, of_series(frame, view.channel))
