"""What a Raspberry Pi's firmware reports of its supply: too low a voltage, a processor slowed down.

Sources: ``get_throttled`` of the firmware's driver (bits 0 under-voltage, 2 throttled, 3 soft temperature
limit; 16, 18, 19 the same since boot), else the kernel's raspberrypi-hwmon (``in0_lcrit_alarm``).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

UNDER_VOLTAGE: Final = 1 << 0
THROTTLED: Final = 1 << 2 | 1 << 3
SINCE_BOOT: Final = 16
"""The bits of what was so since boot are so much higher."""
_FIRMWARE: Final = "sys/devices/platform/soc*/*firmware*/get_throttled"
_HWMON: Final = "sys/class/hwmon/hwmon*/name"


def throttled_bits(root: Path = Path("/")) -> int | None:
    """The firmware's bits, or the kernel's alarm as one of them; None where nothing reports them."""
    for path in root.glob(_FIRMWARE):
        with suppress(OSError, ValueError):
            return int(path.read_text(), 16)
    for name in root.glob(_HWMON):
        with suppress(OSError):
            if name.read_text().strip() == "rpi_volt":
                return UNDER_VOLTAGE * (name.with_name("in0_lcrit_alarm").read_text().strip() == "1")
    return None
