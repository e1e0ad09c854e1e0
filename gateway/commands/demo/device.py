"""A device of the demo's mast that is no sensor of the gateway: its cabinet's temperature, by MQTT.

It is above 40 Cel for twelve seconds of each half minute, so that alerts are raised and cleared.
"""

from __future__ import annotations

import math
import time
from typing import Final

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

TOPIC: Final = "devices/cabinet/temperature"
_PERIOD_S: Final = 1.0
_CYCLE_S: Final = 30.0


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
