"""Weather at a mast from a seed and the time alone: the same seed gives the same series, anywhere in it.

Noise is value noise: random figures on a lattice in time, by hashing seed, stream and lattice index, with
smooth interpolation between them. Magnitudes are those of a windy hill site; nothing here is a forecast.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Final

from drivers.emulation.environment import SECOND_NS, Site
from drivers.interface import FittedSensor

_MASK: Final = (1 << 64) - 1
_DAY_S: Final = 86_400

_WIND_OCTAVES: Final = (
    (21_600.0, 0.30),
    (3_600.0, 0.16),
    (600.0, 0.10),
    (60.0, 0.09),
    (12.0, 0.08),
    (3.0, 0.05),
)
"""Period in seconds and relative amplitude: from passing weather down to gusts."""
_MEAN_WIND_MPS: Final = 7.5
_MEAN_DIRECTION_DEG: Final = 240.0
_TURNS: Final = ((43_200.0, 100.0), (3_600.0, 20.0), (120.0, 8.0), (10.0, 6.0), (3.0, 3.0))
"""Period in seconds and degrees of the wind's turning."""
_LOCAL_BELOW_S: Final = 3_600.0
"""What lasts less differs from site to site."""
_REFERENCE_HEIGHT_M: Final = 50.0
_DEFAULT_HEIGHT_M: Final = 10.0


def _hash64(seed: int, stream: int, index: int) -> int:
    """SplitMix64's finaliser over the three figures (Steele, Lea and Flood 2014)."""
    mixed = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1B54A32D192ED03 + index * 0x8CB92BA72F3D8DD7) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return mixed ^ mixed >> 31


@lru_cache(maxsize=4096)
def _lattice(seed: int, stream: int, index: int) -> float:
    return _hash64(seed, stream, index) / (1 << 63) - 1.0


def noise(seed: int, stream: str, time_s: float, period_s: float) -> float:
    """Smooth noise in [-1, 1] whose features last about ``period_s``."""
    position = time_s / period_s
    index = math.floor(position)
    fraction = position - index
    blend = fraction * fraction * (3 - 2 * fraction)
    key = zlib.crc32(f"{stream}/{period_s}".encode())
    left, right = _lattice(seed, key, index), _lattice(seed, key, index + 1)
    return left + (right - left) * blend


def cos_zenith(site: Site, time_s: float) -> float:
    """Cosine of the sun's zenith angle, to about a degree (sun's position after Spencer 1971)."""
    moment = datetime.fromtimestamp(time_s, UTC)
    day_s = time_s % _DAY_S
    angle = 2 * math.pi * (moment.timetuple().tm_yday - 1 + day_s / _DAY_S) / 365
    declination = (
        0.006918 - 0.399912 * math.cos(angle) + 0.070257 * math.sin(angle) - 0.006758 * math.cos(2 * angle)
        + 0.000907 * math.sin(2 * angle) - 0.002697 * math.cos(3 * angle) + 0.00148 * math.sin(3 * angle)
    )  # fmt: skip
    equation_min = 229.18 * (
        0.000075 + 0.001868 * math.cos(angle) - 0.032077 * math.sin(angle)
        - 0.014615 * math.cos(2 * angle) - 0.040849 * math.sin(2 * angle)
    )  # fmt: skip
    solar_h = (day_s / 3600 + site.longitude / 15 + equation_min / 60) % 24
    latitude, hour_angle = math.radians(site.latitude), math.radians(15 * (solar_h - 12))
    return math.sin(latitude) * math.sin(declination) + math.cos(latitude) * math.cos(declination) * math.cos(
        hour_angle
    )


