"""Writes what a logger with NRG cups would have written of simulated weather: one row a second.

Speeds are whole pulses through the cups' transfer functions: a replay counts exactly the same pulses. A cup
at rest stands at its offset, as NRG's loggers report it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from drivers.emulation.environment import SECOND_NS, Site
from drivers.emulation.parts import PulseTrain
from drivers.emulation.weather import Weather

HEADER: Final = (
    "timestamp", "solar_irradiance_w_m2", "relative_humidity_pct", "air_pressure_hpa", "air_temperature_c",
    "wind_speed_primary_m_s", "wind_speed_redundant_m_s", "wind_speed_s1_m_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cup:
    """A cup of the file: transfer function (m/s per Hz, m/s) and height (m)."""

    name: str
    slope: float
    offset: float
    height_m: float


CUPS: Final = (
    Cup("primary", 0.765, 0.35, 50.0),
    Cup("redundant", 0.765, 0.35, 50.0),
    Cup("s1", 0.0935, 0.139, 50.0),
)
"""Two NRG #40 and an S1, in the header's order."""

CALMS: Final = ((130, 92), (700, 24))
"""Stretches without wind: first second and length in seconds."""

_LULL_S: Final = 30
"""How long the wind takes to die down and to rise again: from one second to the next it would be a spike."""

_LIGHT_MPS: Final = 1.6
"""A wind that still turns each cup once a second."""


def nrg_rows(
    start: datetime, seconds: int, seed: int = 40, site: Site | None = None,
    calms: Sequence[tuple[int, int]] = CALMS,
) -> Iterator[tuple[str, ...]]:  # fmt: skip
    """The cells of each row, in HEADER's order; ``start`` needs a time zone and is taken to the second."""
    weather = Weather(seed, site or Site())
    first_s = int(start.timestamp())
    trains = [PulseTrain() for _ in CUPS]
    for second in range(seconds):
        time_s = float(first_s + second)
        from_calm_s = min(max(begin - second, second - begin - length + 1, 0) for begin, length in calms)
        share = min(from_calm_s / _LULL_S, 1.0)
        speeds = []
        for cup, train in zip(CUPS, trains, strict=True):
            wind_mps = weather.wind_mps(time_s, cup.height_m, cup.name)
            wind_mps = min(wind_mps, max(_LIGHT_MPS, share * wind_mps)) if from_calm_s else 0.0
            pulses = train.advance(max(0.0, (wind_mps - cup.offset) / cup.slope), SECOND_NS)
            speeds.append(cup.slope * pulses + cup.offset)
        figures = (
            weather.irradiance_wm2(time_s),
            weather.humidity_pct(time_s),
            weather.pressure_kpa(time_s) * 10,
            weather.temperature_c(time_s),
            *speeds,
        )
        timestamp = datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        yield (timestamp, *(f"{figure:.4f}" for figure in figures))


def write_nrg_csv(
    path: Path, start: datetime, seconds: int, seed: int = 40, site: Site | None = None,
    calms: Sequence[tuple[int, int]] = CALMS,
) -> None:  # fmt: skip
    """Write a file that a replay board takes; the same arguments give the same bytes."""
    rows = nrg_rows(start, seconds, seed, site, calms)
    text = "\n".join(",".join(cells) for cells in (HEADER, *rows)) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")
