"""A sensor's driver for the tests of the watchdog, which also lets them wedge the daemon it is loaded into.

Installed in the guest as a package of its own, as other people's drivers are; the product has nothing of
it. A part is wedged for as long as a file of its name is in /run/fieldgate-wedges.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivers.driver_type import DriverType
from drivers.interface import Channel, Measurement
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.uplink import Uplink

CHANNEL = Channel("temperature", "Cel", "Cel", -40.0, 80.0)
_PLACE = Path("/run/fieldgate-wedges")


def wait_out(part: str) -> None:
    """Come back when the part's file is gone."""
    while (_PLACE / part).exists():
        time.sleep(0.2)


def _wedge(owner: type[Any], method: str, part: str) -> None:
    call = getattr(owner, method)

    def called(*arguments: Any, **named: Any) -> Any:
        wait_out(part)
        return call(*arguments, **named)

    setattr(owner, method, called)


_wedge(Uplink, "turn", "forwarder")
_wedge(OutboxWriter, "_store", "outbox-writer")


@dataclass(frozen=True, slots=True)
class Options:
    """``hangs``: whether the file "driver" makes its reads hang."""

    hangs: bool = False


class Steady:
    """Reads 20 degrees."""

    channels = (CHANNEL,)
    accumulates = False

    def __init__(self, _board: object, options: Options) -> None:
        self._hangs = options.hangs

    def start(self) -> None:
        """Nothing to start."""

    def read(self) -> tuple[Measurement, ...]:
        """20 degrees, now or later."""
        if self._hangs:
            wait_out("driver")
        return (Measurement("temperature", 20.0, 20.0),)

    def stop(self) -> None:
        """Nothing to stop."""


TYPE = DriverType("steady", Options, (CHANNEL,), 0.1, Steady, longest_read_s=3.0)
