"""Warnings: what is allowed and is likely a mistake."""

from __future__ import annotations

from drivers.ads1115 import FULL_SCALE_V
from drivers.hall_anemometer import HallAnemometerOptions
from drivers.pyranometer import PyranometerOptions
from gateway.config.model import SensorConfig
from gateway.config.problems import KeyPath
from gateway.config.sensor_models import OFFSET_TOLERANCE_MPS, SLOPE_TOLERANCE, cup_model
from gateway.config.source import Source

_ADC_STEPS = 1 << 15
_COARSE_WM2 = 2.0
"""A step above this hides what a silicon pyranometer shows: at 0.256 V it is 0.78 W/m2."""


def warn_of_sensor(source: Source, path: KeyPath, sensor: SensorConfig) -> None:
    """Warn where calibration or wiring are far from what the sensor's maker says."""
    options = sensor.options
    if isinstance(options, HallAnemometerOptions):
        _warn_of_cup(source, path, sensor.model, options)
    if isinstance(options, PyranometerOptions):
        step = FULL_SCALE_V[options.adc.gain] / _ADC_STEPS * options.slope
        if step > _COARSE_WM2:
            source.warn(
                (*path, "adc"),
                f'one step of the converter is {step:.1f} W/m2 at gain "{options.adc.gain}"; use "0.256V"',
            )


def _warn_of_cup(source: Source, path: KeyPath, name: str | None, options: HallAnemometerOptions) -> None:
    model = cup_model(name) if name is not None else None
    if model is None:
        return
    if abs(options.slope / model.slope - 1) > SLOPE_TOLERANCE:
        source.warn(
            (*path, "slope"),
            f"{options.slope:g} m/s per Hz is far from {model.name}'s {model.slope:g}: check the certificate",
        )
    if abs(options.offset - model.offset) > OFFSET_TOLERANCE_MPS:
        source.warn(
            (*path, "offset"),
            f"{options.offset:g} m/s is far from {model.name}'s {model.offset:g}: check the certificate",
        )
