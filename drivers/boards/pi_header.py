"""The Raspberry Pi's 40-pin header, as far as a wiring plan needs it: pure data, no hardware.

Source: Raspberry Pi documentation, "GPIO and the 40-pin header"; the same on every model since the B+.
"""

from __future__ import annotations

from typing import Final

BCM_AT: Final = {
    3: 2, 5: 3, 7: 4, 8: 14, 10: 15, 11: 17, 12: 18, 13: 27, 15: 22, 16: 23, 18: 24, 19: 10, 21: 9, 22: 25,
    23: 11, 24: 8, 26: 7, 27: 0, 28: 1, 29: 5, 31: 6, 32: 12, 33: 13, 35: 19, 36: 16, 37: 26, 38: 20, 40: 21,
}  # fmt: skip
"""BCM number of each place on the header that has one; the others are power and ground."""

PLACES: Final = 40

I2C_PINS: Final = {2: "SDA", 3: "SCL"}
"""The bus that sensors with an I2C address hang on."""

RESERVED: Final = {
    0: "the EEPROM of add-on boards (ID_SD)",
    1: "the EEPROM of add-on boards (ID_SC)",
    14: "the serial console (TXD)",
    15: "the serial console (RXD)",
}
"""Pins that the Pi itself uses by default, and what for."""
