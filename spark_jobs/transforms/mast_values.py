"""What the channels of a mast say together in one interval: pure, whatever order they come in.

Definitions: docs/analyse.md. What can't be told is None, or not in the map. Sums add up in the order of
heights, so computing again gives the same digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

LEAST_SPEED_MPS: Final = 3.0
"""Turbulence intensity and shear only above this mean: below it noise is all they show."""
ASSUMED_HUMIDITY_PERCENT: Final = 50.0
"""Where none was measured: the middle of what is possible (docs/analyse.md tells what that costs)."""
ASSUMED_HUMIDITY: Final = "50 %RH assumed"
LEAST_RECOVERY: Final = 0.5
"""An interval's insolation is scaled up from at least so much of its samples."""

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


@dataclass(frozen=True, slots=True)
class MastValues:
    """The values of one row of ``mast``."""

    turbulence_intensity: Mapping[str, float]
    wind_power_density: Mapping[str, float]
    pair_difference: Mapping[str, float]
    shear_alpha: float | None
    air_density: float | None
    insolation: float | None
    inputs: Mapping[str, str]


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
    return density if density > 0.0 else None


def power_law_exponent(profile: Mapping[float, float]) -> float | None:
    """Slope of the least-squares line of ln v over ln z; ``profile`` is speed in m/s by height in m.

    None with fewer than two heights, or where a speed is not above 3 m/s.
    """
    if len(profile) < 2 or any(speed <= LEAST_SPEED_MPS for speed in profile.values()):
        return None
    points = [(math.log(height), math.log(speed)) for height, speed in sorted(profile.items())]
    mean_z = sum(z for z, _ in points) / len(points)
    mean_v = sum(v for _, v in points) / len(points)
    spread = sum((z - mean_z) ** 2 for z, _ in points)
    # Two heights may differ by less than their logarithms do.
    return sum((z - mean_z) * (v - mean_v) for z, v in points) / spread if spread > 0.0 else None


def mast_values(channels: Iterable[MountedChannel], interval_s: int) -> MastValues:
    """What the channels of one mast and interval say together."""
    by_name = {each.channel: each for each in sorted(channels, key=lambda each: each.channel)}
    pairs = _pairs(by_name)
    redundant = set(pairs.values())
    valid = [each for each in by_name.values() if each.avg is not None]
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
    density = _density(air)
    if density is not None:
        inputs |= {
            f"air_density.{quantity}": ASSUMED_HUMIDITY if each is None else each.channel
            for quantity, each in air.items()
        }

    cups = [each for each in valid if each.quantity == "wind_speed"]
    profile = _profile(cups, pairs)
    alpha = power_law_exponent({height: _avg(each) for height, each in profile.items()})
    if alpha is not None:
        inputs |= {f"shear_alpha.{height:.10g}m": each.channel for height, each in profile.items()}

    sun = min(
        (
            each
            for each in valid
            if each.quantity == "irradiance" and (each.recovery or 0.0) >= LEAST_RECOVERY
        ),
        key=lambda each: (each.channel in redundant, each.channel),
        default=None,
    )
    if sun is not None:
        inputs["insolation"] = sun.channel

    differences = {
        channel: _avg(by_name[channel]) - _avg(by_name[twin])
        for channel, twin in pairs.items()
        if by_name[channel].avg is not None and twin in by_name and by_name[twin].avg is not None
    }
    inputs |= {f"pair_difference.{channel}": pairs[channel] for channel in differences}
    return MastValues(
        turbulence_intensity={
            each.channel: each.sd / _avg(each)
            for each in cups
            if each.sd is not None and _avg(each) > LEAST_SPEED_MPS
        },
        wind_power_density={}
        if density is None
        else {each.channel: 0.5 * density * each.cube_mean for each in cups if each.cube_mean is not None},
        pair_difference=differences,
        shear_alpha=alpha,
        air_density=density,
        insolation=None if sun is None else _avg(sun) * interval_s / 3600.0,
        inputs=inputs,
    )


def _avg(each: MountedChannel) -> float:
    """The average of a channel that has one."""
    if each.avg is None:
        raise ValueError(f"{each.channel} has no average")
    return each.avg


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


def _density(air: Mapping[str, MountedChannel | None]) -> float | None:
    temperature, pressure, humidity = air["temperature"], air["pressure"], air["humidity"]
    if temperature is None or pressure is None:
        return None
    percent = ASSUMED_HUMIDITY_PERCENT if humidity is None else _avg(humidity)
    return air_density_kgm3(_avg(temperature), _avg(pressure), percent)


def _profile(cups: Sequence[MountedChannel], pairs: Mapping[str, str]) -> dict[float, MountedChannel]:
    """The cup used at each height: the primary; its twin, at the twin's own height, where it has no value."""
    have_values, redundant = {each.channel for each in cups}, set(pairs.values())
    spare = {twin for primary, twin in pairs.items() if primary in have_values}
    usable = [
        (each.height_m, each.channel in redundant, each.channel, each)
        for each in cups
        if each.channel not in spare and each.height_m is not None and each.height_m > 0.0
    ]
    by_height = groupby(sorted(usable, key=lambda cup: cup[:3]), key=lambda cup: cup[0])
    return {height: next(at_height)[3] for height, at_height in by_height}


_NUMBERS: Final = pa.map_(pa.string(), pa.float64())
_ROW: Final = pa.schema(
    [
        ("gateway", pa.string()),
        ("interval_s", pa.int32()),
        ("interval_start", pa.timestamp("us", tz="UTC")),
        ("turbulence_intensity", _NUMBERS),
        ("wind_power_density", _NUMBERS),
        ("pair_difference", _NUMBERS),
        ("shear_alpha", pa.float64()),
        ("air_density", pa.float64()),
        ("insolation", pa.float64()),
        ("inputs", pa.map_(pa.string(), pa.string())),
        ("date", pa.date32()),
    ]
)


def mast_rows(mounted: Any, interval_s: int) -> Any:
    """Rows of ``mast`` without version and updated_at, of ``mounted_channels``; both are Arrow tables."""
    rows: list[dict[str, Any]] = []
    for row in mounted.to_pylist():
        values = mast_values((MountedChannel(**each) for each in row["channels"]), interval_s)
        start: datetime = row["interval_start"]
        rows.append(
            {
                "gateway": row["gateway"],
                "interval_s": interval_s,
                "interval_start": start,
                "turbulence_intensity": list(values.turbulence_intensity.items()),
                "wind_power_density": list(values.wind_power_density.items()),
                "pair_difference": list(values.pair_difference.items()),
                "shear_alpha": values.shear_alpha,
                "air_density": values.air_density,
                "insolation": values.insolation,
                "inputs": list(values.inputs.items()),
                "date": start.astimezone(UTC).date(),
            }
        )
    return pa.Table.from_pylist(rows, schema=_ROW)
