"""Which addresses respond on the I2C bus, against those of the config.

Probed as i2cdetect does by default (its manual): an empty write, which requests nothing, and a read of one
byte for 0x30-0x37 and 0x50-0x5f, where an empty write is known to corrupt an Atmel AT24RF08. A read would
lock up a bus with a write-only chip on it (clock chips at 0x69), and a Sensirion without a request doesn't
respond to one.
"""

from __future__ import annotations

import errno
from typing import Final

from drivers.interface import I2cBus
from gateway.commands.doctor.devices import Needs
from gateway.commands.doctor.findings import Finding

_FIRST, _LAST = 0x08, 0x77
_ALL: Final = 100
"""No bus has so many devices: a data line that is low acknowledges every address."""
_STUCK: Final = 3
_ADS1115: Final = {0x48: "GND", 0x49: "VDD", 0x4A: "SDA", 0x4B: "SCL"}
"""What its ADDR pin is tied to for each address (datasheet SBAS444)."""


class StuckBusError(Exception):
    """The bus doesn't come to an end of a transaction."""


def scan(bus: I2cBus) -> tuple[int, ...]:
    """The addresses that respond. Raises StuckBusError, and OSError where another thread keeps the bus."""
    found, stuck = [], 0
    for address in range(_FIRST, _LAST + 1):
        bus.try_lock()
        try:
            if 0x30 <= address <= 0x37 or 0x50 <= address <= 0x5F:
                bus.readfrom_into(address, bytearray(1))
            else:
                bus.writeto(address, b"")
        except OSError as error:
            # A second each on a Pi: three are enough.
            stuck += error.errno == errno.ETIMEDOUT
            if stuck >= _STUCK:
                raise StuckBusError from error
        else:
            found.append(address)
        finally:
            bus.unlock()
    return tuple(found)


def findings(bus: I2cBus, wired: Needs) -> tuple[list[Finding], set[str]]:
    """The findings, and the sensors that they explain: those need not be read."""
    remedy: str | None
    try:
        present = scan(bus)
    except StuckBusError:
        found = "the bus is stuck: transactions time out"
        remedy = "SCL is held low: a short circuit, or a device without supply; unplug one after the other"
    except OSError as error:
        found, remedy = f"the bus can't be scanned: {error}", None
    else:
        if present and len(present) < _ALL:
            return _compared(present, wired)
        if present:
            found = "every address answers: SDA is held low"
            remedy = (
                "a short circuit of SDA to ground, or a device without supply; unplug one after the other"
            )
        else:
            found = "nothing answers on the bus"
            remedy = "SDA (pin 3) and SCL (pin 5) swapped? No supply or ground at the device? No pull-ups?"
    return [Finding("i2c", "error", found, remedy)], wired.on_bus


def _compared(present: tuple[int, ...], wired: Needs) -> tuple[list[Finding], set[str]]:
    listed = ", ".join(f"0x{address:02x}" for address in present)
    missing = {address: names for address, names in wired.addresses.items() if address not in present}
    if not missing:
        return [Finding("i2c", "ok", f"all expected addresses answer; found: {listed}")], set()
    strangers = [address for address in present if address not in wired.addresses]
    found = []
    for address, names in missing.items():
        what = f"0x{address:02x} ({', '.join(names)}) doesn't answer; found: {listed}"
        found.append(Finding("i2c", "error", what, _suggestion(address, strangers)))
    return found, {name for names in missing.values() for name in names}


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