class Weather:
    """The weather at a site, for one seed. Time is in seconds since 1970-01-01T00:00Z.

    Sites of one ``seed`` and several ``local`` seeds have the weather of hours and days in common, and gusts
    and single clouds of their own.
    """

    def __init__(self, seed: int, site: Site, local: int | None = None) -> None:
        self._seeds = seed, seed if local is None else local
        self._site = site

    def _noise(self, stream: str, time_s: float, period_s: float) -> float:
        return noise(self._seeds[period_s < _LOCAL_BELOW_S], stream, time_s, period_s)

    def wind_mps(self, time_s: float, height_m: float | None, cup: str) -> float:
        """Speed in m/s at a height (10 m unless known): gusts, shear by a power law that is steeper at night.

        Two cups at one height differ a little, as a mast's wake and the cups themselves make them.
        """
        factor = 1 + sum(share * self._noise("wind", time_s, period) for period, share in _WIND_OCTAVES)
        alpha = 0.22 - 0.08 * max(0.0, cos_zenith(self._site, time_s))
        shear: float = ((height_m or _DEFAULT_HEIGHT_M) / _REFERENCE_HEIGHT_M) ** alpha
        twin = (
            1
            + 0.004 * self._noise(f"boom {cup}", time_s, 900.0)
            + 0.01 * self._noise(f"cup {cup}", time_s, 4.0)
        )
        return max(0.0, _MEAN_WIND_MPS * factor * shear * twin)

    def wind_direction_deg(self, time_s: float, height_m: float | None) -> float:
        """Where the wind comes from, in degrees: fronts, meandering, gusts; it veers with height."""
        veer = 0.05 * ((height_m or _DEFAULT_HEIGHT_M) - _REFERENCE_HEIGHT_M)
        turns = sum(degrees * self._noise("direction", time_s, period) for period, degrees in _TURNS)
        return (_MEAN_DIRECTION_DEG + veer + turns) % 360

    def cloud_cover(self, time_s: float) -> float:
        """0 (clear) to 1 (thick): drifting cloud fields with single clouds in them."""
        cover = 0.6 * self._noise("cloud field", time_s, 5_400.0) + 0.5 * self._noise("cloud", time_s, 240.0)
        return min(1.0, max(0.0, 1.6 * cover))

    def irradiance_wm2(self, time_s: float) -> float:
        """Global horizontal irradiance in W/m²: clear sky after Haurwitz 1945, dimmed by clouds.

        At night the sensor shows a slightly negative offset, more of it under a clear sky.
        """
        elevation = cos_zenith(self._site, time_s)
        cloud = self.cloud_cover(time_s)
        clear = 1098 * elevation * math.exp(-0.057 / elevation) if elevation > 0.01 else 0.0
        return clear * (1 - 0.75 * cloud) - 1.8 * (1 - 0.7 * cloud) * (1 - min(1.0, clear / 100))

    def temperature_c(self, time_s: float) -> float:
        """Air temperature in °C: by latitude, season and elevation, warmest about three hours after noon."""
        moment = datetime.fromtimestamp(time_s, UTC)
        season = math.cos(2 * math.pi * (moment.timetuple().tm_yday - 196) / 365.25)
        tilt = self._site.latitude / 90
        annual = 28 - 34 * tilt * tilt - 0.0055 * self._site.elevation_m + 16 * tilt * season
        solar_h = time_s / 3600 + self._site.longitude / 15
        daily = 4.5 * math.cos(2 * math.pi * (solar_h - 15) / 24)
        slow = 1.5 * self._noise("air mass", time_s, 43_200.0)
        return annual + daily + slow + 0.15 * self._noise("warm air", time_s, 90.0)

    def module_temperature_c(self, time_s: float) -> float:
        """Temperature in °C at the back of a solar module: 30 K over the air at 1,000 W/m²."""
        return self.temperature_c(time_s) + 0.03 * max(0.0, self.irradiance_wm2(time_s))

    def precipitation_mm(self, time_s: float) -> float:
        """Rain of one second in mm: showers of up to 30 mm/h out of thick clouds."""
        shower = self.cloud_cover(time_s) + 0.5 * self._noise("shower", time_s, 300.0) - 0.9
        return max(0.0, 50 * shower) / 3600

    def humidity_pct(self, time_s: float) -> float:
        """Relative humidity in %: falls while the day warms, rises with clouds."""
        solar_h = time_s / 3600 + self._site.longitude / 15
        daily = -14 * math.cos(2 * math.pi * (solar_h - 15) / 24)
        cloud = 5 * self.cloud_cover(time_s)
        noises = 5 * self._noise("damp", time_s, 28_800.0) + 0.6 * self._noise("damp gust", time_s, 120.0)
        return min(99.0, max(5.0, 56 + daily + cloud + noises))

    def pressure_kpa(self, time_s: float) -> float:
        """Station pressure in kPa: the standard atmosphere (ISO 2533) with passing weather."""
        standard: float = 101.325 * (1 - 2.25577e-5 * self._site.elevation_m) ** 5.25588
        passing = 0.008 * self._noise("front", time_s, 129_600.0) + 0.0006 * self._noise(
            "tide", time_s, 7_200.0
        )
        return standard * (1 + passing) + 0.003 * self._noise("wind pressure", time_s, 20.0)

    def co2_ppm(self, time_s: float) -> float:
        """CO2 in ppm: background air, a little more at night."""
        day = 6 * max(0.0, cos_zenith(self._site, time_s))
        return (
            432 - day + 6 * self._noise("co2", time_s, 10_800.0) + 1.5 * self._noise("breath", time_s, 60.0)
        )

    def about(self, middle: float, spread: float, stream: str, time_s: float) -> float:
        """Something about a middle, for what no weather makes: a battery's voltage, a tank's level."""
        slow, quick = self._noise(stream, time_s, 3_600.0), self._noise(stream, time_s, 20.0)
        return middle + spread * (0.9 * slow + 0.1 * quick)

    def plant_w(self, time_s: float) -> float:
        """Power in W of a solar plant of 5 kW."""
        return 5.0 * max(0.0, self.irradiance_wm2(time_s))

    def location_m(self, time_s: float) -> float:
        """Metres a receiver at a fixed place wanders about."""
        return 1.2 + 0.8 * self._noise("gps", time_s, 300.0)


