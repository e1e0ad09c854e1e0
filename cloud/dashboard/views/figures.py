"""A chart's main figures in a sentence, for who can't see it: of the rows it is drawn of. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cloud.dashboard.frame import number
from cloud.lake.mast import Channel
from cloud.lake.numbers import IEC_CLASSES, iec_turbulence
from cloud.lake.reader import Frame

_COMPASS: Final = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE",
                   "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")  # fmt: skip
_RATED_MPS: Final = 15.0
"""The speed at which IEC 61400-1 names its classes of turbulence."""
_SUMS: Final = ("precipitation", "energy")


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
    said = "; ".join(f"{cup} in the shadow at {', '.join(at)}" for cup, at in shadowed.items()) or "no shadow"
    return (
        f"Ratio from {low['relative']:.3f} at {low['sector']:g}° to {high['relative']:.3f} at "
        f"{high['sector']:g}°; {said}"
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
    if channel.quantity == "wind_direction":
        angles = [math.radians(each) for each in values]
        mean = math.degrees(math.atan2(_mean(map(math.sin, angles)), _mean(map(math.cos, angles)))) % 360
        said = f"Mean {number(mean, 3, unit)}"
    elif channel.quantity in _SUMS:
        said = f"Sum {number(sum(values), 4, unit)}, most {number(max(values), 3, unit)}"
    else:
        lows, highs = ([row[name] for row in rows if row[name] is not None] for name in ("low", "high"))
        low, high = number(min(lows or values), 3, unit), number(max(highs or values), 3, unit)
        said = f"Mean {number(_mean(values), 3, unit)}, from {low} to {high}"
    return said + (f"; {gaps} of {len(rows)} points have no value" if gaps else "")


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
