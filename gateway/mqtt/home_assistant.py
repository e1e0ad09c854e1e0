"""Home Assistant's MQTT discovery: one retained message for each channel describes it and its topic.

One message an entity, ``{prefix}/sensor/{gateway}/{object}/config``, which every version with discovery
reads (the newer form, one message a device, needs 2024.11), and which goes with its channel: an
empty retained payload removes it. Source: home-assistant.io, integrations MQTT ("MQTT discovery", "Using
availability topics") and MQTT Sensor, and the units of the sensor device classes.

What it shows: a value that has failed its tests or isn't there is *unknown* there, never the value before;
quality and reasons are the entity's attributes. With the gateway offline, by its last will too, or no reading
for three intervals, the entity is *unavailable*.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from drivers.interface import Channel
from gateway.config import Config, SensorConfig
from gateway.ports import Snapshot
from gateway.system.atomic_file import read_state, write_state

_CLASSES: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "humidity": "humidity",
    "pressure": "atmospheric_pressure",
    "wind_speed": "wind_speed",
    "irradiance": "irradiance",
    "co2": "carbon_dioxide",
    "location": "distance",
    "precipitation": "precipitation",
    "voltage": "voltage",
    "current": "current",
    "power": "power",
    "energy": "energy",
    "module_temperature": "temperature",
    "soil_moisture": "moisture",
    "illuminance": "illuminance",
    "battery_level": "battery",
}
"""Home Assistant's device class of each quantity that has one in its older versions too."""
_UNITS: Final[Mapping[str, str]] = {
    "Cel": "°C", "%RH": "%", "W/m2": "W/m²", "deg": "°", "kW.h": "kWh", "1": "",
}  # fmt: skip
"""Units that Home Assistant spells otherwise: with a device class it refuses others than its own."""
_MEASURED: Final = ("linear", "position")

# Fail and missing are no values. Home Assistant takes the word None for "unknown".
_VALUE: Final = "{{ value_json.value if value_json.quality in [1, 2, 3] else None }}"
# Without what changes with every reading: each new set of attributes is a row in its database.
_ATTRIBUTES: Final = (
    "{{ {'quality': value_json.quality, 'reasons': value_json.reasons, 'clock': value_json.clock} | tojson }}"
)
_MISSED: Final = 3
_SLACK_S: Final = 10
_NOT_IN_AN_ID: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)

_PREFIX: Final = "homeassistant"
"""Home Assistant's discovery prefix, unless its user changed it."""
_SETTLED_S: Final = 10.0
"""Connected for so long, the broker has what was published."""

_Topics = set[Annotated[str, msgspec.Meta(min_length=1)]]


def messages(config: Config, version: str | None) -> dict[str, bytes]:
    """By topic, the retained messages of a config; none without ``[mqtt] home_assistant``."""
    retained: dict[str, bytes] = {}
    for sensor in config.sensors if config.mqtt.home_assistant else ():
        for channel in sensor.channels:
            name = _NOT_IN_AN_ID.sub("_", f"{sensor.name}-{channel.quantity}")
            topic = f"{_PREFIX}/sensor/{config.gateway.id}/{name}/config"
            entity = _entity(config, sensor, channel, name, version)
            retained[topic] = msgspec.json.encode(entity)
    return retained


def _entity(
    config: Config, sensor: SensorConfig, channel: Channel, name: str, version: str | None
) -> dict[str, Any]:
    gateway, root = config.gateway.id, f"{config.mqtt.topic_root}/{config.gateway.id}"
    topic = f"{root}/{sensor.name}/{channel.quantity}"
    software = {} if version is None else {"sw_version": version}
    entity: dict[str, Any] = {
        "name": f"{sensor.name} {channel.quantity.replace('_', ' ')}",
        "unique_id": f"fieldgate-{gateway}-{name}",
        "state_topic": topic,
        "value_template": _VALUE,
        "json_attributes_topic": topic,
        "json_attributes_template": _ATTRIBUTES,
        "expire_after": math.ceil(_MISSED * sensor.interval_s) + _SLACK_S,
        "availability": [
            {
                "topic": f"{root}/status",
                "value_template": "{{ value_json.state }}",
                "payload_available": "online",
                "payload_not_available": "offline",
            }
        ],
        "device": {
            "identifiers": [f"fieldgate-{gateway}"],
            "name": gateway,
            "manufacturer": "fieldgate",
            "model": f"met mast gateway ({config.board.kind})",
            **software,
        },
        "origin": {"name": "fieldgate", **software},
    }
    if unit := _UNITS.get(channel.unit, channel.unit):
        entity["unit_of_measurement"] = unit
    if channel.quantity in _CLASSES:
        entity["device_class"] = _CLASSES[channel.quantity]
    if config.quantities[channel.quantity].kind in _MEASURED:
        # Home Assistant would keep a mean of others that is no direction, no sum.
        entity["state_class"] = "measurement"
    return entity


class Discovery:
    """Which messages the broker retains, kept beside the outbox: those of a channel that went go, too.

    Also of one that went while the daemon was stopped, or with the whole option. The file is written only
    when the topics change. Owned by the main thread; ``retain`` publishes now and at each connect.
    """

    def __init__(self, path: Path, retain: Callable[[Mapping[str, bytes]], None]) -> None:
        self._path = path
        self._retain = retain
        self._wanted: Mapping[str, bytes] = {}
        self._standing = read_state(
            path, lambda stored: msgspec.convert(stored["topics"], _Topics), set[str]()
        )
        self._since_s: float | None = None

    def apply(self, wanted: Mapping[str, bytes]) -> None:
        """Let the broker retain these from now on, and no others."""
        self._wanted = wanted
        # Before anything is published: what isn't in the file would stand for ever.
        self._store(self._standing | set(wanted))
        self._since_s = None
        self._retain({**dict.fromkeys(self._standing, b""), **wanted})

    def tick(self, snapshot: Snapshot) -> None:
        """Once the broker has had time to remove what went, it needn't be removed by the next run."""
        if not snapshot.mqtt_connected:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = snapshot.at_s
        elif snapshot.at_s - self._since_s >= _SETTLED_S and self._standing != set(self._wanted):
            self._store(set(self._wanted))

    def _store(self, topics: set[str]) -> None:
        if topics != self._standing:
            self._standing = topics
            write_state(self._path, {"topics": sorted(topics)})
