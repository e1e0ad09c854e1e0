"""What sensors must not share: pins and converter inputs; and who is whose twin."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from drivers.ads1115 import AdcOptions, adc_pins
from gateway.config.model import SensorConfig
from gateway.config.problems import KeyPath, quote
from gateway.config.source import Source

Fitted = Sequence[tuple[KeyPath, SensorConfig]]


def check_pairs(source: Source, sensors: Fitted, names: Collection[str]) -> None:
    """A pair names another sensor that is there."""
    for path, sensor in sensors:
        if sensor.pair is None:
            continue
        if sensor.pair == sensor.name:
            source.error((*path, "pair"), "names the sensor itself; it must name its redundant twin")
        elif sensor.pair not in names:
            others = [name for name in names if name != sensor.name]
            guess = difflib.get_close_matches(sensor.pair, others, n=1)
            source.error(
                (*path, "pair"), f"there is no sensor {quote(sensor.pair)}", guess[0] if guess else None
            )


def check_wiring(source: Source, sensors: Fitted) -> None:
    """No converter input and no bus address twice; the second's problem names the first's line."""
    inputs: dict[tuple[int, int], tuple[str, int | None]] = {}
    addresses: dict[int, tuple[str, int | None]] = {}
    for path, sensor in sensors:
        address = getattr(sensor.options, "address", None)
        if isinstance(address, int):
            if address in addresses:
                owner = _owner(*addresses[address])
                source.error((*path, "address"), f"I2C address 0x{address:02x} is {owner} already")
            addresses.setdefault(address, (sensor.name, source.line((*path, "address"))))
        adc = getattr(sensor.options, "adc", None)
        if isinstance(adc, AdcOptions):
            line = source.line((*path, "adc"))
            taken = [(adc.address, input_pin) for input_pin in adc_pins(adc.input)]
            for key in taken:
                if key in inputs:
                    source.error(
                        (*path, "adc"),
                        f"input {key[1]} of converter 0x{key[0]:02x} is {_owner(*inputs[key])} already",
                    )
                    break
            for key in taken:
                inputs.setdefault(key, (sensor.name, line))


def check_pins(source: Source, tables: Sequence[object]) -> None:
    """No pin twice, also where the rest of a sensor is wrong."""
    pins: dict[int, tuple[str, int | None]] = {}
    for position, table in enumerate(tables):
        pin = table.get("pin") if isinstance(table, dict) else None
        if not isinstance(table, dict) or type(pin) is not int:
            continue
        key = ("sensor", position, "pin")
        if pin in pins:
            source.error(key, f"BCM pin {pin} is {_owner(*pins[pin])} already")
        pins.setdefault(pin, (str(table.get("name", position + 1)), source.line(key)))


def _owner(name: str, line: int | None) -> str:
    return f"{quote(name)}'s" if line is None else f"{quote(name)}'s (line {line})"
