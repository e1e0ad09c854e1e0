"""Who answers on the I2C bus, against who should by the config.

Probed as i2cdetect does by default (its manual): an empty write, which asks for nothing, and a read of one
byte for 0x30-0x37 and 0x50-0x5f, where an empty write is known to corrupt an Atmel AT24RF08. A read would
lock up a bus with a write-only chip on it (clock chips at 0x69), and a Sensirion that was asked for nothing
doesn't answer one.
"""

from __future__ import annotations

import errno
from typing import Final

from drivers.interface import I2cBus
from gateway.commands.doctor.devices import Needs
from gateway.commands.doctor.findings import Finding

_FIRST, _LAST = 0x08, 0x77
_EVERYBODY: Final = 100
"""No bus has so many devices: a data line that is low acknowledges every address."""
_STUCK: Final = 3
_ADS1115: Final = {0x48: "GND", 0x49: "VDD", 0x4A: "SDA", 0x4B: "SCL"}
"""What its ADDR pin is tied to for each address (datasheet SBAS444)."""


class StuckBusError(Exception):
    """The bus doesn't come to an end of a transaction."""


def scan(bus: I2cBus) -> tuple[int, ...]:
    """The addresses that answer. Raises StuckBusError, and OSError where another thread keeps the bus."""
    found, stuck = [], 0
    for address in range(_FIRST, _LAST + 1):
        bus.try_lock()
        try:
            if 0x30 <= address <= 0x37 or 0x50 <= address <= 0x5F:
                bus.readfrom_into(address, bytearray(1))
            else:
                bus.writeto(address, b"")
        except OSError as error:
            # A second each on a Pi: three are enough to know.
            stuck += error.errno == errno.ETIMEDOUT
            if stuck >= _STUCK:
                raise StuckBusError from error
        else:
            found.append(address)
        finally:
            bus.unlock()
    return tuple(found)


def look_at(bus: I2cBus, wired: Needs) -> tuple[list[Finding], set[str]]:
    """The findings, and the sensors that they explain: nobody needs to ask those."""
    everyone = {name for names in wired.addresses.values() for name in names}
    try:
        found = scan(bus)
    except StuckBusError:
        return [
            Finding(
                "i2c", "error", "the bus is stuck: transactions time out",
                "SCL is held low: a short circuit, or a device without supply; unplug one after the other",
            )
        ], everyone  # fmt: skip
    except OSError as error:
        return [Finding("i2c", "error", f"the bus can't be scanned: {error}")], everyone
    if len(found) >= _EVERYBODY:
        return [
            Finding(
                "i2c", "error", "every address answers: SDA is held low",
                "a short circuit of SDA to ground, or a device without supply; unplug one after the other",
            )
        ], everyone  # fmt: skip
    if not found:
        return [
            Finding(
                "i2c", "error", "nothing answers on the bus",
                "SDA (pin 3) and SCL (pin 5) swapped? No supply or ground at the device? No pull-ups?",
            )
        ], everyone  # fmt: skip
    listed = ", ".join(f"0x{address:02x}" for address in found)
    missing = {address: names for address, names in wired.addresses.items() if address not in found}
    strangers = [address for address in found if address not in wired.addresses]
    findings = [
        Finding(
            "i2c", "error", f"0x{address:02x} ({', '.join(names)}) doesn't answer; found: {listed}",
            _suggestion(address, strangers),
        )
        for address, names in missing.items()
    ]  # fmt: skip
    if not missing:
        findings = [Finding("i2c", "ok", f"all expected addresses answer; found: {listed}")]
    return findings, {name for names in missing.values() for name in names}


def _suggestion(address: int, strangers: list[int]) -> str:
    pin = _ADS1115.get(address)
    other = next((each for each in strangers if each in _ADS1115), None)
    if pin is not None and other is not None:
        return (
            f"tie the converter's ADDR pin to {pin} (0x{other:02x} is {_ADS1115[other]}), "
            f"or set address = 0x{other:02x}"
        )
    return "check its supply, its ground and its two wires" + (
        f"; for a converter ADDR goes to {pin}" if pin is not None else ""
    )
