"""What the installer compares with labels and certificates, and what the config lacks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

from drivers.registry import driver_type
from gateway.config import SensorConfig
from gateway.config.calibration import expiry_date

_PAPERS: Final = ("serial", "certificate", "calibrated", "lab")
"""A sensor with none of these goes by its data sheet's figures."""


@dataclass(frozen=True, slots=True)
class Question:
    """A value to be compared: ``remedy`` is for where it isn't so."""

    check: str
    text: str
    remedy: str


def questions(sensor: SensorConfig) -> Iterator[Question]:
    """What stands in the config, to be answered with yes or no."""
    swap = f"fieldgate swap {sensor.name} --serial …"
    if sensor.serial is not None:
        of = f"{sensor.model}, serial" if sensor.model else "serial"
        yield Question("serial", f"Does the label say {of} {sensor.serial}?", swap)
    individual = driver_type(sensor.driver).individual is not None
    papers = individual or any(getattr(sensor, key) is not None for key in _PAPERS)
    slope, offset = (getattr(sensor.options, key, None) for key in ("slope", "offset"))
    if papers and slope is not None:
        of = f" {sensor.certificate}" if sensor.certificate else ""
        figures = f"slope {slope:g}" + (f", offset {offset:g}" if offset is not None else "")
        dated = f" of {sensor.calibrated}" if sensor.calibrated else ""
        yield Question("certificate", f"Does its certificate{of}{dated} say {figures}?", swap)
    if sensor.height_m is not None:
        boom = f", its boom to {sensor.boom_deg:g}° from north" if sensor.boom_deg is not None else ""
        yield Question("place", f"Is it {sensor.height_m:g} m above ground{boom}?", "height_m, boom_deg")


def shortcomings(sensor: SensorConfig, today: date | None) -> Iterator[tuple[str, str]]:
    """What the config lacks: check and words. ``today`` is None while the clock isn't set."""
    individual = driver_type(sensor.driver).individual
    if individual is not None:
        absent = [key for key in ("serial", "calibrated") if getattr(sensor, key) is None]
        if absent:
            yield "papers", f"the config has no {' and no '.join(absent)}: {individual.why}"
    expires = expiry_date(sensor)
    if expires is not None and today is not None and expires < today:
        yield "expiry", f"its calibration expired on {expires}"
