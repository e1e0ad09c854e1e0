"""What is around the demo's mast: a device that is no sensor of the gateway, and a fleet with history.

The device is the cabinet's thermometer. It is above 40 Cel for twelve seconds of each half minute, so that
alerts are raised and cleared.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

TOPIC: Final = "devices/cabinet/temperature"
_PERIOD_S: Final = 1.0
_CYCLE_S: Final = 30.0
_SIZE: Final = ("--gateways", "6", "--days", "2", "--period", "60", "--rate", "2000")
_GRACE_S: Final = 10.0


class CabinetThermometer:
    """Publishes at each ``tick``, once a second, between ``start`` and ``stop``."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.reconnect_delay_set(1, 1)
        self._next_s = 0.0

    def start(self) -> None:
        """Connect, now or as soon as the broker is there."""
        self._client.connect_async(*self._address)
        self._client.loop_start()

    def stop(self) -> None:
        """Disconnect; safe to call twice, and without a start."""
        self._client.disconnect()
        self._client.loop_stop()

    def tick(self) -> None:
        """Publish when that is due. Without a connection it is lost, as a simple device's readings are."""
        now_s = time.time()
        if now_s >= self._next_s and self._client.is_connected():
            self._next_s = now_s + _PERIOD_S
            self._client.publish(TOPIC, f"{cabinet_temperature(now_s):.1f}", qos=1)


def cabinet_temperature(time_s: float) -> float:
    """The temperature in Cel at a time in seconds: 24 to 48."""
    return 36 + 12 * math.sin(2 * math.pi * time_s / _CYCLE_S)


class FleetHistory:
    """Two days of six masts into Kafka. What it says is in a log; the demo goes on without it."""

    def __init__(self, bootstrap_servers: str, log: Path) -> None:
        self._command = (sys.executable, "-m", "gateway.cli", "simulate",
                         "--bootstrap-servers", bootstrap_servers, *_SIZE)  # fmt: skip
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, behind all else that computes here."""
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        os.setpriority(os.PRIO_PROCESS, self._process.pid, 10)

    def stop(self) -> None:
        """End it; safe to call twice, and without a start."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
