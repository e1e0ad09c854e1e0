"""Pins in place of Blinka's, for the process that times a DHT's line: each pin is wired to another sensor."""

from __future__ import annotations

D4 = "a DHT11 at 21.7 °C and 55 %"
D5 = "nothing"
D6 = "a line that hangs in the kernel"
D12 = "a line whose process is killed"
D13 = "a library that prints"
D16 = "a library that raises"
D17 = "a line that hangs the second time"
