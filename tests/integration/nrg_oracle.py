"""Interval statistics of an NRG-shaped file, computed from the file alone, with pandas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

WIND_EXACT = 1e-9
HALF_ADC_STEP_KPA = 6.144 / 32768 * 21.79 / 2
HALF_ADC_STEP_WM2 = 0.256 / 32768 * 100_000 / 2
HALF_DHT_STEP = 0.05


@dataclass(frozen=True)
class Column:
    """A column of the file, what it is multiplied with, how far a sensor's steps may move a figure."""

    name: str
    scale: float
    tolerance: float
    period_s: int = 1


COLUMNS = {
    "cup-primary.wind_speed": Column("wind_speed_primary_m_s", 1.0, WIND_EXACT),
    "cup-redundant.wind_speed": Column("wind_speed_redundant_m_s", 1.0, WIND_EXACT),
    "cup-s1.wind_speed": Column("wind_speed_s1_m_s", 1.0, WIND_EXACT),
    "baro.pressure": Column("air_pressure_hpa", 0.1, HALF_ADC_STEP_KPA),
    "sun.irradiance": Column("solar_irradiance_w_m2", 1.0, HALF_ADC_STEP_WM2),
    "dht.temperature": Column("air_temperature_c", 1.0, HALF_DHT_STEP, period_s=2),
    "dht.humidity": Column("relative_humidity_pct", 1.0, HALF_DHT_STEP, period_s=2),
}
"""The channels of docs/examples/replay-nrg.toml."""


def samples(file: Path) -> dict[str, pd.Series[float]]:
    """What each channel must read, by time."""
    table = pd.read_csv(file, parse_dates=["timestamp"], index_col="timestamp")
    read = {}
    for channel, column in COLUMNS.items():
        values = table[column.name] * column.scale
        if column.period_s == 2:
            # A DHT gives its previous conversion, two seconds old; the first one has only row 0.
            values = values.shift(2).bfill().iloc[::2]
        read[channel] = values
    return read


def statistics(values: pd.Series[float], interval: str) -> pd.DataFrame:
    """count, avg, min, max, sd (n−1), gust (highest mean of three seconds in a row), by interval start."""
    groups = values.groupby(values.index.floor(interval))  # type: ignore[attr-defined]
    return pd.DataFrame(
        {
            "count": groups.count(),
            "avg": groups.mean(),
            "min": groups.min(),
            "max": groups.max(),
            "sd": groups.std(ddof=1),
            "gust": groups.apply(lambda group: group.rolling(3).mean().max()),
        }
    )
