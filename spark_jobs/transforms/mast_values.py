"""Values of a whole mast from its channels' statistics of one interval: pure, in any order of channels.

Definitions: docs/numbers.md. What can't be computed is None, or not in the map. Sums add up in the order of
heights, so computing again gives the same digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, functions as F

from spark_jobs.platform.frames import row_by_row
from spark_jobs.platform.intervals import periods_as_spans
from spark_jobs.platform.schemas import MAST

QUANTITIES: Final = ("wind_speed", "wind_direction", "temperature", "humidity", "pressure", "irradiance")
"""What is looked at: no other channel holds a row up."""

_RANK: Final = ("updated_at", "begin_us", "revision", "cal", "height_m", "twin", "tilt_deg")


def tilt() -> Column:
    """Reads from a record how far from the horizontal its sensor is."""
    return F.get_json_object("extra", "$.tilt_deg").cast("double").alias("tilt_deg")


def periods_in_force(channels: DataFrame) -> DataFrame:
    """One row per (gateway, channel) with the ``periods`` of all its records: when, how high, whose twin."""
    twin = F.concat("pair", F.lit("."), "quantity").alias("twin")
    record = ("updated_at", "revision", "cal", "height_m")
    period = F.struct("begin_us", "end_us", *record, "twin", "tilt_deg")
    each = channels.select("gateway", "channel", *record, twin, tilt(), periods_as_spans())
    return each.groupBy("gateway", "channel").agg(F.collect_list(period).alias("periods"))


def _in_force(interval_s: int) -> Column:
    """The period most of the interval lies in; of two equal ones that of the record written last."""
    begin_us = F.unix_micros("interval_start")
    end_us = begin_us + interval_s * 1_000_000

    def inside_us(period: Column) -> Column:
        return F.least(period["end_us"], end_us) - F.greatest(period["begin_us"], begin_us)

    def ranked(period: Column) -> Column:
        rank = (period[name].alias(name) for name in _RANK)
        return F.struct(inside_us(period).alias("inside_us"), *rank)

    touching = F.filter("periods", lambda period: inside_us(period) > 0)
    return F.array_max(F.transform(touching, ranked))


def mounted_channels(statistics: DataFrame, channels: DataFrame, interval_s: int) -> DataFrame:
    """One row per (gateway, interval_start) in which every channel is closed, with its ``channels``.

    ``statistics`` are all rows of whole intervals of ``interval_s`` seconds, ``channels`` the calibration
    records of their gateways. ``channels`` of the result: channel, quantity, avg, sd, cube_mean, recovery,
    height_m and twin (a channel's name) of each, in no order.
    """
    looked_at = statistics.where(F.col("quantity").isin(*QUANTITIES))
    mounted = looked_at.join(F.broadcast(periods_in_force(channels)), ["gateway", "channel"], "left").select(
        *looked_at.columns, _in_force(interval_s).alias("in_force")
    )
    channel = F.struct(
        *("channel", "quantity", "avg", "sd", "cube_mean", "recovery"),
        F.col("in_force.height_m").alias("height_m"),
        *(F.col(f"in_force.{name}").alias(name) for name in ("twin", "tilt_deg")),
    )
    return (
        mounted.groupBy("gateway", "interval_start")
        .agg(F.collect_list(channel).alias("channels"), F.min("version").alias("version"))
        .where(F.col("version") > 0)
        .drop("version")
    )


LEAST_SPEED_MPS: Final = 3.0
"""Turbulence intensity and shear only above this mean: below it noise is all they show."""
_STEEPEST: Final = 10.0
ASSUMED_HUMIDITY_PERCENT: Final = 50.0
"""Where none was measured: the middle of what is possible (docs/numbers.md has what that costs)."""
ASSUMED_HUMIDITY: Final = "50 %RH assumed"
LEAST_RECOVERY: Final = 0.5
"""Insolation is scaled up, and a direction enters veer, from at least so much of an interval's samples."""
LEVEL_DEG: Final = 2.0
"""A pyranometer that is tilted by more doesn't measure the horizontal's irradiance."""

_ZERO_CELSIUS_K: Final = 273.15
_R_DRY_AIR: Final = 287.05
_R_WATER_VAPOUR: Final = 461.5
"""Gas constants in J/(kg K), as IEC 61400-12-1 has them."""


@dataclass(frozen=True, slots=True)
class MountedChannel:
    """One channel's statistics of the interval; its height and its twin's name by the record in force."""

    channel: str
    quantity: str
    avg: float | None
    sd: float | None = None
    cube_mean: float | None = None
    recovery: float | None = None
    height_m: float | None = None
    twin: str | None = None
    tilt_deg: float | None = None


class MastValues(NamedTuple):
    """The values of one row of ``mast``."""

    turbulence_intensity: Mapping[str, float]
    wind_power_density: Mapping[str, float]
    pair_difference: Mapping[str, float]
    shear_alpha: float | None
    veer: float | None
    air_density: float | None
    insolation: float | None
    inputs: Mapping[str, str]
    insolation_by_channel: Mapping[str, float]


def air_density_kgm3(temperature_c: float, pressure_kpa: float, humidity_percent: float) -> float | None:
    """Density of moist air in kg/m3; None for what no air has (an untested temperature of −300).

    Source: IEC 61400-12-1, with the vapour's saturation pressure 0.0000205 exp(0.0631846 T) in Pa.
    """
    kelvin = temperature_c + _ZERO_CELSIUS_K
    if not 0.0 < kelvin < 1000.0:
        return None
    vapour_pa = 0.0000205 * math.exp(0.0631846 * kelvin)
    dry = pressure_kpa * 1000.0 / _R_DRY_AIR
    lighter = humidity_percent / 100.0 * vapour_pa * (1.0 / _R_DRY_AIR - 1.0 / _R_WATER_VAPOUR)
    density = (dry - lighter) / kelvin
    return density if 0.0 < density < math.inf else None


def power_law_exponent(profile: Mapping[float, float]) -> float | None:
    """Slope of the least-squares line of ln v over ln z; ``profile`` is speed in m/s by height in m.

    None with fewer than two heights, or where a speed is not above 3 m/s.
    """
    if len(profile) < 2 or any(speed <= LEAST_SPEED_MPS for speed in profile.values()):
        return None
    slope = _slope([(math.log(height), math.log(speed)) for height, speed in sorted(profile.items())])
    # Two cups a millimetre apart make any exponent of a small difference.
    return slope if slope is not None and abs(slope) <= _STEEPEST else None


def shortest_angle_deg(one: float, other: float) -> float:
    """From one direction to the other the short way round, -180 to 180; clockwise is positive."""
    turned = other - one
    return math.remainder(turned, 360.0) if math.isfinite(turned) else math.nan


def veer_deg_per_m(directions: Mapping[float, float]) -> float | None:
    """Slope of the least-squares line of direction over height: clockwise (veering) with height is positive.

    ``directions`` in degrees by height in m; each counts from the one below it, the short way round. None
    with fewer than two heights.
    """
    points = sorted(directions.items())[:1]
    for height, direction in sorted(directions.items())[1:]:
        points.append((height, points[-1][1] + shortest_angle_deg(points[-1][1], direction)))
    return _slope(points) if len(points) > 1 else None


def _slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Returns the least-squares line's slope; None where all x are one, or a sum is beyond all numbers."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    # A product: a power that is beyond all numbers raises.
    spread = sum((x - mean_x) * (x - mean_x) for x, _ in points)
    # Two heights may differ by less than their logarithms do.
    if not 0.0 < spread < math.inf:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return slope if math.isfinite(slope) else None


def mast_values(channels: Iterable[MountedChannel], interval_s: int) -> MastValues:
    """What the channels of one mast and interval give together."""
    by_name = {each.channel: each for each in sorted(channels, key=lambda each: each.channel)}
    pairs = _pairs(by_name)
    redundant = set(pairs.values())
    avg = {each.channel: each.avg for each in by_name.values() if each.avg is not None}
    valid = [by_name[channel] for channel in avg]
    recovered = [each for each in valid if (each.recovery or 0.0) >= LEAST_RECOVERY]
    inputs: dict[str, str] = {}

    air = {
        # The primary; the highest, which is nearest to the hub; the first by name.
        quantity: min(
            (each for each in valid if each.quantity == quantity),
            key=lambda each: (each.channel in redundant, -(each.height_m or 0.0), each.channel),
            default=None,
        )
        for quantity in ("temperature", "pressure", "humidity")
    }
    temperature, pressure, humidity = (None if each is None else avg[each.channel] for each in air.values())
    density = None
    if temperature is not None and pressure is not None:
        percent = ASSUMED_HUMIDITY_PERCENT if humidity is None else humidity
        density = air_density_kgm3(temperature, pressure, percent)
    if density is not None:
        inputs |= {
            f"air_density.{quantity}": ASSUMED_HUMIDITY if each is None else each.channel
            for quantity, each in air.items()
        }

    cups = [each for each in valid if each.quantity == "wind_speed"]
    profile = _profile(cups, pairs)
    alpha = power_law_exponent({height: avg[each.channel] for height, each in profile.items()})
    if alpha is not None:
        inputs |= {f"shear_alpha.{height:.10g}m": each.channel for height, each in profile.items()}

    veer = None
    if profile and all(avg[each.channel] > LEAST_SPEED_MPS for each in profile.values()):
        # A vane in the dead band of its potentiometer has few samples left, all of them from its edges.
        turning = _profile([each for each in recovered if each.quantity == "wind_direction"], pairs)
        veer = veer_deg_per_m({height: avg[each.channel] for height, each in turning.items()})
        if veer is not None:
            inputs |= {f"veer.{height:.10g}m": each.channel for height, each in turning.items()}

    suns = [each for each in recovered if each.quantity == "irradiance"]
    sun = min(
        # A pyranometer whose record has no tilt counts as horizontal.
        (each for each in suns if abs(each.tilt_deg or 0.0) <= LEVEL_DEG),
        key=lambda each: (each.channel in redundant, each.tilt_deg is None, each.channel),
        default=None,
    )
    if sun is not None:
        inputs["insolation"] = sun.channel

    differences = {
        channel: shortest_angle_deg(avg[twin], avg[channel])
        if by_name[channel].quantity == "wind_direction"
        else avg[channel] - avg[twin]
        for channel, twin in pairs.items()
        if channel in avg and twin in avg
    }
    differences = _finite(differences)
    inputs |= {f"pair_difference.{channel}": pairs[channel] for channel in differences}
    return MastValues(
        turbulence_intensity={
            each.channel: each.sd / avg[each.channel]
            for each in cups
            if each.sd is not None and avg[each.channel] > LEAST_SPEED_MPS
        },
        wind_power_density={}
        if density is None
        else _finite(
            {each.channel: 0.5 * density * each.cube_mean for each in cups if each.cube_mean is not None}
        ),
        pair_difference=differences,
        shear_alpha=alpha,
        veer=veer,
        air_density=density,
        insolation=None if sun is None else avg[sun.channel] * interval_s / 3600.0,
        inputs=inputs,
        insolation_by_channel={each.channel: avg[each.channel] * interval_s / 3600.0 for each in suns},
    )


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {channel: value for channel, value in values.items() if math.isfinite(value)}


def _pairs(by_name: Mapping[str, MountedChannel]) -> dict[str, str]:
    """Primary to redundant twin. Who names a twin is the primary; of two that name each other the first."""
    named = {
        each.channel: each.twin
        for each in by_name.values()
        if each.twin is not None and each.twin != each.channel
    }
    return {
        channel: twin
        for channel, twin in named.items()
        if not (named.get(twin) == channel and twin < channel)
    }


def _profile(sensors: Sequence[MountedChannel], pairs: Mapping[str, str]) -> dict[float, MountedChannel]:
    """The one used at each height: the primary; its twin, at the twin's own height, where it has no value."""
    have_values, redundant = {each.channel for each in sensors}, set(pairs.values())
    spare = {twin for primary, twin in pairs.items() if primary in have_values}
    usable = [
        (each.height_m, each.channel in redundant, each.channel, each)
        for each in sensors
        if each.channel not in spare and each.height_m is not None and each.height_m > 0.0
    ]
    by_height = groupby(sorted(usable, key=lambda row: row[:3]), key=lambda row: row[0])
    return {height: next(at_height)[3] for height, at_height in by_height}


def mast_rows(mounted: DataFrame, interval_s: int) -> DataFrame:
    """Rows of ``mast`` without version and updated_at, of ``mounted_channels``."""
    return row_by_row(mounted, partial(_row, interval_s=interval_s), MAST.without("version", "updated_at"))


def _row(mounted: Mapping[str, Any], interval_s: int) -> dict[str, Any]:
    values = mast_values((MountedChannel(**each) for each in mounted["channels"]), interval_s)
    date = mounted["interval_start"].astimezone(UTC).date()
    return {**mounted, "interval_s": interval_s, **values._asdict(), "date": date}
