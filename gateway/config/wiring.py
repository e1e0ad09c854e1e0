"""What sensors must not share: pins, converter inputs, bus addresses; and who is whose twin."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from drivers.driver_type import Claim
from drivers.registry import driver_type
from gateway.config.model import SensorConfig
from gateway.config.problems import KeyPath, quote
from gateway.config.quality_rules import BIN_S
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


def check_twins(source: Source, sensors: Fitted) -> None:
    """A twin measures what the sensor measures, as often where that is seldom: else nothing is compared."""
    by_name = {sensor.name: sensor for _, sensor in sensors}
    for path, sensor in sensors:
        twin = by_name.get(sensor.pair or "")
        if twin is None or twin is sensor:
            continue
        own = [channel.quantity for channel in driver_type(sensor.driver).channels_of(sensor.options)]
        if not any(channel.quantity in own for channel in driver_type(twin.driver).channels_of(twin.options)):
            source.error(
                (*path, "pair"), f"{quote(twin.name)} ({twin.driver}) measures no {' or '.join(own)}: no twin"
            )
        elif max(BIN_S, sensor.interval_s) != max(BIN_S, twin.interval_s):
            source.warn(
                (*path, "pair"),
                f"{quote(twin.name)} is read every {twin.interval_s:g} s, this sensor every"
                f" {sensor.interval_s:g}: beyond {BIN_S:g} s only equal intervals are compared",
            )


def check_needs(source: Source, sensors: Fitted, names: Collection[str]) -> None:
    """A sensor that is to be told another's readings names one that measures them."""
    measured = {
        sensor.name: [channel.quantity for channel in driver_type(sensor.driver).channels_of(sensor.options)]
        for _, sensor in sensors
    }
    for path, sensor in sensors:
        for need in driver_type(sensor.driver).needs(sensor.options):
            key = (*path, *need.key)
            if need.sensor not in names:
                able = [name for name, quantities in measured.items() if need.quantity in quantities]
                guess = next(iter(difflib.get_close_matches(need.sensor, able, n=1)), None)
                source.error(key, f"there is no sensor {quote(need.sensor)}", guess)
            elif need.quantity not in measured.get(need.sensor, [need.quantity]):
                has = ", ".join(measured[need.sensor])
                source.error(key, f"{quote(need.sensor)} measures {has}, not {need.quantity}")


def check_wiring(source: Source, sensors: Fitted) -> None:
    """No part of the board twice; the second's problem names the first's line. Pins: see ``check_pins``."""
    taken: dict[str, list[tuple[Claim, str, int | None]]] = {}
    for path, sensor in sensors:
        claims = [
            claim for claim in driver_type(sensor.driver).claims(sensor.options) if claim.key != ("pin",)
        ]
        told: set[tuple[str, ...]] = set()
        for claim in claims:
            owners = taken.setdefault(claim.part, [])
            other = next((owner for owner in owners if claim.clashes(owner[0])), None)
            if other is not None and claim.key not in told:
                told.add(claim.key)
                source.error((*path, *claim.key), f"{claim.part} is {_owner(*other[1:])} already")
        for claim in claims:
            taken[claim.part].append((claim, sensor.name, source.line((*path, *claim.key))))


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