class SimulatedEnvironment:
    """Weather that changes each second, without end."""

    end_ns: int | None = None

    def __init__(self, weather: Weather, start_ns: int, sensors: Sequence[FittedSensor]) -> None:
        self.start_ns = start_ns
        self._sensors = _by_name(sensors)
        self._weather = weather
        self._quantities: dict[str, Callable[[float], float]] = {
            "irradiance": weather.irradiance_wm2,
            "temperature": weather.temperature_c,
            "module_temperature": weather.module_temperature_c,
            "precipitation": weather.precipitation_mm,
            "power": weather.plant_w,
            "energy": lambda second: weather.plant_w(second) / 3.6e6,
            "illuminance": lambda second: 120.0 * max(0.0, weather.irradiance_wm2(second)),
            "voltage": partial(weather.about, 12.7, 0.5, "voltage"),
            "current": partial(weather.about, 1.5, 1.0, "current"),
            "state": lambda second: float(weather.about(0.0, 1.0, "state", second) > 0),
            "humidity": weather.humidity_pct,
            "pressure": weather.pressure_kpa,
            "co2": weather.co2_ppm,
            "location": weather.location_m,
        }

    def refit(self, sensors: Sequence[FittedSensor]) -> Callable[[], None]:
        """There is weather for any sensor."""
        by_name = _by_name(sensors)

        def change() -> None:
            self._sensors = by_name

        return change

    def piece(self, time_ns: int) -> tuple[int, int]:
        """The second that holds this instant."""
        second_ns = time_ns // SECOND_NS * SECOND_NS
        return second_ns, second_ns + SECOND_NS

    def value(self, channel: str, time_ns: int) -> float | None:
        """The weather of this second; of what isn't weather something about the middle of its range."""
        name, quantity = channel.rsplit(".", 1)
        second, sensor = float(time_ns // SECOND_NS), self._sensors.get(name)
        height_m = sensor.height_m if sensor is not None else None
        if quantity == "wind_speed":
            return self._weather.wind_mps(second, height_m, name)
        if quantity == "wind_direction":
            return self._weather.wind_direction_deg(second, height_m)
        source = self._quantities.get(quantity)
        if source is not None:
            return source(second)
        for known in sensor.channels if sensor is not None else ():
            if known.quantity == quantity:
                middle, spread = (known.lower + known.upper) / 2, (known.upper - known.lower) / 5
                return self._weather.about(middle, spread, channel, second)
        return None


def _by_name(sensors: Sequence[FittedSensor]) -> dict[str, FittedSensor]:
    return {sensor.name: sensor for sensor in sensors}
