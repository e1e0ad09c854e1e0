"""What is published for Home Assistant, against a schema of what its documentation allows."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from cloud.wire.quantities import QUANTITIES
from gateway.config import Config, load
from gateway.mqtt.home_assistant import Discovery, messages
from tests.support.forwarding import snapshot
from tests.support.json_schema import errors

ROOT = Path(__file__).parents[4]

# home-assistant.io, "MQTT Sensor" (configuration variables), "MQTT" (device, origin, availability); the units
# are those of the sensor device classes. Nothing else is allowed: Home Assistant refuses a whole message for
# one unknown key within a mapping, or for a unit that isn't its device class's.
_TEXT: Final = {"type": "string", "pattern": "^.+$"}
_TOPIC: Final = {"type": "string", "pattern": "^[^#+]+$"}
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["name", "unique_id", "state_topic", "value_template", "availability", "device", "origin"],
    "additionalProperties": False,
    "properties": {
        "name": _TEXT,
        "unique_id": _TEXT,
        "state_topic": _TOPIC,
        "value_template": _TEXT,
        "json_attributes_topic": _TOPIC,
        "json_attributes_template": _TEXT,
        "unit_of_measurement": _TEXT,
        "device_class": _TEXT,
        "state_class": {"enum": ["measurement", "total", "total_increasing"]},
        "expire_after": {"type": "integer", "minimum": 1},
        "availability": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["topic"],
                "additionalProperties": False,
                "properties": {
                    "topic": _TOPIC,
                    "value_template": _TEXT,
                    "payload_available": _TEXT,
                    "payload_not_available": _TEXT,
                },
            },
        },
        "device": {
            "type": "object",
            "required": ["identifiers", "name"],
            "additionalProperties": False,
            "properties": {
                "identifiers": {"type": "array", "minItems": 1, "items": _TEXT},
                **dict.fromkeys(("name", "manufacturer", "model", "sw_version"), _TEXT),
            },
        },
        "origin": {
            "type": "object",
            "required": ["name"],
            "additionalProperties": False,
            "properties": {"name": _TEXT, "sw_version": _TEXT},
        },
    },
}
CLASS_UNITS: Final = {
    "temperature": {"°C", "°F", "K"},
    "humidity": {"%"},
    "atmospheric_pressure": {"bar", "cbar", "hPa", "inHg", "kPa", "mbar", "mmHg", "Pa", "psi"},
    "wind_speed": {"Beaufort", "ft/s", "km/h", "kn", "m/s", "mph"},
    "irradiance": {"BTU/(h⋅ft²)", "W/m²"},
    "carbon_dioxide": {"ppm"},
    "precipitation": {"cm", "in", "mm"},
    "voltage": {"V", "mV", "µV", "kV", "MV"},
    "current": {"A", "mA"},
    "power": {"mW", "W", "kW", "MW", "GW", "TW"},
    "energy": {"J", "kJ", "MJ", "GJ", "mWh", "Wh", "kWh", "MWh", "GWh", "TWh", "cal", "kcal", "Mcal", "Gcal"},
    "moisture": {"%"},
    "illuminance": {"lx"},
    "battery": {"%"},
    "distance": {"cm", "ft", "in", "km", "m", "mi", "mm", "nmi", "yd"},
}


def configured(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    return load(path, {})


def example(tmp_path: Path, mqtt: str = "home_assistant = true") -> Config:
    """The example with every driver."""
    text = (ROOT / "docs/examples/simulated.toml").read_text(encoding="utf-8")
    return configured(tmp_path, text.replace("[outbox]", f"[mqtt]\n{mqtt}\n[outbox]", 1))


def test_every_message_is_what_the_documentation_allows(tmp_path: Path) -> None:
    published = {topic: json.loads(each) for topic, each in messages(example(tmp_path), "1.2.3").items()}
    assert len(published) == 13
    assert len({each["unique_id"] for each in published.values()}) == 13
    for topic, each in published.items():
        assert list(errors(SCHEMA, each)) == [], topic
        if topic.endswith("-wind_direction/config"):
            assert "device_class" not in each
        else:
            assert each["unit_of_measurement"] in CLASS_UNITS[each["device_class"]]


def test_one_message_in_full(tmp_path: Path) -> None:
    published = messages(example(tmp_path), "1.2.3")
    assert json.loads(published["homeassistant/sensor/demo-mast/dht-temperature/config"]) == {
        "name": "dht temperature",
        "unique_id": "fieldgate-demo-mast-dht-temperature",
        "device_class": "temperature",
        "state_class": "measurement",
        "unit_of_measurement": "°C",
        "state_topic": "fieldgate/demo-mast/dht/temperature",
        # Rendered with Jinja: 7.3 for quality 1 to 3; None, Home Assistant's word for unknown, for 4 and 9.
        "value_template": "{{ value_json.value if value_json.quality in [1, 2, 3] else None }}",
        "json_attributes_topic": "fieldgate/demo-mast/dht/temperature",
        "json_attributes_template": (
            "{{ {'quality': value_json.quality, 'reasons': value_json.reasons,"
            " 'clock': value_json.clock} | tojson }}"
        ),
        # Three intervals of 2 s, and ten seconds for a busy broker.
        "expire_after": 16,
        "availability": [
            {
                "topic": "fieldgate/demo-mast/status",
                "value_template": "{{ value_json.state }}",
                "payload_available": "online",
                "payload_not_available": "offline",
            }
        ],
        "device": {
            "identifiers": ["fieldgate-demo-mast"],
            "name": "demo-mast",
            "manufacturer": "fieldgate",
            "model": "met mast gateway (simulated)",
            "sw_version": "1.2.3",
        },
        "origin": {"name": "fieldgate", "sw_version": "1.2.3"},
    }


def test_without_the_option_there_is_nothing(tmp_path: Path) -> None:
    assert messages(example(tmp_path, "port = 1883"), None) == {}
    published = messages(example(tmp_path, "home_assistant = true"), None)
    assert {topic.partition("/sensor/")[0] for topic in published} == {"homeassistant"}
    assert all("sw_version" not in each.decode() for each in published.values())


def test_each_quantity_that_has_a_device_class_has_a_unit_of_it() -> None:
    from gateway.mqtt.home_assistant import _CLASSES, _UNITS

    assert set(_CLASSES.values()) == set(CLASS_UNITS)
    # Versions before 2025.2 know no class of wind directions; of the others there is none.
    without = ("wind_direction", "state")
    assert set(_CLASSES) == set(QUANTITIES) - set(without)
    for quantity, device_class in _CLASSES.items():
        unit = QUANTITIES[quantity].unit
        assert _UNITS.get(unit, unit) in CLASS_UNITS[device_class]


@dataclass
class Broker:
    """What an MQTT broker retains, and a connection that comes and goes."""

    connected: bool = True
    now_s: float = 0.0
    retained: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)

    def retain(self, messages: Mapping[str, bytes]) -> None:
        self.kept |= messages
        self.publish()

    def publish(self) -> None:
        if self.connected:
            for topic, payload in self.kept.items():
                if payload:
                    self.retained[topic] = payload
                else:
                    self.retained.pop(topic, None)
            self.kept = {topic: payload for topic, payload in self.kept.items() if payload}

    def discovery(self, path: Path) -> Discovery:
        return Discovery(path, self.retain)

    def pass_time(self, discovery: Discovery, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1
            discovery.tick(snapshot(self.now_s, mqtt_connected=self.connected))


def test_without_the_option_nothing_is_written(tmp_path: Path) -> None:
    path, broker = tmp_path / "outbox.db.discovery", Broker()
    discovery = broker.discovery(path)
    discovery.apply({})
    broker.pass_time(discovery, 20)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_reported_and_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, broker = tmp_path / "outbox.db.discovery", Broker()
    path.write_bytes(bytes(40))
    with caplog.at_level(logging.WARNING):
        broker.discovery(path).apply({"a": b"1"})
    assert caplog.messages[0].startswith(f"event=state.unreadable path={path}")
    assert json.loads(path.read_text()) == {"topics": ["a"]}


def test_a_file_that_cannot_be_removed_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, broker = tmp_path / "outbox.db.discovery", Broker()
    discovery = broker.discovery(path)
    discovery.apply({"a": b"1"})
    # Root may remove any file, but no directory in its place.
    path.unlink()
    path.mkdir()
    discovery.apply({})
    with caplog.at_level(logging.WARNING):
        broker.pass_time(discovery, 30)
    (message,) = caplog.messages
    assert message.startswith(f"event=state.not_written path={path} error=")
    assert (broker.retained, broker.kept) == ({}, {})


_STEPS: Final = st.lists(
    st.one_of(
        st.sets(st.sampled_from("abc")), st.sampled_from(["lose", "find", "restart", "forget", "wait"])
    ),
    max_size=30,
)


@given(_STEPS)
def test_whatever_happens_the_broker_has_what_is_wanted_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, steps: list[set[str] | str]
) -> None:
    path, broker = tmp_path_factory.mktemp("d") / "file", Broker()
    wanted: Mapping[str, bytes] = {}
    discovery = broker.discovery(path)
    discovery.apply(wanted)
    for step in steps:
        if isinstance(step, set):
            wanted = {topic: topic.encode() for topic in step}
            discovery.apply(wanted)
        elif step in ("lose", "find"):
            broker.connected = step == "find"
            broker.publish()
        elif step == "restart":
            broker.kept = {}
            discovery = broker.discovery(path)
            discovery.apply(wanted)
        elif step == "forget":
            broker.retained.clear()
            broker.connected = False
        else:
            broker.pass_time(discovery, 12)
    broker.connected = True
    broker.publish()
    assert broker.retained == dict(wanted)
    broker.pass_time(discovery, 12)
    standing = json.loads(path.read_text())["topics"] if path.exists() else []
    assert standing == sorted(wanted)
