"""A device of the demo's mast that is no sensor of the gateway: its cabinet's temperature, by MQTT.

It rises above 40 Cel for some seconds in each minute, so that an alert is raised and cleared.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Final

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

TOPIC: Final = "devices/cabinet/temperature"
_PERIOD_S: Final = 1.0
_CYCLE_S: Final = 60.0


class CabinetThermometer:
    """Publishes once a second, from a thread of its own, until stopped."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.reconnect_delay_set(1, 1)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="device", daemon=True)

    def start(self) -> None:
        """Connect, now or as soon as the broker is there."""
        self._client.connect_async(*self._address)
        self._client.loop_start()
        self._thread.start()

    def stop(self) -> None:
        """Publish nothing more; safe to call twice."""
        if not self._stopped.is_set():
            self._stopped.set()
            if self._thread.is_alive():
                self._thread.join()
            self._client.disconnect()
            self._client.loop_stop()

    def _publish(self) -> None:
        while not self._stopped.wait(_PERIOD_S):
            # Without a connection it is lost, as a simple device's readings are.
            if self._client.is_connected():
                self._client.publish(TOPIC, f"{cabinet_temperature(time.time()):.1f}", qos=1)


def cabinet_temperature(time_s: float) -> float:
    """The temperature in Cel at a time in seconds: 20 to 44."""
    return 32 + 12 * math.sin(2 * math.pi * time_s / _CYCLE_S)
