"""The kernel's 1-Wire devices through sysfs (Linux, Documentation/w1/slaves/w1_therm.rst)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/bus/w1/devices")


class SysfsW1:
    """Devices as directories below ``root``; a read blocks without holding the interpreter."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root

    def devices(self) -> tuple[str, ...]:
        """The devices there are now; none where the kernel has no bus."""
        try:
            return tuple(sorted(each.name for each in self._root.iterdir()))
        except OSError:
            return ()

    def read(self, device: str) -> str:
        """What a thermometer's ``w1_slave`` prints, measured now. Raises OSError."""
        return (self._root / device / "w1_slave").read_text(errors="replace")
